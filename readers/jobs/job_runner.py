"""Run a job over its splits on this machine: in this process for small stores, in one per core for large stores.

Each byte of a plan counts once for progress, and as soon as it is read, not when its split ends. Of a scan in this
process each read counts, also of an unused rest; of other processes the splits that have ended.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from rmqtx.readers.jobs.workers import Progress, Workers, workers_count
from rmqtx.readers.log.segment_scan import Span, watched_by
from rmqtx.readers.log.splits import Split, SplitPlan
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.reading import Coverage, Reading
from rmqtx.readers.store.store import Store


class ReadBytes:
    """The ranges of files that were read, for a progress. Units: bytes."""

    def __init__(self, plan: SplitPlan, progress: Progress) -> None:
        self._total = plan.total_bytes
        self._left = len(plan)
        self._progress = progress
        self._done = 0
        self._ranges: dict[str, list[tuple[int, int]]] = {
            segment.file: [] for store in plan.stores for segment in store.commit_log
        }
        progress(0, self._total)

    def add(self, file: str, begin: int, end: int) -> None:
        """Add a range of a file of the plan, and show it; all bytes are done only when all splits have ended."""
        known = self._ranges.get(file)
        if known is None or end <= begin:
            return
        near = [one for one in known if one[0] <= end and begin <= one[1]]
        whole = min([begin, *(one[0] for one in near)]), max([end, *(one[1] for one in near)])
        self._ranges[file] = [one for one in known if one not in near] + [whole]
        self._done += whole[1] - whole[0] - sum(one[1] - one[0] for one in near)
        self._progress(min(self._done, self._total - (self._left > 0)), self._total)

    def ended(self, split: Split) -> None:
        """Add a split that has ended."""
        self._left -= 1
        self.add(split.segment.file, split.from_position, split.to_position)


@contextmanager
def shown_to(progress: Progress | None, plan: SplitPlan) -> Iterator[ReadBytes | None]:
    """Show a progress what scans of this process read during the block."""
    if progress is None:
        yield None
        return
    read = ReadBytes(plan, progress)
    with watched_by(read.add):
        yield read


def run_job(
    job: ScanJob, plan: SplitPlan, *, processes: int | None = None, progress: Progress | None = None
) -> Reading:
    """Return the rows of a job over every split of a plan, then over every store.

    Order: as the plan's splits; rows that need a whole store come last.
    """
    reading = Reading(job.schema, [], [finding for store in plan.stores for finding in store.findings])
    reading.batches = _run(job, plan, reading, processes, progress)
    return reading


def _run(
    job: ScanJob, plan: SplitPlan, reading: Reading, processes: int | None, progress: Progress | None
) -> Iterator[pa.RecordBatch]:
    tally = Tally(plan, reading)
    with Workers(workers_count(plan.total_bytes, processes)) as pool:
        with shown_to(progress, plan) as read:
            for split, result in zip(plan, pool.run(job.of_split, plan), strict=True):
                if tally.add(split, result):
                    yield from result.rows
                if read is not None:
                    read.ended(split)
        tasks = [(store, tally.carried[store.root]) for store in plan.stores]
        for result in pool.run(functools.partial(of_store, job), tasks):
            reading.findings.extend(result.findings)
            yield from result.rows


def of_store(job: ScanJob, task: tuple[Any, list[Any]]) -> SplitResult:
    """Return the result of a job for one store, given with what its splits left."""
    return job.of_store(*task)


class Tally:
    """Collects the findings and coverage of splits into a reading."""

    def __init__(self, plan: SplitPlan, reading: Reading) -> None:
        self.carried: dict[str, list[Any]] = defaultdict(list)
        self._reading = reading
        self._coverage = {
            segment.file: Coverage(store.root, segment.file, segment.size_bytes)
            for store in plan.stores
            for segment in store.commit_log
        }
        self._ended: set[str] = set()
        reading.coverage.extend(self._coverage.values())

    def add(self, split: Split, result: SplitResult) -> bool:
        """Add a split; return false if it lies after the end of its segment's data and is ignored.

        Records there were cut off by a recovery. Splits of a segment come in their order.
        """
        if split.segment.file in self._ended:
            return False
        size = split.segment.size_bytes
        if any(span.position_bytes + span.length_bytes == size for span in result.spans):
            self._ended.add(split.segment.file)
        self._coverage[split.segment.file].count(result.decoded_bytes, result.spans)
        self._reading.findings.extend(result.findings)
        self.carried[split.store.root].append(result.carried)
        return True


# A job over every split of some stores, for both engines: first the splits, in any order, then each store.
#
# A job is sent to the process that reads the bytes, so the job and its results are small and can be pickled.


@dataclass(slots=True)
class SplitResult:
    """The result of one split: rows of the job's table, spans, findings.

    Shape: `spans` are those of `SegmentScan.spans`, unchanged; the engines compute coverage from them and from
           `decoded_bytes`. `findings` are all findings to report, including those of spans. `carried` is data that
           the job's `of_store` needs from the split.
    """

    rows: list[pa.RecordBatch] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    decoded_bytes: int = 0
    spans: list[Span] = field(default_factory=list)
    carried: Any = None


class ScanJob(Protocol):
    """A job: a schema, a result for each split, and a result for each store."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""

    def of_split(self, split: Split) -> SplitResult:
        """Return the result for one split; a file that cannot be read is a finding, not an error."""

    def of_store(self, store: Store, carried: list[Any]) -> SplitResult:
        """Return the result for a store when all its splits are done; `carried` is in log order. No decoded bytes."""
