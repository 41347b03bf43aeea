"""Files of units of one length: consume queues, batch queues, and the state table and redo log of brokers 3.0 and 3.1.

A unit's number is its place: (file name + position) / length of a unit. A unit of zeros is unused: after the last used
unit it is preallocated space, before it damage. `UnitLog` reads units by number, `UnitScan` reads whole files.

Callers pass what differs: which units are sound and which are fillers, because brokers check other fields of each
structure; the codes of findings; and the range of numbers. A unit of a batch queue has its queue offset in a field, so
the caller applies the range there. Units of an extension file have different lengths and addresses instead of numbers:
see `consume_queue_extension.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rmqtx.readers.model.columns import Bools
from rmqtx.readers.model.errors import FileChanged, UnreadableFile
from rmqtx.readers.model.findings import FINDINGS_MAX, Finding
from rmqtx.readers.model.layout import Layout
from rmqtx.readers.model.reading import Coverage
from rmqtx.readers.storage.open_file import OpenFile
from rmqtx.readers.storage.segments import Segment, SegmentedLog
from rmqtx.readers.store.remembered import unused_rests
from rmqtx.readers.store.store import Store

#: Units as an array, with a column for each field of their layout.
Units = npt.NDArray[np.void]
BLOCK_UNITS = 65_536
#: Units that are examined at once in search of the last used one.
_SEARCHED_UNITS = 8_192
#: The same where the end is nearly known: the bytes before it may be fetched for this only.
_SAMPLED_UNITS = 1_024
#: Length that is fetched at once if the end of the last file turns out to be unused: most files are not longer.
_PREPARED_BYTES = 6 << 20


#: A file can have a name beyond 64-bit offsets; a broker does not start on it.
_OFFSETS_END = 2**63


def addressable(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """Return the segments within 64-bit offsets."""
    return tuple(segment for segment in segments if segment.end_offset < _OFFSETS_END)


def is_well_named(segment: Segment, layout: Layout) -> bool:
    """Whether a file's name is the place of a whole unit within 64-bit offsets."""
    return segment.base_offset % layout.size_bytes == 0 and segment.end_offset < _OFFSETS_END


def misnamed(store: Store, segment: Segment, layout: Layout, code: str) -> Finding:
    """Return the finding for a file whose name is not the place of a unit."""
    return Finding(
        store.root, code, segment.file, 0, segment.size_bytes,
        expected=f"a file name that is a multiple of {layout.size_bytes} and a 64-bit number",
        actual=str(segment.base_offset),
    )


def gaps_as(code: str, findings: list[Finding]) -> list[Finding]:
    """Return findings about files, with a gap between files under the structure's own code."""
    return [
        replace(finding, code=code, commit_log_offset=None) if finding.code == "segment-gap" else finding
        for finding in findings
    ]


def unreadable(file: str, store: str, error: UnreadableFile | FileChanged) -> Finding:
    """Return the finding for a file that could not be read."""
    return Finding(store, "unreadable-file", file, error.position_bytes, actual=error.message)


def is_not_zero(units: Units) -> Bools:
    """Return which units have a byte that is not zero."""
    raw = np.frombuffer(units, np.uint8).reshape(len(units), units.dtype.itemsize)
    return np.asarray(raw.any(axis=1))


