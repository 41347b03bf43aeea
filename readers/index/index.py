"""Index files: hash tables from `topic#key` to places in the commit log, with which the broker finds a key.

A file has a header, a table of slots, and entries in the order in which they were added. A slot has the number of its
newest entry, an entry the number of the entry before it in the same slot. The length of the slot table is not in the
file (`maxHashSlotNum` is configuration), so it is derived from the data.

An entry has only the hash of its key: a hit is a candidate until its record has been read. The index is derived from
the log and can be deleted. This module reads the files; `index_search` finds keys, `index_scan` reads files whole.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import numpy.typing as npt

from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.model.layout import Field, Layout
from rmqtx.readers.model.releases import newest_default
from rmqtx.readers.storage.open_file import Limits, OpenFile, portions
from rmqtx.readers.storage.segments import Segment

Entries = npt.NDArray[np.void]

HEADER = Layout(
    "index_header",
    "Header of an index file",
    (
        Field("begin_time_ms", "q", "store time of the first record in the file", "ms"),
        Field("end_time_ms", "q", "store time of the last record in the file", "ms"),
        Field("begin_offset", "q", "commit-log offset of the first record in the file", "byte"),
        Field("end_offset", "q", "commit-log offset of the last record in the file", "byte"),
        Field("used_slots_count", "i", "slots that have an entry"),
        Field("next_entry_number", "i", "number that the next entry will get; the first is 1"),
    ),
    40,
    "store/index/IndexHeader.java, docs/formats/index.md#file",
)
INDEX_SLOT = Layout(
    "index_slot",
    "Slot of an index file",
    (Field("newest_entry_number", "i", "newest entry of the keys whose hash belongs here; 0: none"),),
    4,
    "store/index/IndexFile.java putKey, docs/formats/index.md#file",
)
ENTRY = Layout(
    "index_entry",
    "Entry of an index file",
    (
        Field("key_hash", "i", "absolute Java hash of topic#key; 3.1.4 keeps its sign"),
        Field("commit_log_offset", "q", "commit-log offset of the record", "byte"),
        Field("seconds_since_begin", "i", "store time after the header's begin_time_ms", "s"),
        Field("previous_entry_number", "i", "older entry of the same slot; 0 ends the chain"),
    ),
    20,
    "store/index/IndexFile.java putKey, docs/formats/index.md#file",
)

SLOTS_COUNT_DEFAULT = newest_default("maxHashSlotNum")
ENTRIES_PER_SLOT_DEFAULT = newest_default("maxIndexNum") // SLOTS_COUNT_DEFAULT

BLOCK_ENTRIES = 65_536
_BLOCK_BYTES = 4 << 20
_SAMPLES, _REMOTE_SAMPLES = 32, 8
#: Of more slots than this in object storage, those up to a distance are read together: the table is 20 MB by default.
_MANY_SLOTS, _SLOTS_NEAR_BYTES = 64, 1 << 20
BAD_HEADER = "an impossible header"
_GUESSES_MAX = 4096

#: Entries that are read together at the end of a binary search: a read costs more than these bytes.
_SEARCHED_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class IndexFile:
    """One index file whose slot table's length is known, or None.

    Shape: entries have the numbers 1 to `entries_count`, which is 0 for an empty file.
    """

    segment: Segment
    header: dict[str, int] = field(hash=False)
    slots_count: int | None
    has_signed_hashes: bool = False

    @property
    def entries_count(self) -> int:
        """Number of entries by the header, or by the file's length if that is less."""
        counted = max(0, self.header["next_entry_number"] - 1)
        if self.slots_count is None:
            return counted
        room = (self.segment.size_bytes - self.entry_position(0)) // ENTRY.size_bytes - 1
        return max(0, min(counted, room))

    @property
    def begin_offset(self) -> int:
        """Commit-log offset of the first record in it."""
        return self.header["begin_offset"]

    @property
    def end_offset(self) -> int:
        """Commit-log offset of the last record in it."""
        return self.header["end_offset"]

    def entries_from(self, offset: int) -> int:
        """Return about how many entries have records from a commit-log offset on: entries are in the log's order."""
        span = max(1, self.end_offset - self.begin_offset)
        share = (self.end_offset - offset) / span
        return math.ceil(self.entries_count * min(1.0, max(0.0, share)))

    def entry_position(self, number: int) -> int:
        """Return the position of an entry. Units: bytes."""
        assert self.slots_count is not None
        return HEADER.size_bytes + INDEX_SLOT.size_bytes * self.slots_count + ENTRY.size_bytes * number

    def number_at(self, file: OpenFile, offset: int) -> int:
        """Return the number of the first entry at or after a place of the log; entries are in the log's order."""
        low, high = 1, self.entries_count + 1
        if low == high:
            return low
        while high - low > _SEARCHED_AT_ONCE:
            middle = (low + high) // 2
            entry = self.entries_of(file.read(self.entry_position(middle), ENTRY.size_bytes))
            if int(entry["commit_log_offset"][0]) < offset:
                low = middle + 1
            else:
                high = middle
        length = (high - low) * ENTRY.size_bytes
        places = self.entries_of(file.read(self.entry_position(low), length))["commit_log_offset"]
        # not searchsorted: in a damaged index, whose places are not in order, the answer would depend on the block
        return low + bisect_left(places.tolist(), offset)

    def entries_of(self, data: bytes) -> Entries:
        """Return bytes as an array of entries; hashes are absolute, as all versions after 3.1 write them."""
        found = np.frombuffer(data, ENTRY.dtype, len(data) // ENTRY.size_bytes)
        if self.has_signed_hashes:
            found = found.copy()
            found["key_hash"] = np.abs(found["key_hash"].astype(np.int32))
        return found

    def refreshed(self, file: OpenFile) -> IndexFile:
        """Return the file with its current header, if entries were added."""
        header = HEADER.unpack(file.read(0, HEADER.size_bytes))
        went_on = all(header[name] >= self.header[name] for name in ("next_entry_number", "end_offset"))
        return replace(self, header=header) if went_on else self

    def why_incomplete(self) -> str | None:
        """The reason why the file cannot be searched completely, or None."""
        counted = self.header["next_entry_number"] - 1
        if counted < 0 or not 0 <= self.begin_offset <= self.end_offset:
            return BAD_HEADER
        if counted and self.slots_count is None:
            return "a slot table of unknown length"
        if counted > self.entries_count:
            return f"room for {self.entries_count} entries of {counted}"
        return None

    def is_plausible(self, entries: Entries | Mapping[str, Int64s], first_number: int | Int64s) -> Bools:
        """Return which entries are possible; `first_number` is the number of the first entry, or the numbers of all."""
        hashes = entries["key_hash"]
        numbers = first_number + np.arange(len(hashes)) if isinstance(first_number, int) else first_number
        offsets, previous = entries["commit_log_offset"], entries["previous_entry_number"]
        good: Bools = (hashes >= 0) & (entries["seconds_since_begin"] >= 0)
        good &= (offsets >= self.begin_offset) & (offsets <= self.end_offset)
        good &= (previous >= 0) & (previous < numbers)
        return good

    def is_chained(self, entries: Entries | Mapping[str, Int64s], first_number: int) -> bool:
        """Whether each entry has the same slot as the entry before it in its chain, if both are given."""
        hashes = entries["key_hash"].astype(np.int64)
        previous = entries["previous_entry_number"].astype(np.int64) - first_number
        inside = np.flatnonzero((previous >= 0) & (previous < len(hashes)))
        return bool(self.are_of_one_slot(hashes[inside], hashes[previous[inside]]).all())

    def are_of_one_slot(self, hashes: Int64s, others: Int64s) -> Bools:
        """Return which hashes have the same slot, as all entries of a chain must."""
        assert self.slots_count is not None
        same: Bools = (hashes - others) % self.slots_count == 0
        return same


def open_index_file(segment: Segment, slots_counts: Iterable[int] = ()) -> IndexFile:
    """Return an index file with its header and the length of its slot table: one of `slots_counts`, or from the data.

    Raises: UnreadableFile, FileChanged.
    """
    with segment.open() as file:
        if segment.size_bytes < HEADER.size_bytes:
            return IndexFile(segment, dict.fromkeys(HEADER.offsets, -1), None)
        header = HEADER.unpack(file.read(0, HEADER.size_bytes))
        if header["next_entry_number"] == 0:  # a new file without a header yet
            header["next_entry_number"] = 1
        return _Inference(segment, file, header).index_file(slots_counts)


def infer_slots_count(segment: Segment) -> int | None:
    """Return the number of slots of an index file; None if the file is empty or its data fits no number.

    Raises: UnreadableFile, FileChanged.
    """
    return open_index_file(segment).slots_count


@dataclass(slots=True)
class _Inference:
    segment: Segment
    file: OpenFile
    header: dict[str, int]

    def index_file(self, given: Iterable[int]) -> IndexFile:
        size = self.segment.size_bytes - HEADER.size_bytes
        shared = INDEX_SLOT.size_bytes + ENTRIES_PER_SLOT_DEFAULT * ENTRY.size_bytes
        likely = [*given, SLOTS_COUNT_DEFAULT, *([] if size % shared else [size // shared])]
        if self.header["next_entry_number"] > 1 and self.header["end_offset"] >= self.header["begin_offset"] >= 0:
            for slots_count in chain(likely, self._guesses()):
                agreeing = [] if slots_count <= 0 else self._agreeing(slots_count)
                if agreeing:
                    return max(agreeing, key=lambda one: one[0])[1]
        return IndexFile(self.segment, self.header, None)

    def _agreeing(self, slots_count: int) -> list[tuple[int, IndexFile]]:
        """Return the file with a number of slots, for absolute and for signed hashes, if most entries fit.

        Shape: (entries that fit, the file).
        """
        found = []
        for has_signed_hashes in (False, True):
            candidate = IndexFile(self.segment, self.header, slots_count, has_signed_hashes)
            good, examined = self._fitting(candidate)
            if examined and good * 4 >= examined * 3:
                found.append((good, candidate))
        return found

    def _fitting(self, candidate: IndexFile) -> tuple[int, int]:
        """Return how many of the first and last entries are possible and in their slots' chains, and of how many."""
        count = candidate.entries_count
        if not count:
            return 0, 0
        assert candidate.slots_count is not None
        samples = _REMOTE_SAMPLES if self.file.is_remote else _SAMPLES  # each is a request, for its slot
        numbers = np.unique(np.r_[1 : min(count, samples) + 1, max(1, count - samples + 1) : count + 1])
        entries = entries_at(self.file, candidate, numbers)
        good = candidate.is_plausible(entries, numbers)
        heads = heads_of(self.file, candidate, np.where(good, entries["key_hash"], 0).astype(np.int64))
        good &= (heads >= numbers) & (heads <= self.header["next_entry_number"])
        return int(good.sum()), len(numbers)

    def _guesses(self) -> Iterator[int]:
        """Yield numbers of slots for each possible place of the last entry, which names the header's last record.

        The record is at offset 0 only in a file with one record; then any word that is not zero may begin the entry.
        """
        end = self.header["end_offset"]
        before_last = HEADER.size_bytes + ENTRY.size_bytes * (self.header["next_entry_number"] - 1)
        places = self._occurrences(end.to_bytes(8, "big"), ENTRY.offsets["commit_log_offset"]) if end else self._words()
        for number, place in enumerate(places):
            if number == _GUESSES_MAX:
                return
            slots_bytes = place - before_last
            rest = self.segment.size_bytes - HEADER.size_bytes - slots_bytes
            if slots_bytes > 0 and slots_bytes % INDEX_SLOT.size_bytes == 0 and rest % ENTRY.size_bytes == 0:
                yield slots_bytes // INDEX_SLOT.size_bytes

    def _occurrences(self, pattern: bytes, inside: int) -> Iterator[int]:
        overlap = len(pattern) - 1
        for position, data in data_blocks(self.file, HEADER.size_bytes, self.segment.size_bytes, overlap):
            place = data.find(pattern)
            while place >= 0:
                yield position + place - inside
                place = data.find(pattern, place + 1)

    def _words(self) -> Iterator[int]:
        for position, data in data_blocks(self.file, HEADER.size_bytes, self.segment.size_bytes, 0):
            words = np.frombuffer(data, "<u4", len(data) // 4)
            yield from (np.flatnonzero(words) * 4 + position).tolist()


def data_blocks(file: OpenFile, position: int, end: int, overlap: int) -> Iterator[tuple[int, bytes]]:
    """Yield the bytes of a range with their position, without holes; each block overlaps the next one.

    Raises: UnreadableFile, FileChanged.
    """
    while position < end:
        # back to the begin of a word, as all blocks; not before the begin of this block
        data_position = max(position, file.next_data(position) // 8 * 8)
        if data_position >= end:
            return
        yield data_position, file.read(data_position, min(_BLOCK_BYTES + overlap, end - data_position))
        position = data_position + _BLOCK_BYTES


def _gather(
    file: OpenFile, positions: Int64s, width: int, limits: Limits | None = None
) -> npt.NDArray[np.uint8]:
    """Return the `width` bytes at each position, one row each; close positions are read together.

    `limits`: what is close, if not as for all places in the file.
    """
    order = np.argsort(positions)
    begins = positions[order]
    rows = np.empty((len(begins), width), np.uint8)
    data = np.empty(0, np.uint8)
    for portion in portions(begins, begins + width, limits or file.limits):
        runs = list(zip(portion.begins.tolist(), portion.ends.tolist(), strict=True))
        size = int((portion.ends - portion.begins).sum())
        data = data if len(data) >= size else np.empty(size, np.uint8)
        file.read_runs(runs, memoryview(data))  # type: ignore[arg-type]
        windows = np.ndarray((len(data) - width + 1, width), np.uint8, data, 0, (1, 1))
        rows[order[portion.first : portion.last]] = windows[portion.starts]
    return rows


def entries_at(file: OpenFile, index: IndexFile, numbers: Int64s) -> Entries:
    """Return the entries with given numbers. Raises: UnreadableFile, FileChanged."""
    positions = index.entry_position(0) + numbers.astype(np.int64) * ENTRY.size_bytes
    return index.entries_of(_gather(file, positions, ENTRY.size_bytes).tobytes())


def columns_of(entries: Entries) -> dict[str, Int64s]:
    """Return the fields of entries in this machine's byte order."""
    return {name: entries[name].astype(np.int64) for name in ENTRY.offsets}


def heads_of(file: OpenFile, index: IndexFile, hashes: Int64s) -> Int64s:
    """Return the entry numbers in the slots of hashes. Raises: UnreadableFile, FileChanged."""
    assert index.slots_count is not None
    positions = HEADER.size_bytes + hashes % index.slots_count * INDEX_SLOT.size_bytes
    are_many = file.is_remote and len(hashes) > _MANY_SLOTS
    limits = replace(file.limits, near_bytes=_SLOTS_NEAR_BYTES) if are_many else None
    return _gather(file, positions, INDEX_SLOT.size_bytes, limits).reshape(-1).view(">i4").astype(np.int64)
