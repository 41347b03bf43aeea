"""The files of a queue: which can be addressed, and what is wrong with them in a queue's words."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from readers.model.columns import Bools
from readers.model.errors import FileChanged, UnreadableFile
from readers.model.finding_limits import FINDINGS_MAX
from readers.model.findings import Finding
from readers.model.layout import Layout
from readers.storage.segments import Segment
from readers.store.store import Store


def addressable(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """The segments that a 64-bit offset can name: 20 digits can say more, and a broker would not start on them."""
    return tuple(segment for segment in segments if segment.end_offset < 2**63)


def is_well_named(segment: Segment, layout: Layout) -> bool:
    """Whether a file's name is the place of a whole slot that can be addressed."""
    return segment.base_offset % layout.size_bytes == 0 and bool(addressable((segment,)))


def queue_findings(findings: list[Finding]) -> list[Finding]:
    """The findings about a queue's files in a queue's words."""
    return [
        replace(finding, code="queue-gap", commit_log_offset=None) if finding.code == "segment-gap" else finding
        for finding in findings
    ]


def misnamed(store: Store, segment: Segment, layout: Layout) -> Finding:
    """That a file's name says no slot's place."""
    return Finding(
        store.root, "slot-invalid", segment.file, 0, segment.size_bytes,
        expected=f"a file name that is a multiple of {layout.size_bytes} and a 64-bit number",
        actual=str(segment.base_offset),
    )


def unreadable(file: str, store: str, error: UnreadableFile | FileChanged) -> Finding:
    """That a file could not be read."""
    return Finding(store, "unreadable-file", file, error.position_bytes, actual=error.message)


@dataclass(slots=True)
class SlotRuns:
    """Slots of one file that one thing is wrong with: each run of neighbours becomes one finding."""

    store: str
    file: str
    code: str
    expected: str
    findings: list[Finding]
    meaning: str | None = None
    _open: tuple[int, int] | None = None
    _made: int = 0

    def add(self, wrong: Bools, position_bytes: int, unit_bytes: int) -> None:
        """The slots of one block, in file order."""
        edges = np.flatnonzero(np.diff(wrong, prepend=False, append=False))
        for begin, end in (edges.reshape(-1, 2) * unit_bytes + position_bytes).tolist():
            self.add_range(begin, end)

    def add_range(self, begin: int, end: int) -> None:
        """Bytes of the file from `begin` to `end`."""
        if self._open is not None and (self._open[1] == begin or self._made == FINDINGS_MAX - 1):
            self._open = (self._open[0], end)
            return
        self.close()
        self._open = (begin, end)

    def close(self) -> None:
        """Nothing more follows."""
        if self._open is None:
            return
        begin, end = self._open
        more = "more damage than is told one by one, from here on" if self._made == FINDINGS_MAX - 1 else None
        self.findings.append(
            Finding(
                self.store, self.code, self.file, begin, end - begin,
                expected=self.expected, actual=more, meaning=self.meaning,
            )
        )
        self._made += 1
        self._open = None
