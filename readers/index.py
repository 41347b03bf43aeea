"""Index files: hash table from `topic#key` to places in the commit log, the broker's own way to find a key.

Each file is a header, a table of slots, and entries in the order they were added; a slot holds the number of its
newest entry, each entry the number of the one before it in its slot. Nothing in a file says how long its slot table is
(`maxHashSlotNum` is configuration), so that is found out from the data.

An entry holds only the hash of its key: what is found is a candidate until its record has been looked at. The index
is derived and disposable; a broker that crashed throws its last file away and rebuilds only the end of it, so what the
files do not cover has to be asked for (`Index.uncovered`) and scanned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from readers.errors import FileChanged, UnreadableFile
from readers.findings import Finding
from readers.layout import Field, Layout
from readers.reading import Coverage, Reading
from readers.sources import OpenFile, Segment
from readers.store import Store
from readers.tables import INDEX_ENTRIES

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]
Entries = npt.NDArray[np.void]

HEADER = Layout(
    "index_header",
    "Header of an index file",
    (
        Field("begin_time_ms", "q", "store time of the first record in it", "ms"),
        Field("end_time_ms", "q", "store time of the last record in it", "ms"),
        Field("begin_offset", "q", "commit-log offset of the first record in it", "byte"),
        Field("end_offset", "q", "commit-log offset of the last record in it", "byte"),
        Field("used_slots_count", "i", "slots that have an entry"),
        Field("next_entry_number", "i", "number that the next entry will get; the first is 1"),
    ),
    40,
    "store/index/IndexHeader.java, FORMATS 4.1",
)
INDEX_SLOT = Layout(
    "index_slot",
    "Slot of an index file",
    (Field("newest_entry_number", "i", "newest entry of the keys whose hash belongs here; 0: none"),),
    4,
    "store/index/IndexFile.java putKey, FORMATS 4.1",
)
ENTRY = Layout(
    "index_entry",
    "Entry of an index file",
    (
        Field("key_hash", "i", "absolute Java hash of topic#key"),
        Field("commit_log_offset", "q", "global position of the record", "byte"),
        Field("seconds_since_begin", "i", "store time after the header's begin_time_ms", "s"),
        Field("previous_entry_number", "i", "older entry of the same slot; 0 ends the chain"),
    ),
    20,
    "store/index/IndexFile.java putKey, FORMATS 4.1",
)

SLOTS_COUNT_DEFAULT = 5_000_000
ENTRIES_PER_SLOT_DEFAULT = 4

BLOCK_ENTRIES = 65_536
_BLOCK_BYTES = 4 << 20
#: Positions closer than this are read together: one read of it costs less than two.
_NEAR_BYTES = 16 << 10
_PREPARED_POSITIONS = 256
#: A chain longer than this belongs to a key of many records; reading the entries in a row is cheaper then.
_CHAIN_MAX = 64
_SAMPLES = 32
_BAD_HEADER = "a header that cannot be"
_GUESSES_MAX = 4096
_TIME_MS_MAX = 7_258_118_400_000


# --- hashes ----------------------------------------------------------------------------------------------------------


def java_hash(text: str | bytes) -> int:
    """Java's String.hashCode: over UTF-16 units, wrapped to 32 bits, signed. Bytes are UTF-8."""
    units = np.frombuffer(_utf16(text), ">u2").astype(np.uint64)
    value = 0
    for unit in units.tolist():
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def key_hashes(keys: Sequence[bytes]) -> Int32s:
    """The hashes that the index holds for keys of the form `topic#key`.

    Shape:  one value per key, never negative.
    Source: store/index/IndexFile.java indexKeyHashMethod; FORMATS 4.2.
    """
    joined = b"".join(keys)
    if joined.isascii():
        units = np.frombuffer(joined, np.uint8).astype(np.uint32)
        lengths = np.fromiter((len(key) for key in keys), np.int64, len(keys))
    else:
        encoded = [_utf16(key) for key in keys]
        units = np.frombuffer(b"".join(encoded), ">u2").astype(np.uint32)
        lengths = np.fromiter((len(key) // 2 for key in encoded), np.int64, len(keys))
    order = np.argsort(-lengths, kind="stable")  # the longest first: at each step the keys that go on are in front
    starts = (np.cumsum(lengths) - lengths)[order]
    lengths = lengths[order]
    values = np.zeros(len(keys), np.uint32)
    active = len(keys)
    for place in range(int(lengths[0]) if len(keys) else 0):
        while active and lengths[active - 1] <= place:
            active -= 1
        values[:active] = values[:active] * np.uint32(31) + units[starts[:active] + place]
    hashes = np.empty(len(keys), np.int32)
    hashes[order] = values.view(np.int32)
    smallest = hashes == np.iinfo(np.int32).min  # has no absolute value; the broker takes 0
    return np.where(smallest, np.int32(0), np.abs(hashes))


def _utf16(text: str | bytes) -> bytes:
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")  # as Java does
    return text.encode("utf-16-be", "surrogatepass")


# --- one file --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IndexFile:
    """One index file whose slot table's length is known, or None.

    Shape: entries are numbered from 1 to `entries_count`; 0 for an empty file.
    """

    segment: Segment
    header: dict[str, int]
    slots_count: int | None

    @property
    def entries_count(self) -> int:
        """Entries that the header vouches for, as far as the file is long enough."""
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

    def entry_position(self, number: int) -> int:
        """Where an entry stands. Units: bytes."""
        assert self.slots_count is not None
        return HEADER.size_bytes + INDEX_SLOT.size_bytes * self.slots_count + ENTRY.size_bytes * number

    def refreshed(self, file: OpenFile) -> IndexFile:
        """The same with the header as it is now, if it went on."""
        header = HEADER.unpack(file.read(0, HEADER.size_bytes))
        went_on = all(header[name] >= self.header[name] for name in ("next_entry_number", "end_offset"))
        return replace(self, header=header) if went_on else self

    def wrong(self) -> str | None:
        """Why it cannot be searched completely, if so."""
        counted = self.header["next_entry_number"] - 1
        if counted < 0 or not 0 <= self.begin_offset <= self.end_offset:
            return _BAD_HEADER
        if counted and self.slots_count is None:
            return "a slot table whose length cannot be told"
        if counted > self.entries_count:
            return f"room for {self.entries_count} entries of {counted}"
        return None

    def is_plausible(self, entries: Entries, first_number: int | Int64s) -> Bools:
        """Which entries can be; `first_number` is the first one's number, or the numbers of all."""
        numbers = first_number + np.arange(len(entries)) if isinstance(first_number, int) else first_number
        offsets, previous = entries["commit_log_offset"], entries["previous_entry_number"]
        good: Bools = (entries["key_hash"] >= 0) & (entries["seconds_since_begin"] >= 0)
        good &= (offsets >= self.begin_offset) & (offsets <= self.end_offset)
        good &= (previous >= 0) & (previous < numbers)
        return good

    def is_chained(self, entries: Entries, first_number: int) -> bool:
        """Whether each entry is of the same slot as the one before it, where both are among these."""
        hashes = entries["key_hash"].astype(np.int64)
        previous = entries["previous_entry_number"].astype(np.int64) - first_number
        inside = np.flatnonzero((previous >= 0) & (previous < len(entries)))
        return bool(self.are_of_one_slot(hashes[inside], hashes[previous[inside]]).all())

    def are_of_one_slot(self, hashes: Int64s, others: Int64s) -> Bools:
        """Which hashes have the same slot; all entries of a chain must."""
        assert self.slots_count is not None
        same: Bools = (hashes - others) % self.slots_count == 0
        return same


def open_index_file(segment: Segment, slots_counts: Iterable[int] = ()) -> IndexFile:
    """The header of an index file, and the length of its slot table: one of `slots_counts`, or what the data says.

    Raises: UnreadableFile, FileChanged.
    """
    if segment.size_bytes < HEADER.size_bytes:
        return IndexFile(segment, dict.fromkeys(HEADER.offsets, -1), None)
    with segment.open() as file:
        header = HEADER.unpack(file.read(0, HEADER.size_bytes))
        if header["next_entry_number"] == 0:  # a new file, before its header was written
            header["next_entry_number"] = 1
        return _Inference(segment, file, header).index_file(slots_counts)


def infer_slots_count(segment: Segment) -> int | None:
    """How many slots an index file has; None where it is empty or its data agrees with no number.

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
                candidate = IndexFile(self.segment, self.header, slots_count)
                if slots_count > 0 and self._agrees(candidate):
                    return candidate
        return IndexFile(self.segment, self.header, None)

    def _agrees(self, candidate: IndexFile) -> bool:
        """Whether most of the first and last entries are what they should be and their slots know of them."""
        count = candidate.entries_count
        if not count:
            return False
        assert candidate.slots_count is not None
        numbers = np.unique(np.r_[1 : min(count, _SAMPLES) + 1, max(1, count - _SAMPLES + 1) : count + 1])
        entries = _entries_at(self.file, candidate, numbers)
        good = candidate.is_plausible(entries, numbers)
        heads = _heads_of(self.file, candidate, np.where(good, entries["key_hash"], 0).astype(np.int64))
        good &= (heads >= numbers) & (heads <= self.header["next_entry_number"])
        return int(good.sum()) * 4 >= len(numbers) * 3

    def _guesses(self) -> Iterator[int]:
        """Lengths that follow from where the last entry may stand: it names the header's last record.

        That record is at 0 only in a file with a single record; then any word that is not zero may begin the entry.
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
        for position, data in _data_blocks(self.file, HEADER.size_bytes, self.segment.size_bytes, overlap):
            place = data.find(pattern)
            while place >= 0:
                yield position + place - inside
                place = data.find(pattern, place + 1)

    def _words(self) -> Iterator[int]:
        for position, data in _data_blocks(self.file, HEADER.size_bytes, self.segment.size_bytes, 0):
            words = np.frombuffer(data, "<u4", len(data) // 4)
            yield from (np.flatnonzero(words) * 4 + position).tolist()


def _data_blocks(file: OpenFile, position: int, end: int, overlap: int) -> Iterator[tuple[int, bytes]]:
    """The range's bytes with their position, holes left out; each block also has the next one's first bytes."""
    while position < end:
        # back to a word's begin, where blocks begin; never before where this one would have begun
        data_position = max(position, file.next_data(position) // 8 * 8)
        if data_position >= end:
            return
        yield data_position, file.read(data_position, min(_BLOCK_BYTES + overlap, end - data_position))
        position = data_position + _BLOCK_BYTES


def _gather(file: OpenFile, positions: Int64s, width: int) -> npt.NDArray[np.uint8]:
    """The `width` bytes at each position, one row each, reading near positions together."""
    unique, places = np.unique(positions, return_inverse=True)
    rows = np.empty((len(unique), width), np.uint8)
    begin = 0
    is_cut = np.diff(unique) > _NEAR_BYTES
    if file.is_remote:
        is_cut |= np.arange(1, len(unique)) % _PREPARED_POSITIONS == 0
    cuts = np.flatnonzero(is_cut) + 1
    for cut in [*cuts.tolist(), len(unique)]:
        if file.is_remote and begin % _PREPARED_POSITIONS == 0:
            file.prepare((position, width) for position in unique[begin : begin + _PREPARED_POSITIONS].tolist())
        while begin < cut:
            end = min(cut, int(np.searchsorted(unique, unique[begin] + _BLOCK_BYTES)))
            first = int(unique[begin])
            data = np.frombuffer(file.read(first, int(unique[end - 1]) - first + width), np.uint8)
            if end == begin + 1:
                rows[begin] = data
            else:
                windows = np.lib.stride_tricks.sliding_window_view(data, width)
                rows[begin:end] = windows[unique[begin:end] - first]
            begin = end
    return rows[places]


def _entries_at(file: OpenFile, index: IndexFile, numbers: Int64s) -> Entries:
    positions = index.entry_position(0) + numbers.astype(np.int64) * ENTRY.size_bytes
    return _gather(file, positions, ENTRY.size_bytes).reshape(-1).view(ENTRY.dtype)


def _heads_of(file: OpenFile, index: IndexFile, hashes: Int64s) -> Int64s:
    """The numbers in the slots of hashes."""
    assert index.slots_count is not None
    positions = HEADER.size_bytes + hashes % index.slots_count * INDEX_SLOT.size_bytes
    return _gather(file, positions, INDEX_SLOT.size_bytes).reshape(-1).view(">i4").astype(np.int64)


def entries_of(data: bytes) -> Entries:
    """The bytes of some entries as an array of them."""
    return np.frombuffer(data, ENTRY.dtype, len(data) // ENTRY.size_bytes)


# --- search ----------------------------------------------------------------------------------------------------------


class Index:
    """All index files of a store, to find many keys at once.

    Shape:  `files` oldest first.
    Damage: `findings` grows with what was met. A file that cannot be searched completely does not count as covering
            anything, but what is found in it is given.
    """

    def __init__(self, store: Store, slots_count: int | None = None) -> None:
        self.store = store.root
        self.findings: list[Finding] = []
        self.files: list[IndexFile] = []
        self._doubtful: set[str] = set()
        given = [] if slots_count is None else [slots_count]
        for segment in store.index_files:
            try:
                file = open_index_file(segment, given)
            except (UnreadableFile, FileChanged) as error:
                self.findings.append(Finding(store.root, "unreadable-file", segment.file, actual=error.message))
                continue
            if file.wrong() is not None:
                self._doubt(file, file.wrong())
            elif file.slots_count is not None:
                given.append(file.slots_count)  # the next one is most likely alike
            if file.slots_count is not None and file.entries_count:
                self.files.append(file)

    @property
    def exists(self) -> bool:
        """Whether there is a file that can be searched."""
        return bool(self.files)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Commit-log offsets of the first and last record of each run of files that follow one another.

        Order: ascending. Units: bytes.
        """
        found = sorted((f.begin_offset, f.end_offset) for f in self.files if f.segment.file not in self._doubtful)
        merged: list[tuple[int, int]] = []
        for begin, end in found:
            if merged and begin <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((begin, end))
        return merged

    @property
    def begin_offset(self) -> int | None:
        """Commit-log offset of the first record it knows; None if it knows none."""
        return min((begin for begin, _ in self.ranges), default=None)

    @property
    def covered_until_offset(self) -> int | None:
        """Commit-log offset of the last record it knows; records from there on may be missing from it."""
        return max((end for _, end in self.ranges), default=None)

    def uncovered(self, from_offset: int, to_offset: int) -> list[tuple[int, int]]:
        """Ranges of the commit log whose records may be missing from it: scan them, if they matter.

        Between two sound files there is always the last record of the first one; a larger range is what a crash left.
        Order: ascending. Units: bytes.
        """
        left: list[tuple[int, int]] = []
        for begin, end in self.ranges:
            if from_offset < min(begin, to_offset):
                left.append((from_offset, min(begin, to_offset)))
            from_offset = max(from_offset, end)
        if from_offset < to_offset:
            left.append((from_offset, to_offset))
        return left

    def find(self, keys: Sequence[bytes], from_offsets: Int64s | None = None) -> tuple[Int64s, Int64s]:
        """Where records with the given keys may be: key numbers (places in `keys`) and commit-log offsets.

        `keys`: `topic#key`. `from_offsets`: for each key the commit-log offset before which nothing is wanted; files
        and chains are left as soon as they are older, so that the cost does not grow with the log.
        Shape:  two arrays of the same length without repetitions; candidates, for only hashes were compared.
        Order:  key number, commit-log offset.
        Damage: index-damaged, unreadable-file; look at `uncovered` afterwards.
        """
        hashes = key_hashes(keys).astype(np.int64)
        lows = np.zeros(len(keys), np.int64) if from_offsets is None else from_offsets
        unique, groups = np.unique(hashes, return_inverse=True)
        earliest = np.full(len(unique), np.iinfo(np.int64).max)
        np.minimum.at(earliest, groups, lows)
        hits = _Hits()
        for index in reversed(self.files):
            wanted = earliest <= index.end_offset
            if wanted.any():
                try:
                    with index.segment.open() as file:
                        self._find_in(index, file, unique[wanted], earliest[wanted], hits)
                except (UnreadableFile, FileChanged) as error:
                    name = index.segment.file
                    self._doubtful.add(name)
                    self.findings.append(Finding(self.store, "unreadable-file", name, actual=error.message))
        return _by_key(*hits.arrays(), hashes, lows)

    def _find_in(self, index: IndexFile, file: OpenFile, hashes: Int64s, lows: Int64s, hits: _Hits) -> None:
        count = index.entries_count
        if len(hashes) * 8 > count:
            self._sweep(index, file, hashes, lows, count, hits)
            return
        numbers = _heads_of(file, index, hashes)
        index = index.refreshed(file)  # a broker may have added entries, but no slot can be newer now
        count = index.entries_count
        numbers = self._past_newest(index, file, numbers)
        broken = (numbers < 0) | (numbers > count)
        if broken.any():
            self._doubt(index, f"slots that name entries beyond {count}")
        swept = [(hashes[broken], lows[broken], count)]
        going = (numbers > 0) & (numbers <= count)
        hashes, lows, numbers = hashes[going], lows[going], numbers[going]
        for _ in range(_CHAIN_MAX):
            if not len(numbers):
                break
            entries = _entries_at(file, index, numbers)
            good = index.is_plausible(entries, numbers)
            good &= index.are_of_one_slot(entries["key_hash"].astype(np.int64), hashes)
            offsets = entries["commit_log_offset"].astype(np.int64)
            if not good.all():
                self._doubt(index, "entries that cannot be")
                swept.append((hashes[~good], lows[~good], count))
            hit = good & (entries["key_hash"] == hashes)
            hits.add(hashes[hit], offsets[hit])
            numbers = entries["previous_entry_number"].astype(np.int64)
            going = good & (numbers > 0) & (offsets >= lows)
            hashes, lows, numbers = hashes[going], lows[going], numbers[going]
        if len(numbers):
            swept.append((hashes, lows, int(numbers.max())))
        for some_hashes, some_lows, upto in swept:
            if len(some_hashes):
                unique, places = np.unique(some_hashes, return_index=True)
                self._sweep(index, file, unique, some_lows[places], upto, hits)

    @staticmethod
    def _past_newest(index: IndexFile, file: OpenFile, numbers: Int64s) -> Int64s:
        """Slots may name an entry that the broker is adding, which the header does not count yet: the one before it.

        The record of that entry is not covered, so nothing is lost with it.
        """
        newest = index.entries_count + 1
        ahead = numbers == newest
        if not ahead.any() or index.entry_position(newest + 1) > index.segment.size_bytes:
            return numbers
        entry = _entries_at(file, index, np.array([newest]))[0]
        return np.where(ahead, np.int64(entry["previous_entry_number"]), numbers)

    def _sweep(
        self, index: IndexFile, file: OpenFile, hashes: Int64s, lows: Int64s, upto: int, hits: _Hits
    ) -> None:
        """All entries up to a number, newest first, without following chains; `hashes` ascending."""
        lowest = int(lows.min())
        end = upto + 1
        while end > 1:
            begin = max(1, end - BLOCK_ENTRIES)
            length = (end - begin) * ENTRY.size_bytes
            entries = entries_of(file.read(index.entry_position(begin), length))
            good = index.is_plausible(entries, begin)
            if not good.all() or not index.is_chained(entries, begin):
                self._doubt(index, "entries that cannot be")
            entries = entries[good]
            found = entries["key_hash"].astype(np.int64)
            place = np.minimum(np.searchsorted(hashes, found), len(hashes) - 1)
            offsets = entries["commit_log_offset"].astype(np.int64)
            hit = hashes[place] == found
            hits.add(found[hit], offsets[hit])
            if len(offsets) and offsets.max() < lowest:
                break
            end = begin

    def _doubt(self, index: IndexFile, what: str | None) -> None:
        if index.segment.file not in self._doubtful:
            self._doubtful.add(index.segment.file)
            self.findings.append(Finding(self.store, "index-damaged", index.segment.file, actual=what))


class _Hits:
    def __init__(self) -> None:
        self._hashes: list[Int64s] = []
        self._offsets: list[Int64s] = []

    def add(self, hashes: Int64s, offsets: Int64s) -> None:
        if len(hashes):
            self._hashes.append(hashes)
            self._offsets.append(offsets)

    def arrays(self) -> tuple[Int64s, Int64s]:
        if not self._hashes:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return np.concatenate(self._hashes), np.concatenate(self._offsets)


def _by_key(found: Int64s, offsets: Int64s, hashes: Int64s, lows: Int64s) -> tuple[Int64s, Int64s]:
    """The hits of hashes as hits of keys; several keys may have one hash."""
    order = np.argsort(hashes, kind="stable")
    first, last = np.searchsorted(hashes[order], found), np.searchsorted(hashes[order], found, "right")
    counts = last - first
    inside = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    key_numbers = order[np.repeat(first, counts) + inside].astype(np.int64)
    offsets = np.repeat(offsets, counts)
    late = offsets >= lows[key_numbers]
    pairs = np.unique(np.stack([key_numbers[late], offsets[late]], axis=1), axis=0)
    return pairs[:, 0], pairs[:, 1]


def open_index(store: Store, slots_count: int | None = None) -> Index:
    """The index of a store. `slots_count`: the broker's maxHashSlotNum where it is known.

    Damage: index-damaged, unreadable-file.
    """
    return Index(store, slots_count)


# --- full scan -------------------------------------------------------------------------------------------------------


def scan_entries(
    store: Store, slots_count: int | None = None, files: tuple[Segment, ...] | None = None
) -> Reading:
    """Every entry of the index files, or of some of them.

    Shape:  rows of INDEX_ENTRIES, at most 65,536 a batch.
    Order:  file, entry number.
    Damage: index-damaged for what contradicts the header; entries that cannot be are no rows; unreadable-file.
    Source: store/index/IndexFile.java; FORMATS 4.
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
        wrong = index.wrong()
        if wrong is not None:
            self._tell(0, segment.size_bytes, wrong)
        if segment.size_bytes < HEADER.size_bytes:
            coverage.damaged_bytes = segment.size_bytes
            return
        with segment.open() as file:
            if wrong == _BAD_HEADER:
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

    def _tell(self, position: int, length: int, actual: str) -> None:
        self.reading.findings.append(
            Finding(self.store.root, "index-damaged", self.index.segment.file, position, length, actual=actual)
        )

    def _slots(self, file: OpenFile, begin: int, end: int) -> None:
        count = self.index.entries_count
        damaged = decoded = 0
        for position, data in _data_blocks(file, begin, end, 0):
            numbers = np.frombuffer(data, ">i4", len(data) // 4)
            wrong = (numbers < 0) | (numbers > count)
            if wrong.any() and not (self.store.in_use and (numbers > count).sum() == wrong.sum()):
                places = np.flatnonzero(wrong) * 4 + position
                damaged += len(places)
                self._tell(
                    int(places[0]), int(places[-1] - places[0]) + 4, f"{len(places)} slots name no entry up to {count}"
                )
            decoded += int(((numbers > 0) & ~wrong).sum())
        self.coverage.decoded_bytes += decoded * 4
        self.coverage.damaged_bytes += damaged * 4
        self.coverage.filler_bytes += end - begin - (decoded + damaged) * 4

    def _entries(self, file: OpenFile) -> Iterator[pa.RecordBatch]:
        index = self.index
        position = index.entry_position(0)
        # number 0 means none, and its place is never written
        unused = file.read(position, ENTRY.size_bytes)
        if unused.strip(b"\0"):
            self.coverage.damaged_bytes += len(unused)
            self._tell(position, len(unused), "bytes in the place of entry 0")
        else:
            self.coverage.filler_bytes += len(unused)
        for first in range(1, index.entries_count + 1, BLOCK_ENTRIES):
            count = min(BLOCK_ENTRIES, index.entries_count + 1 - first)
            position = index.entry_position(first)
            entries = entries_of(file.read(position, count * ENTRY.size_bytes))
            good = index.is_plausible(entries, first)
            rows = np.flatnonzero(good)
            self.coverage.decoded_bytes += len(rows) * ENTRY.size_bytes
            if len(rows) < count:
                wrong = np.flatnonzero(~good) * ENTRY.size_bytes
                self.coverage.damaged_bytes += len(wrong) * ENTRY.size_bytes
                length = int(wrong[-1] - wrong[0]) + ENTRY.size_bytes
                self._tell(position + int(wrong[0]), length, f"{len(wrong)} entries that cannot be")
            if len(rows):
                yield self._rows(entries[rows], rows + first)

    def _rows(self, entries: Entries, numbers: Int64s) -> pa.RecordBatch:
        count = len(entries)
        begin_ms = self.index.header["begin_time_ms"]
        times: Any = pa.nulls(count, pa.int64())
        if 0 < begin_ms <= _TIME_MS_MAX:
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
        """What lies behind the last entry: zeros, or in a store in use entries that came since."""
        size = self.index.segment.size_bytes
        used = begin
        for position, data in _data_blocks(file, begin, size, 0):
            strange = len(data.rstrip(b"\0"))
            if strange:
                used = position + strange
        self.coverage.filler_bytes += size - used
        if used > begin and not self.store.in_use:
            self.coverage.damaged_bytes += used - begin
            if self.index.wrong() is None:
                self._tell(begin, used - begin, "bytes behind the last entry")
