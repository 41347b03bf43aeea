"""How many bytes of a plan were read so far: each counts once, and as soon as it is read, not when its split ends.

Of a scan in this process each read counts, also of an unused rest; of other processes the splits that have ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rmqtx.readers.jobs.workers import Progress
from rmqtx.readers.log.segment_scan import watched_by
from rmqtx.readers.log.splits import Split, SplitPlan


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
