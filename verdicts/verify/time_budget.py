"""A verification with a time limit: the files of the log that were verified longest ago come first.

The last file with data is always read, because the end of the log decides about everything that points into it. What
was not read is unknown: entries that point there are not judged, and the next start of the broker is not predicted.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np

from rmqtx.readers.jobs.job_runner import SplitResult, Tally, of_store, shown_to
from rmqtx.readers.jobs.workers import Progress
from rmqtx.readers.log.splits import Split, SplitPlan, plan_splits
from rmqtx.readers.model import clock
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.verify.split import VerifiedSplit
from rmqtx.verdicts.verify.verify import Verify

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


class Results(Protocol):
    """A function that runs another one over tasks, as engines do."""

    def __call__(
        self, function: Callable[[_Task], _Result], tasks: Sequence[_Task], total_bytes: int
    ) -> list[_Result]:
        """Return the result for each task."""


@dataclass(slots=True)
class PartialReading:
    """A reading of part of the log. `checked`: file → when it was read, epoch milliseconds; `files_count`: of all."""

    reading: Reading
    files_count: int
    checked: dict[str, int] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether all files were read."""
        return len(self.checked) == self.files_count


def verify_within(
    job: Verify, stores: list[Store], seconds: float, checked: Mapping[str, int], results: Results, *,
    split_bytes: int, progress: Progress | None = None,
) -> PartialReading:
    """Return the findings for the part of some stores that can be read in time, least recently verified files first.

    `checked`: file → when it was verified last, epoch milliseconds; a file that is not in it was not verified yet. A
    file is begun only if it would end in time at the speed so far; the last file of each store and one more are always
    read.
    Order: as in a verification without a limit.
    """
    begin = time.monotonic()
    plan = plan_splits(stores, split_bytes=split_bytes)
    files = _files(plan)
    last = {split.segment.file for splits in files.values() for split in splits if split.is_last}
    order = sorted(files, key=lambda file: (file not in last, checked.get(file, -1)))
    partial = PartialReading(Reading(job.schema, []), len(files))
    found: dict[int, SplitResult] = {}
    read_bytes = 0
    with shown_to(progress, plan) as read:
        for number, file in enumerate(order):
            splits = files[file]
            size_bytes = sum(split.to_position - split.from_position for split in splits)
            elapsed = time.monotonic() - begin
            expected = elapsed * size_bytes / read_bytes if read_bytes else 0.0
            if number > len(last) and elapsed + expected > seconds:
                break
            partial.checked[file] = clock.now_ms()
            done = results(job.of_split, splits, size_bytes)
            found.update({split.number: result for split, result in zip(splits, done, strict=True)})
            read_bytes += size_bytes
            if read is not None:
                for split in splits:
                    read.ended(split)
    _collect(partial, plan, job, found, results)
    return partial


def _files(plan: SplitPlan) -> dict[str, list[Split]]:
    files: dict[str, list[Split]] = {}
    for split in plan:
        files.setdefault(split.segment.file, []).append(split)
    return files


def _collect(
    partial: PartialReading, plan: SplitPlan, job: Verify, found: Mapping[int, SplitResult], results: Results
) -> None:
    """Add the findings in the order of the log, then those of whole stores."""
    reading = partial.reading
    reading.findings.extend(finding for store in plan.stores for finding in store.findings)
    tally = Tally(plan, reading)
    batches = []
    for split in plan:
        result = found.get(split.number)
        if result is None:
            tally.carried[split.store.root].append(unread_split(split))
        elif tally.add(split, result):
            batches.extend(result.rows)
    tasks = [(store, tally.carried[store.root]) for store in plan.stores]
    for result in results(functools.partial(of_store, job), tasks, 0):
        reading.findings.extend(result.findings)
        batches.extend(result.rows)
    reading.batches = batches


def unread_split(split: Split) -> VerifiedSplit:
    """Return the facts of a split that was not read."""
    return VerifiedSplit(np.array([split.offsets], np.int64), split.segment.file, is_unread=True)
