"""Findings for the part of a log that a start cuts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rmqtx.readers.model.findings import Finding
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.startup.log_walk import LogWalk
from rmqtx.verdicts.startup.losses import cut_meaning
from rmqtx.verdicts.startup.recovery import LogFacts


def log_findings(store: Store, walk: LogWalk, segments: Sequence[Segment], log: LogFacts) -> Iterator[Finding]:
    """Findings for the part of the log that is cut, and for loaded files that are deleted."""
    if walk.end_offset >= log.end_offset:
        return
    segment = segments[walk.stopped_in]
    cut_bytes = min(segment.end_offset, log.end_offset) - walk.end_offset
    meaning = cut_meaning(store, walk.end_offset)
    if cut_bytes > 0:
        yield Finding(
            store.root, "start-cuts-log", segment.file, walk.end_offset - segment.base_offset, cut_bytes,
            walk.end_offset, expected=f"records up to {log.end_offset}",
            actual=f"the log ends at {walk.end_offset}: {walk.why}", meaning=meaning,
        )
    for later in segments:
        if walk.end_offset < later.base_offset < log.end_offset:
            yield Finding(
                store.root, "start-deletes-segment", later.file, 0, later.size_bytes, later.base_offset,
                expected=f"records up to {log.end_offset}", actual=f"the log ends at {walk.end_offset}",
                meaning=meaning if cut_bytes <= 0 else None,
            )
