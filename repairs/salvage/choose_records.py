"""Choosing the records of the new log from those found: one per offset, and the better one of two that differ.

Sound bodies are preferred to damaged ones, then whole properties to torn ones, then long runs to short ones, then files
named earlier to later ones.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from rmqtx.readers.log.record_layout import HEAD_BYTES, HEADER_BYTES_MAX, number_at
from rmqtx.readers.model.findings import Finding, as_text
from rmqtx.readers.model.moments import BROKER_TIME_MAX_MS
from rmqtx.readers.storage.open_file import OpenFile
from rmqtx.repairs.records.fillers import BLANK_BYTES, FILLER_BYTES_MIN
from rmqtx.repairs.salvage.scan_for_records import Run, SalvageSource

#: Largest gap between neighbours in the new log: records beyond have damaged offsets, or belong to another log.
SEGMENTS_APART_MAX = 1024
_FINDINGS_MAX = 100
_OPEN_FILES_MAX = 64


@dataclass(frozen=True, slots=True)
class Piece:
    """Records of one file that become a range of the new log. Units: bytes, ms."""

    offset: int
    length_bytes: int
    source: int
    position_bytes: int
    records_count: int
    first_time_ms: int
    last_time_ms: int

    @property
    def end_offset(self) -> int:
        """Commit-log offset past its last record."""
        return self.offset + self.length_bytes


class OpenSources:
    """The files with records, kept open while they are used."""

    def __init__(self, sources: list[SalvageSource]) -> None:
        self.sources = sources
        self._open: dict[int, OpenFile] = {}

    def read(self, number: int, position: int, length: int) -> bytes:
        """Return bytes of a file. Raises: UnreadableFile, FileChanged."""
        if number not in self._open:
            if len(self._open) >= _OPEN_FILES_MAX:
                self._open.pop(next(iter(self._open))).close()
            self._open[number] = self.sources[number].open()
        return self._open[number].read(position, length)

    def close(self) -> None:
        """Close all files."""
        for file in self._open.values():
            file.close()
        self._open.clear()


@dataclass(slots=True)
class ChosenRecords:
    """The pieces of the new log, and counts of the records that were not used.

    Shape: `left_out_count`: records whose body does not match its CRC and that have no other copy, or that do not
           belong to this log.
    Order: pieces by offset.
    """

    pieces: list[Piece]
    duplicates_count: int = 0
    contradictions_count: int = 0
    left_out_count: int = 0
    findings: list[Finding] = field(default_factory=list)


def chosen_pieces(runs: list[Run], files: OpenSources, segment_bytes: int) -> ChosenRecords:
    """Choose the pieces of the new log.

    Damage: copies-contradict, record-left-out.
    Raises: UnreadableFile, FileChanged.
    """
    choice = _Choice(files, segment_bytes)

    def rank(run: Run) -> tuple[bool, bool, int, int, int]:
        return not run.is_intact, run.is_torn, -run.length_bytes, run.source, run.position_bytes

    for run in sorted(runs, key=rank):
        choice.offer(run)
    choice.leave_out_far()
    choice.leave_out_stale()
    choice.leave_out_too_near()
    return choice.chosen


@dataclass(slots=True)
class _Choice:
    files: OpenSources
    segment_bytes: int
    chosen: ChosenRecords = field(default_factory=lambda: ChosenRecords([]))
    _begins: list[int] = field(default_factory=list)
    _reported: int = 0

    def offer(self, run: Run) -> None:
        """Add the records of a run whose place in the log is still free."""
        low, high = self._overlapping(run.offset, run.end_offset)
        is_free = low == high and run.is_intact
        if is_free and run.offset // self.segment_bytes == (run.end_offset + BLANK_BYTES - 1) // self.segment_bytes:
            times = run.first_time_ms, run.last_time_ms
            self._insert(self._piece(run, run.offset, run.end_offset, run.records_count, *times))
            return
        free: list[tuple[int, int]] = []
        for offset, length in self._records(run):
            low, high = self._overlapping(offset, offset + length)
            if low < high:
                self._compare(run, offset, length)
            elif not run.is_intact:
                self._leave_out(run, offset, length, 1, "its body does not match its CRC, and no other copy was found")
            elif offset // self.segment_bytes != (offset + length + BLANK_BYTES - 1) // self.segment_bytes:
                why = f"it crosses the end of a segment of {self.segment_bytes} bytes"
                self._leave_out(run, offset, length, 1, why)
            elif free and free[-1][1] == offset and offset % self.segment_bytes:
                free[-1] = (free[-1][0], offset + length)
            else:
                free.append((offset, offset + length))
        for begin, end in free:
            count, first, last = self._counted(run, begin, end)
            self._insert(self._piece(run, begin, end, count, first, last))

    def _piece(self, run: Run, begin: int, end: int, count: int, first_ms: int, last_ms: int) -> Piece:
        position = run.position_bytes + begin - run.offset
        return Piece(begin, end - begin, run.source, position, count, first_ms, last_ms)

    def _records(self, run: Run) -> Iterator[tuple[int, int]]:
        position, end = run.position_bytes, run.position_bytes + run.length_bytes
        while position < end:
            length = number_at(self.files.read(run.source, position, HEAD_BYTES), "length_bytes")
            yield run.offset + position - run.position_bytes, length
            position += length

    def _counted(self, run: Run, begin: int, end: int) -> tuple[int, int, int]:
        """Number of records in a part of a run, and the store times of its first and last record."""
        if begin == run.offset and end == run.end_offset:
            return run.records_count, run.first_time_ms, run.last_time_ms
        inside = [offset for offset, _ in self._records(run) if begin <= offset < end]
        return len(inside), self._time(run, inside[0]), self._time(run, inside[-1])

    def _time(self, run: Run, offset: int) -> int:
        """Store time of a record; docs/formats/record.md#record, with a born host of 4 or 16 bytes."""
        position = run.position_bytes + offset - run.offset
        time_ms = number_at(self.files.read(run.source, position, HEADER_BYTES_MAX), "store_time_ms")
        return time_ms if 0 <= time_ms <= BROKER_TIME_MAX_MS else run.first_time_ms

    def _overlapping(self, begin: int, end: int) -> tuple[int, int]:
        """Positions of the first piece that overlaps a range, and after the last one."""
        low = bisect.bisect_right(self._begins, begin)
        if low and self.chosen.pieces[low - 1].end_offset > begin:
            low -= 1
        return low, bisect.bisect_left(self._begins, end)

    def _insert(self, piece: Piece) -> None:
        place = bisect.bisect_left(self._begins, piece.offset)
        self._begins.insert(place, piece.offset)
        self.chosen.pieces.insert(place, piece)

    def _compare(self, run: Run, offset: int, length: int) -> None:
        """Compare a record with the one already chosen for its place: a duplicate, or a contradiction."""
        low, high = self._overlapping(offset, offset + length)
        taken = self.chosen.pieces[low]
        mine = self.files.read(run.source, run.position_bytes + offset - run.offset, length)
        if high - low == 1 and taken.offset <= offset and offset + length <= taken.end_offset:
            other = self.files.read(taken.source, taken.position_bytes + offset - taken.offset, length)
            if mine == other:
                self.chosen.duplicates_count += 1
                return
        self.chosen.contradictions_count += 1
        kept = as_text(self.files.sources[taken.source].file)
        self._report("copies-contradict", run, offset, length, f"the different copy in {kept} is used")

    def _leave_out(self, run: Run | Piece, offset: int, length: int, count: int, why: str) -> None:
        self.chosen.left_out_count += count
        self._report("record-left-out", run, offset, length, why)

    def _report(self, code: str, run: Run | Piece, offset: int, length: int, why: str) -> None:
        self._reported += 1
        if self._reported > _FINDINGS_MAX:
            return
        file = as_text(self.files.sources[run.source].file)
        position = run.position_bytes + offset - run.offset
        self.chosen.findings.append(
            Finding(file, code, file, position, length, commit_log_offset=offset, actual=why)
        )

    # --- records that do not belong to the log

    def leave_out_far(self) -> None:
        """If there are groups of pieces far from each other, keep the group with the most bytes."""
        pieces = self.chosen.pieces
        groups: list[list[Piece]] = []
        for piece in pieces:
            if groups and piece.offset - groups[-1][-1].end_offset <= SEGMENTS_APART_MAX * self.segment_bytes:
                groups[-1].append(piece)
            else:
                groups.append([piece])
        if len(groups) < 2:
            return
        best = max(groups, key=lambda group: sum(piece.length_bytes for piece in group))
        for group in groups:
            for piece in group if group is not best else ():
                why = "far from the rest of the log"
                self._leave_out(piece, piece.offset, piece.length_bytes, piece.records_count, why)
        self._keep(best)

    def leave_out_stale(self) -> None:
        """Leave out records after the end of the data that a recovery had cut off: older than the records before them.

        Only in the last segment: in all others a blank record ends the data.
        """
        pieces = self.chosen.pieces
        for number, piece in enumerate(pieces):
            before = pieces[number - 1] if number else None
            is_in_last = piece.offset // self.segment_bytes == pieces[-1].offset // self.segment_bytes
            if (
                before is not None and is_in_last and before.end_offset < piece.offset
                and piece.first_time_ms < before.last_time_ms
            ):
                for stale in pieces[number:]:
                    why = "it is older than the records before it: a recovery had cut it off"
                    self._leave_out(stale, stale.offset, stale.length_bytes, stale.records_count, why)
                self._keep(pieces[:number])
                return

    def leave_out_too_near(self) -> None:
        """Leave out the record after a hole that is too short for a filler."""
        kept: list[Piece] = []
        for piece in self.chosen.pieces:
            while kept and 0 < piece.offset - kept[-1].end_offset < FILLER_BYTES_MIN and self._in_one(kept[-1], piece):
                length = number_at(self.files.read(piece.source, piece.position_bytes, HEAD_BYTES), "length_bytes")
                self._leave_out(piece, piece.offset, length, 1, "the damage before it is too short for a filler")
                piece = replace(
                    piece, offset=piece.offset + length, position_bytes=piece.position_bytes + length,
                    length_bytes=piece.length_bytes - length, records_count=piece.records_count - 1,
                )
                if not piece.length_bytes:
                    break
            if piece.length_bytes:
                kept.append(piece)
        self._keep(kept)

    def _in_one(self, one: Piece, other: Piece) -> bool:
        return one.offset // self.segment_bytes == other.offset // self.segment_bytes

    def _keep(self, pieces: list[Piece]) -> None:
        self.chosen.pieces = pieces
        self._begins = [piece.offset for piece in pieces]
