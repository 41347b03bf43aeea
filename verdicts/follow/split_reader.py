"""Reads splits for a following audit: in processes if there are many bytes, never far ahead of the checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Protocol, TypeVar

from rmqtx.readers.jobs.workers import Progress, Workers, workers_count
from rmqtx.readers.log.splits import Split
from rmqtx.verdicts.evidence.witness_scan import SplitWitnesses, scan_witnesses

#: Bytes that are read and written at once; a kill loses no more.
STEP_BYTES = 32 << 20


_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


class Pool(Protocol):
    """What runs tasks: processes of this machine (`rmqtx.readers.jobs.workers.Workers`), or a cluster."""

    def __enter__(self) -> object:
        """Begin."""

    def __exit__(self, *_: object) -> None:
        """End; tasks that have not begun are not run."""

    def run(self, function: Callable[[_Task], _Result], tasks: Iterable[_Task]) -> Iterator[_Result]:
        """Return the results, in the tasks' order."""


@dataclass(slots=True)
class SplitReader:
    """Reads splits, in processes if there are many bytes, never far ahead of the consumer of the results."""

    workers: Pool
    processes: int
    step_bytes: int = STEP_BYTES
    progress: Progress | None = None
    total_bytes: int = 0
    done_bytes: int = 0

    def read(self, splits: Iterable[Split]) -> Iterator[tuple[Split, SplitWitnesses]]:
        """Return the splits with their witnesses, in order."""
        scan = partial(scan_witnesses, past_ms=None, with_copies=True)
        left = iter(splits)
        while some := list(islice(left, 2 * self.processes)):
            alone = [replace(s, store=replace(s.store, commit_log=(s.segment,), findings=())) for s in some]
            for split, found in zip(some, self.workers.run(scan, alone), strict=True):
                yield split, found
                self.done_bytes += split.to_position - split.from_position
                if self.progress is not None:
                    self.progress(min(self.done_bytes, self.total_bytes), self.total_bytes)


def local_reader(processes: int | None, total_bytes: int, progress: Progress | None) -> SplitReader:
    """Return a reader for a number of new bytes, with processes of this machine."""
    count = workers_count(total_bytes, processes)
    return SplitReader(Workers(count), count, progress=progress, total_bytes=total_bytes)
