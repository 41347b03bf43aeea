"""Every entry of index files, as rows, and contradictions with the header.

The index also has the keys of records that cannot be read: hashes for each place in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from rmqtx.readers.index.index import (
    BAD_HEADER,
    BLOCK_ENTRIES,
    ENTRY,
    HEADER,
    INDEX_SLOT,
    Entries,
    IndexFile,
    data_blocks,
    entries_at,
    open_index_file,
)
from rmqtx.readers.index.index_search import Index, open_index
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.errors import FileChanged, SourceError, UnreadableFile
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.moments import BROKER_TIME_MAX_MS
from rmqtx.readers.model.reading import Coverage, Reading
from rmqtx.readers.model.tables import INDEX_ENTRIES
from rmqtx.readers.storage.open_file import OpenFile
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.store import Store

_ENTRIES_MAX = 1 << 18
_HASHES_MAX = 1 << 12


def scan_entries(
    store: Store, slots_count: int | None = None, files: tuple[Segment, ...] | None = None
) -> Reading:
    """Return every entry of the index files, or of some of them.

    Shape:  rows of INDEX_ENTRIES, at most 65,536 a batch.
    Order:  file, entry number.
    Damage: index-damaged for contradictions with the header; impossible entries are left out; unreadable-file.
    Source: store/index/IndexFile.java; docs/formats/index.md#file.
    """
    reading = Reading(INDEX_ENTRIES, ())
    given = [] if slots_count is None else [slots_count]
    reading.batches = _scan(store, reading, given, store.index_files if files is None else files)
    return reading


def _scan(
    store: Store, reading: Reading, given: list[int], files: tuple[Segment, ...]
) -> Iterator[pa.RecordBatch]:
    for segment in files:
        coverage = Coverage(store.root, segment.file, segment.size_bytes)
        reading.coverage.append(coverage)
        try:
            index = open_index_file(segment, given)
            yield from _FileScan(store, reading, coverage, index).batches()
            if index.slots_count is not None:
                given = [index.slots_count]
        except (UnreadableFile, FileChanged) as error:
            reading.findings.append(Finding(store.root, "unreadable-file", segment.file, actual=error.message))


@dataclass(slots=True)
class _FileScan:
    store: Store
    reading: Reading
    coverage: Coverage
    index: IndexFile

    def batches(self) -> Iterator[pa.RecordBatch]:
        segment, index, coverage = self.index.segment, self.index, self.coverage
        wrong = index.why_incomplete()
        if wrong is not None:
            self._report(0, segment.size_bytes, wrong)
        if segment.size_bytes < HEADER.size_bytes:
            coverage.damaged_bytes = segment.size_bytes
            return
        with segment.open() as file:
            if wrong == BAD_HEADER:
                coverage.damaged_bytes += HEADER.size_bytes
            else:
                coverage.decoded_bytes += HEADER.size_bytes
            position = HEADER.size_bytes
            if index.slots_count is not None:
                whole = (segment.size_bytes - position) // INDEX_SLOT.size_bytes * INDEX_SLOT.size_bytes
                end = min(index.entry_position(0), position + whole)
                self._slots(file, position, end)
                position = end
                if index.entry_position(1) <= segment.size_bytes:
                    yield from self._entries(file)
                    position = index.entry_position(index.entries_count + 1)
            self._tail(file, position)

    def _report(self, position: int, length: int, actual: str) -> None:
        self.reading.findings.append(
            Finding(self.store.root, "index-damaged", self.index.segment.file, position, length, actual=actual)
        )

    def _slots(self, file: OpenFile, begin: int, end: int) -> None:
        count = self.index.entries_count
        damaged = decoded = 0
        for position, data in data_blocks(file, begin, end, 0):
            numbers = np.frombuffer(data, ">i4", len(data) // 4)
            wrong = (numbers < 0) | (numbers > count)
            if wrong.any() and not (self.store.in_use and (numbers > count).sum() == wrong.sum()):
                places = np.flatnonzero(wrong) * 4 + position
                damaged += len(places)
                self._report(
                    int(places[0]), int(places[-1] - places[0]) + 4,
                    f"{len(places)} slots with numbers not in 0 to {count}",
                )
            decoded += int(((numbers > 0) & ~wrong).sum())
        self.coverage.decoded_bytes += decoded * 4
        self.coverage.damaged_bytes += damaged * 4
        self.coverage.filler_bytes += end - begin - (decoded + damaged) * 4

    def _entries(self, file: OpenFile) -> Iterator[pa.RecordBatch]:
        index = self.index
        position = index.entry_position(0)
        # number 0 stands for no entry, and its place is never written
        unused = file.read(position, ENTRY.size_bytes)
        if unused.strip(b"\0"):
            self.coverage.damaged_bytes += len(unused)
            self._report(position, len(unused), "bytes that are not zero in the unused place of entry 0")
        else:
            self.coverage.filler_bytes += len(unused)
        for first in range(1, index.entries_count + 1, BLOCK_ENTRIES):
            count = min(BLOCK_ENTRIES, index.entries_count + 1 - first)
            position = index.entry_position(first)
            entries = index.entries_of(file.read(position, count * ENTRY.size_bytes))
            good = index.is_plausible(entries, first)
            rows = np.flatnonzero(good)
            self.coverage.decoded_bytes += len(rows) * ENTRY.size_bytes
            if len(rows) < count:
                wrong = np.flatnonzero(~good) * ENTRY.size_bytes
                self.coverage.damaged_bytes += len(wrong) * ENTRY.size_bytes
                length = int(wrong[-1] - wrong[0]) + ENTRY.size_bytes
                self._report(position + int(wrong[0]), length, f"{len(wrong)} impossible entries")
            if len(rows):
                yield self._rows(entries[rows], rows + first)

    def _rows(self, entries: Entries, numbers: Int64s) -> pa.RecordBatch:
        count = len(entries)
        begin_ms = self.index.header["begin_time_ms"]
        times: Any = pa.nulls(count, pa.int64())
        if 0 < begin_ms <= BROKER_TIME_MAX_MS:
            times = pa.array(begin_ms + entries["seconds_since_begin"].astype(np.int64) * 1000)
        columns = [
            pa.repeat(pa.scalar(self.store.root), count),
            pa.repeat(pa.scalar(self.index.segment.file), count),
            pa.array(self.index.entry_position(0) + numbers * ENTRY.size_bytes),
            pa.repeat(pa.scalar(ENTRY.size_bytes, pa.int32()), count),
            pa.array(numbers.astype(np.int32)),
            pa.array(entries["key_hash"].astype(np.int32)),
            pa.array(entries["commit_log_offset"].astype(np.int64)),
            times,
            pa.array(entries["previous_entry_number"].astype(np.int32)),
        ]
        return pa.record_batch(columns, schema=INDEX_ENTRIES)

    def _tail(self, file: OpenFile, begin: int) -> None:
        """Account for bytes after the last entry: zeros, or new entries if the store is in use."""
        size = self.index.segment.size_bytes
        used = begin
        for position, data in data_blocks(file, begin, size, 0):
            strange = len(data.rstrip(b"\0"))
            if strange:
                used = position + strange
        self.coverage.filler_bytes += size - used
        if used > begin and not self.store.in_use:
            self.coverage.damaged_bytes += used - begin
            if self.index.why_incomplete() is None:
                self._report(begin, used - begin, "bytes after the last entry")


@dataclass(slots=True)
class HiddenKeys:
    """The hashes of `topic#key` in the index, by commit-log offset."""

    by_offset: dict[int, set[int]] = field(default_factory=dict)

    def of_all(self, offsets: Iterable[int]) -> tuple[int, ...] | None:
        """Return all hashes of some records; None if the index lacks one of the records, or if there are too many.

        A record without an entry may have any key: it may have been written while the index was disabled.
        """
        found: set[int] = set()
        for offset in offsets:
            hashes = self.by_offset.get(offset)
            if not hashes:
                return None
            found |= hashes
        return tuple(sorted(found)) if len(found) <= _HASHES_MAX else None


class IndexKeys:
    """The index of a store, opened at the first call."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @cached_property
    def _index(self) -> Index:
        return open_index(self._store)

    def between(self, begin: int, end: int) -> HiddenKeys:
        """Return the index's hashes for a range of the log; none if a file for the range is damaged.

        Units: commit-log offsets in bytes.
        """
        result = HiddenKeys()
        if self._index.findings:
            return result
        for one in self._index.files:
            if one.end_offset < begin or one.begin_offset >= end:
                continue
            try:
                with one.segment.open() as file:
                    if not _add(result, one, file, begin, end):
                        return HiddenKeys()
            except SourceError:
                return HiddenKeys()
        return result


def _add(result: HiddenKeys, index: IndexFile, file: OpenFile, begin: int, end: int) -> bool:
    """Add the entries of a file that point into a range; return whether the entries are consistent."""
    first, last = index.number_at(file, begin), index.number_at(file, end)
    if last - first > _ENTRIES_MAX:
        return False
    # One more entry on each side shows that entries are in log order here, which the search requires.
    before = -1
    number = max(first - 1, 1)
    while number < min(last + 1, index.entries_count + 1):
        numbers = np.arange(number, min(number + BLOCK_ENTRIES, last + 1, index.entries_count + 1))
        entries = entries_at(file, index, numbers)
        offsets: Int64s = entries["commit_log_offset"].astype(np.int64)
        is_ordered = bool((np.diff(offsets, prepend=before) >= 0).all())
        if not is_ordered or not index.is_plausible(entries, numbers).all():
            return False
        before = int(offsets[-1])
        inside = (offsets >= begin) & (offsets < end)
        for offset, key_hash in zip(offsets[inside].tolist(), entries["key_hash"][inside].tolist(), strict=True):
            result.by_offset.setdefault(offset, set()).add(key_hash)
        number = int(numbers[-1]) + 1
    return True