def units_in(data: bytes, layout: Layout) -> Units:
    """Return bytes as an array of units."""
    return np.frombuffer(data, layout.dtype, len(data) // layout.size_bytes)


def _end_of(
    file: OpenFile, layout: Layout, is_wanted: Callable[[Units], Bools], data_end: int, unused: dict[str, int]
) -> int:
    """Return the position past the last wanted unit; 0 if there is none. Reads backwards, without holes.

    `data_end`: what follows is not read. `unused`: gets the position from which on the file has only zeros.
    """
    size = layout.size_bytes
    is_near = data_end < file.size_bytes
    is_whole = data_end == file.size_bytes and not data_end % size
    block_bytes = (_SAMPLED_UNITS if is_near else _SEARCHED_UNITS) * size
    end = min(-(-data_end // size), file.size_bytes // size) * size
    while end > 0:
        begin = (end - 1) // block_bytes * block_bytes
        if file.next_data(begin) < end:
            data = file.read(begin, end - begin)
            if data != bytes(len(data)):
                if is_whole:
                    unused.setdefault(file.file, begin + len(data.rstrip(b"\0")))
                wanted = is_wanted(units_in(data, layout))
                if wanted.any():
                    return begin + (len(wanted) - int(wanted[::-1].argmax())) * size
            prepared_bytes = min(begin, block_bytes if is_near else _PREPARED_BYTES)
            file.prepare([(begin - prepared_bytes, prepared_bytes)])
        end = begin
    if is_whole:
        unused.setdefault(file.file, 0)
    return 0


def last_used(
    store: Store, segments: tuple[Segment, ...], layout: Layout, is_wanted: Callable[[Units], Bools] = is_not_zero, *,
    is_read_whole: bool = False,
) -> tuple[int, int] | None:
    """Return the number of the last segment with a wanted unit, and the position past the unit; None without any.

    `is_wanted`: no unit of zeros is. `is_read_whole`: where samples show that a remote file is unused, it is read too.
    Raises: UnreadableFile, FileChanged.
    """
    unused = unused_rests(store)
    for number in range(len(segments) - 1, -1, -1):
        with segments[number].open() as file:
            data_end = unused.get(file.file, file.size_bytes if is_read_whole else file.data_end)
            end = _end_of(file, layout, is_wanted, data_end, unused)
        if end:
            return number, end
    return None


def used_end(
    store: Store, segments: tuple[Segment, ...], layout: Layout, is_wanted: Callable[[Units], Bools] = is_not_zero
) -> int:
    """Return the number past the last wanted unit of some files; 0 if there is none.

    Raises: UnreadableFile, FileChanged.
    """
    last = last_used(store, segments, layout, is_wanted)
    return 0 if last is None else (segments[last[0]].base_offset + last[1]) // layout.size_bytes


def last_unit(
    store: Store, segments: tuple[Segment, ...], layout: Layout, is_wanted: Callable[[Units], Bools] = is_not_zero
) -> tuple[int, Units] | None:
    """Return the number and the value of the last wanted unit of some files; None if there is none.

    Raises: UnreadableFile, FileChanged.
    """
    last = last_used(store, segments, layout, is_wanted)
    if last is None:
        return None
    size, segment = layout.size_bytes, segments[last[0]]
    with segment.open() as file:
        return (segment.base_offset + last[1]) // size - 1, units_in(file.read(last[1] - size, size), layout)


class UnitLog:
    """Files of units, read by number; files with a name that is not the place of a unit are left out.

    Raises: UnreadableFile, FileChanged when units are read.
    """

    def __init__(self, segments: tuple[Segment, ...], layout: Layout) -> None:
        self.layout = layout
        self.segments = tuple(segment for segment in segments if is_well_named(segment, layout))
        self._log = SegmentedLog(self.segments)

    @property
    def exists(self) -> bool:
        """Whether there is a file."""
        return bool(self.segments)

    @property
    def first(self) -> int:
        """Number of the first unit in a file; 0 without files."""
        return self.segments[0].base_offset // self.layout.size_bytes if self.segments else 0

    @property
    def end(self) -> int:
        """Number past the last unit that a file has room for; 0 without files."""
        return self.segments[-1].end_offset // self.layout.size_bytes if self.segments else 0

    def segment_at(self, number: int) -> Segment | None:
        """Return the file of a unit."""
        return self._log.segment_at(number * self.layout.size_bytes)

    def parts(self, first: int, end: int, count_max: int | None = None) -> Iterator[tuple[int, Units]]:
        """Yield the units of [first, end) that files hold: runs within one file, each with its first number."""
        size = self.layout.size_bytes
        for segment in self.segments:
            low, high = max(first, segment.base_offset // size), min(end, segment.end_offset // size)
            while low < high:
                count = min(high - low, count_max or high - low)
                yield low, units_in(self._log.read(low * size, count * size), self.layout)
                low += count

    def read(self, first: int, end: int) -> Units:
        """Return the units [first, end); zeros for numbers that are in no file."""
        units = np.zeros(end - first, self.layout.dtype)
        for low, part in self.parts(first, end):
            units[low - first : low - first + len(part)] = part
        return units

    def close(self) -> None:
        """Close all files."""
        self._log.close()


class UnitBlock(NamedTuple):
    """Units that stand one after another in a file, from a position on, and which of them are sound."""

    segment: Segment
    position: int
    units: Units
    sound: Bools
    coverage: Coverage


@dataclass(frozen=True, slots=True)
class UnitScan:
    """One pass over all units of some files; findings and coverage are complete at the end of the iteration.

    Shape:  `kinds` returns which units are sound and which are fillers, for some units; the others are damage.
            `bounds` [from, to) are unit numbers. The caller counts the decoded bytes, as it may use fewer units.
    Damage: `code`, with `expected`, for each run of damaged units, for what a length that is not a multiple of the
            unit leaves over, and for a wrong file name; unreadable-file.
    """

    store: Store
    layout: Layout
    code: str
    expected: str
    kinds: Callable[[Units], tuple[Bools, Bools]]
    findings: list[Finding]
    coverage: list[Coverage]
    bounds: tuple[int, int] = (0, 2**63 - 1)

    def blocks(self, segments: tuple[Segment, ...]) -> Iterator[UnitBlock]:
        """Yield the used units of the files, in order."""
        try:
            last = last_used(self.store, segments, self.layout, is_read_whole=True)
        except (UnreadableFile, FileChanged):  # reported below, where the file is read
            last = len(segments) - 1, segments[-1].size_bytes
        for number, segment in enumerate(segments):
            used = 0
            if last is not None and number <= last[0]:
                used = last[1] if number == last[0] else segment.size_bytes
            yield from self._of_file(segment, used)

    def _of_file(self, segment: Segment, used_bytes: int) -> Iterator[UnitBlock]:
        size = self.layout.size_bytes
        known = Coverage(self.store.root, segment.file, segment.size_bytes)
        self.coverage.append(known)
        if not is_well_named(segment, self.layout):
            known.damaged_bytes = segment.size_bytes
            self.findings.append(misnamed(self.store, segment, self.layout, self.code))
            return
        begin = min(max(self.bounds[0] * size - segment.base_offset, 0), segment.size_bytes)
        end = min(max(self.bounds[1] * size - segment.base_offset, begin), segment.size_bytes)
        whole = segment.size_bytes // size * size
        stop = min(end, used_bytes, whole)
        damaged = UnitRuns(self.store.root, segment.file, self.code, self.expected, self.findings)
        try:
            with segment.open() as file:
                for position in range(begin, stop, BLOCK_UNITS * size):
                    units = units_in(file.read(position, min(BLOCK_UNITS * size, stop - position)), self.layout)
                    sound, filler = self.kinds(units)
                    wrong = ~(sound | filler)
                    damaged.add(wrong, position, size)
                    known.damaged_bytes += int(wrong.sum()) * size
                    known.filler_bytes += int(filler.sum()) * size
                    yield UnitBlock(segment, position, units, sound, known)
                known.filler_bytes += max(0, min(end, whole) - max(begin, stop))
                rest = file.read(whole, end - whole) if end == segment.size_bytes else b""
                if rest.strip(b"\0"):
                    known.damaged_bytes += len(rest)
                    damaged.add_range(whole, end)
                else:
                    known.filler_bytes += len(rest)
        except (UnreadableFile, FileChanged) as error:
            self.findings.append(unreadable(segment.file, self.store.root, error))
        finally:
            damaged.close()


@dataclass(slots=True)
class UnitRuns:
    """Units of one file with the same fault: each run of adjacent units becomes one finding."""

    store: str
    file: str
    code: str
    expected: str
    findings: list[Finding]
    meaning: str | None = None
    _open: tuple[int, int] | None = None
    _made: int = 0

    def add(self, wrong: Bools, position_bytes: int, unit_bytes: int) -> None:
        """Add the wrong units of a block; blocks come in file order."""
        edges = np.flatnonzero(np.diff(wrong, prepend=False, append=False))
        for begin, end in (edges.reshape(-1, 2) * unit_bytes + position_bytes).tolist():
            self.add_range(begin, end)

    def add_range(self, begin: int, end: int) -> None:
        """Add the bytes of the file from `begin` to `end`."""
        if self._open is not None and (self._open[1] == begin or self._made == FINDINGS_MAX - 1):
            self._open = (self._open[0], end)
            return
        self.close()
        self._open = (begin, end)

    def close(self) -> None:
        """Report the last run."""
        if self._open is None:
            return
        begin, end = self._open
        more = "more damage from here on, not listed one by one" if self._made == FINDINGS_MAX - 1 else None
        self.findings.append(
            Finding(
                self.store, self.code, self.file, begin, end - begin,
                expected=self.expected, actual=more, meaning=self.meaning,
            )
        )
        self._made += 1
        self._open = None
