"""Finding records by the offset that they contain: in a file of any name, or in an image of a disk.

A record contains its offset in the log; the name of the file and the position in it do not matter. Consecutive records
make a run, and only runs are kept in memory.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from rmqtx.readers.log.header_rules import plausible_times
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.record_layout import (
    BLANK,
    BLANK_MAGIC,
    FILLER_MARK,
    HEAD_BYTES,
    MAGIC_AT,
    MAGIC_START,
    RECORD_BYTES_MIN,
    head_of,
    number_at,
    span_of,
)
from rmqtx.readers.log.segment_scan import sound_length, walk
from rmqtx.readers.log.torn_properties import have_torn_properties
from rmqtx.readers.model.columns import SLACK_BYTES, Bools
from rmqtx.readers.model.errors import NotAStore, UnreadableFile
from rmqtx.readers.model.findings import Finding, as_text
from rmqtx.readers.model.reading import Coverage
from rmqtx.readers.storage.open_file import OpenFile
from rmqtx.readers.storage.places import naming_unreadable
from rmqtx.readers.storage.segments import SEGMENT_NAME, open_file

_WINDOW_BYTES = 8 << 20
#: No broker accepts a larger message (maxMessageSize is 4 MiB by default).
_RECORD_BYTES_MAX = 64 << 20
_OFFSET_MAX = 1 << 60
_SECTOR_BYTES = 512
_PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Run:
    """Sound records that are consecutive in a file and, by their offsets, in the log.

    Units: bytes. `source`: number of the file. `is_intact`: every body matches its CRC; a record with another body is a
    run of its own. `is_torn`: the properties of its records were not completely written; they are runs of their own.
    """

    source: int
    position_bytes: int
    offset: int
    length_bytes: int
    records_count: int
    is_intact: bool
    first_time_ms: int
    last_time_ms: int
    is_torn: bool = False

    @property
    def end_offset(self) -> int:
        """Commit-log offset past its last record."""
        return self.offset + self.length_bytes


@dataclass(slots=True)
class SalvageSource:
    """A file to search for records. Units: bytes."""

    file: str
    size_bytes: int

    def open(self) -> OpenFile:
        """Open the file for reading. Raises: UnreadableFile."""
        return open_file(self.file, self.size_bytes)


def sources_of(paths: list[Path]) -> list[SalvageSource]:
    """Return the named files and devices, and the files in named directories; for a store only its commit log.

    Order:  as given; within a directory by name.
    Raises: NotAStore for a path that does not exist or has no files; UnreadableFile.
    """
    found: dict[tuple[int, int], SalvageSource] = {}
    for path in paths:
        files = list(_files_of(path))
        if not files:
            name = as_text(path)
            raise NotAStore(f"{name} contains no files", file=name, advice="give files, or directories with files")
        for file in files:
            with naming_unreadable(as_text(file)):
                about = file.stat()
                size = _device_bytes(file) if stat.S_ISBLK(about.st_mode) else about.st_size
            found.setdefault((about.st_dev, about.st_ino), SalvageSource(os.fspath(file), size))
    return list(found.values())


def _files_of(path: Path) -> Iterator[Path]:
    with naming_unreadable(as_text(path)):
        if not path.exists():
            raise NotAStore(f"{as_text(path)} does not exist", file=as_text(path))
        if not path.is_dir():
            yield path
            return
        logs = sorted(entry for entry in path.iterdir() if entry.name.startswith("commitlog") and entry.is_dir())
        for directory in logs or [path]:
            yield from sorted(entry for entry in directory.iterdir() if entry.is_file())


def _device_bytes(path: Path) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.lseek(descriptor, 0, os.SEEK_END)
    finally:
        os.close(descriptor)


@dataclass(slots=True)
class FoundRuns:
    """One pass over a file: iterate for its runs; `coverage` and `findings` are complete when the iteration has ended.

    `borders`: commit-log offsets at which segments end by their blank records.
    Order:  position ascending.
    Damage: unreadable bytes are unread, and a finding; other bytes are filler (zeros, blank records) or damaged.
    Raises: UnreadableFile if the file cannot be opened; FileChanged.
    """

    number: int
    source: SalvageSource
    coverage: Coverage = field(init=False)
    findings: list[Finding] = field(default_factory=list)
    borders: set[int] = field(default_factory=set)
    _unread: set[tuple[int, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        file = as_text(self.source.file)
        self.coverage = Coverage(as_text(Path(self.source.file).parent), file, self.source.size_bytes)

    def __iter__(self) -> Iterator[Run]:
        with self.source.open() as file:
            position, accounted, end_offset = 0, 0, None
            while position < self.source.size_bytes:
                position = max(position, min(file.next_data(position), self.source.size_bytes))
                data = self._read(file, position, _WINDOW_BYTES)
                if not data:
                    break
                found = self._first_in(file, data, position)
                if found is None:
                    # the head of a record may straddle the window's end
                    position += max(1, len(data) - HEAD_BYTES) if position + len(data) < file.size_bytes else len(data)
                    continue
                is_log = self._continues(file, accounted, found, end_offset)
                self._account(file, accounted, found, end_offset, is_log=is_log)
                accounted, position = found, found + 1  # a record with unreadable bytes is in no run
                for run, is_filler in self._runs_from(file, found):
                    accounted = position = run.position_bytes + run.length_bytes
                    end_offset = run.end_offset
                    if is_filler:  # of an earlier salvage: another file may have the lost records
                        self.coverage.damaged_bytes += run.length_bytes
                        continue
                    self.coverage.decoded_bytes += run.length_bytes
                    yield run
            self._account(file, accounted, self.source.size_bytes, end_offset)
        unread = sum(length for _, length in self._unread)
        if unread:
            self.findings.append(
                Finding(
                    self.coverage.store, "unreadable-file", self.coverage.file, min(self._unread)[0], unread,
                    actual=f"{unread} bytes that cannot be read",
                )
            )

    def _read(self, file: OpenFile, position: int, length: int) -> bytes:
        """The bytes of a range; zeros in place of unreadable bytes."""
        try:
            return file.read(position, length)
        except UnreadableFile:
            end = min(position + length, file.size_bytes)
            page, last = position // _PAGE_BYTES, (end - 1) // _PAGE_BYTES
            if page == last:
                begin = page * _PAGE_BYTES
                self._unread.add((begin, min(_PAGE_BYTES, file.size_bytes - begin)))
                return bytes(end - position)
            middle = (page + last + 1) // 2 * _PAGE_BYTES
            return self._read(file, position, middle - position) + self._read(file, middle, end - middle)

    def _first_in(self, file: OpenFile, data: bytes, position: int) -> int | None:
        """Position of the first sound record that begins in a window."""
        found = data.find(MAGIC_START, MAGIC_AT)
        while found >= 0:
            place = found - MAGIC_AT
            if place + HEAD_BYTES <= len(data):
                length, _, offset = head_of(data, place)
                can_be = 0 <= offset < _OFFSET_MAX and RECORD_BYTES_MIN <= length <= _RECORD_BYTES_MAX
                if can_be and self._is_sound(file, position + place, offset):
                    return position + place
            found = data.find(MAGIC_START, found + 1)
        return None

    @staticmethod
    def _is_sound(file: OpenFile, position: int, offset: int) -> bool:
        try:
            return sound_length(file, position, offset - position) is not None
        except UnreadableFile:
            return False

    def _runs_from(self, file: OpenFile, position: int) -> Iterator[tuple[Run, bool]]:
        """Yield the runs of consecutive records from a sound record on, and whether they are fillers."""
        length, _, offset = head_of(self._read(file, position, HEAD_BYTES))
        base, wanted = offset - position, max(_WINDOW_BYTES, length)
        while True:
            data = self._read(file, position, wanted)
            places, stop = walk(data, base + position, 0, len(data))
            block = Block(data + bytes(SLACK_BYTES), base + position, position, self.source.file, places)
            unsound = np.flatnonzero(~block.sound() | self._are_unread(block))
            if len(unsound):
                stop = int(places[unsound[0]])
                block = block.take(np.arange(int(unsound[0])))
            yield from self._cut(block, position, stop)
            position += stop
            if len(unsound) or not stop or position + RECORD_BYTES_MIN > file.size_bytes:
                return
            head = self._read(file, position, HEAD_BYTES)
            if not self._is_sound(file, position, base + position):
                return
            wanted = max(_WINDOW_BYTES, number_at(head, "length_bytes"))

    def _are_unread(self, block: Block) -> Bools:
        """Return which records have unreadable bytes, in place of which there are zeros."""
        begins = block.positions
        found = np.zeros(len(block), np.bool_)
        for at, length in self._unread:
            found |= (begins < at + length) & (begins + block.lengths > at)
        return found

    def _cut(self, block: Block, position: int, stop: int) -> Iterator[tuple[Run, bool]]:
        """Yield the records of a window as runs; those with a wrong body or torn properties, and fillers, are alone."""
        if not len(block):
            return
        good = block.body_crc_matches()
        fillers = block.are_fillers() if FILLER_MARK in block.raw else np.zeros(len(block), np.bool_)
        torn = have_torn_properties(block) & ~fillers
        alone = np.flatnonzero(~good | fillers | torn)
        cuts = np.unique(np.concatenate([alone, alone + 1]))
        cuts = cuts[(cuts > 0) & (cuts < len(block))]
        edges = [0, *cuts.tolist(), len(block)]
        times = plausible_times(block)
        for begin, end in pairwise(edges):
            first = int(block.starts[begin])
            last = int(block.starts[end]) if end < len(block) else stop
            run = Run(
                self.number, position + first, int(block.commit_log_offsets[begin]), last - first, end - begin,
                bool(good[begin]), int(times[begin]), int(times[end - 1]), bool(torn[begin]),
            )
            yield run, bool(fillers[begin])

    def _unread_between(self, begin: int, end: int) -> int:
        return sum(max(0, min(at + length, end) - max(at, begin)) for at, length in self._unread)

    def _continues(self, file: OpenFile, begin: int, found: int, end_offset: int | None) -> bool:
        """Return whether a record is as far behind the one before it, or behind the segment's begin, as in the log."""
        _, _, offset = head_of(self._read(file, found, HEAD_BYTES))
        if end_offset is None:
            name = Path(self.source.file).name
            end_offset = int(name) if SEGMENT_NAME.fullmatch(name) and not begin else None
        return end_offset is not None and offset - end_offset == found - begin

    def _account(self, file: OpenFile, begin: int, end: int, offset: int | None, *, is_log: bool = False) -> None:
        """Count the bytes between runs: zeros and blank records are filler, other bytes are damaged.

        `offset`: end in the log of the record before them. `is_log`: these bytes were records, because the log goes on
        behind them at the right distance; then zeros are damaged too, except behind a blank record.
        """
        coverage, first = self.coverage, begin
        while begin < end:
            data_begin = min(end, max(begin, file.next_data(begin)))
            data = self._read(file, data_begin, min(_WINDOW_BYTES, end - data_begin))
            if data_begin == first and data[span_of("magic")] == BLANK_MAGIC:
                is_log = False  # the rest of a segment
            if is_log:
                coverage.damaged_bytes += data_begin - begin
            else:
                coverage.filler_bytes += data_begin - begin
            if data[span_of("magic")] == BLANK_MAGIC:
                if offset is not None and data_begin == first:
                    self.borders.add(offset + number_at(data, "length_bytes"))
                coverage.filler_bytes += BLANK.size_bytes
                data, data_begin = data[BLANK.size_bytes :], data_begin + BLANK.size_bytes
            unread = self._unread_between(data_begin, data_begin + len(data))
            edges = range(-(data_begin % _SECTOR_BYTES), len(data), _SECTOR_BYTES)
            sectors = (data[max(0, at) : at + _SECTOR_BYTES] for at in edges)
            zeros = 0 if is_log else sum(len(sector) for sector in sectors if sector.count(0) == len(sector))
            coverage.filler_bytes += zeros - min(unread, zeros)
            coverage.damaged_bytes += len(data) - zeros - max(0, unread - zeros)
            begin = data_begin + len(data)
