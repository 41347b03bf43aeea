"""Find many keys at once in the index files of a store.

After a crash the broker deletes its last index file and rebuilds only the end of it. Callers must scan the ranges that
the files do not cover (`Index.uncovered`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from rmqtx.readers.index.index import BLOCK_ENTRIES, ENTRY, IndexFile, columns_of, entries_at, heads_of, open_index_file
from rmqtx.readers.index.record_keys import has_typed_ids, typed_id_key
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.errors import FileChanged, UnreadableFile
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.java_hashes import key_hashes
from rmqtx.readers.storage.open_file import OpenFile
from rmqtx.readers.store.store import Store

#: A longer chain belongs to a key of many records; then it is cheaper to read all entries in order.
_CHAIN_MAX = 64
#: Bytes of a local file that are searched in order in the time of one entry by itself.
_READ_BYTES = 8 * ENTRY.size_bytes
#: Reads of a remote file for one entry: its slot and itself.
_READS_OF_ENTRY = 2
#: Blocks of a remote file that are read at once: large reads are fetched in parallel parts.
_REMOTE_BLOCKS = 12
#: The part of a block of entries that must be older than what is searched, so that no older block is read.
_OLDEST_PART = 8
#: Hashes are first looked up in a table of this length.
_SIEVE = 1 << 20
_NONE = np.empty(0, np.int64)


class Index:
    """All index files of a store, for a search of many keys at once.

    Shape:  `files` oldest first.
    Damage: `findings` grows during a search. A file that cannot be searched completely covers no range, but hits in it
            are returned.
    """

    def __init__(self, store: Store, slots_count: int | None = None) -> None:
        self.store = store.root
        self._of_store = store
        self.findings: list[Finding] = []
        self.files: list[IndexFile] = []
        self._doubtful: set[str] = set()
        self._heads: dict[str, tuple[Int64s, Int64s]] = {}
        given = [] if slots_count is None else [slots_count]
        for segment in store.index_files:
            try:
                file = open_index_file(segment, given)
            except (UnreadableFile, FileChanged) as error:
                self.findings.append(Finding(store.root, "unreadable-file", segment.file, actual=error.message))
                continue
            if file.why_incomplete() is not None:
                self._doubt(file, file.why_incomplete())
            elif file.slots_count is not None:
                given.append(file.slots_count)  # the next file most likely has the same number
            if file.slots_count is not None and file.entries_count:
                self.files.append(file)

    @cached_property
    def has_typed_ids(self) -> bool:
        """Whether ids may have entries as `topic#U#id`, as rocketmq-rust writes them."""
        return has_typed_ids(self._of_store, self.files)

    @property
    def exists(self) -> bool:
        """Whether there is a file that can be searched."""
        return bool(self.files)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Commit-log offsets of the first and last record of each run of consecutive files.

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
    def covered_until_offset(self) -> int | None:
        """Commit-log offset of the last record in the index; records from there on may be missing from the index."""
        return max((end for _, end in self.ranges), default=None)

    def uncovered(self, from_offset: int, to_offset: int) -> list[tuple[int, int]]:
        """Return ranges of the commit log whose records may be missing from the index; a complete search scans them.

        Between two sound files the range is always the last record of the first file; a larger range is left by a
        crash.
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
        """Return where records with the given keys may be: key numbers (places in `keys`) and commit-log offsets.

        `keys`: `topic#key`. `from_offsets`: for each key the smallest commit-log offset of interest; the search skips
        older files and stops at older entries, so that the cost does not grow with the log.
        Shape:  two arrays of the same length without repetitions; candidates, since only hashes were compared.
        Order:  key number, commit-log offset.
        Damage: index-damaged, unreadable-file; `uncovered` is valid afterwards.
        """
        if not self.has_typed_ids or not keys:
            return self.find_hashes(key_hashes(keys).astype(np.int64), from_offsets)
        lows = np.zeros(len(keys), np.int64) if from_offsets is None else from_offsets
        both = key_hashes([*keys, *map(typed_id_key, keys)]).astype(np.int64)
        numbers, offsets = self.find_hashes(both, np.concatenate([lows, lows]))
        found = np.unique(np.stack([numbers % len(keys), offsets], axis=1), axis=0)
        return found[:, 0], found[:, 1]

    def find_hashes(self, hashes: Int64s, from_offsets: Int64s | None = None) -> tuple[Int64s, Int64s]:
        """Return where records with keys of the given hashes may be, as `find`: places in `hashes`, and offsets."""
        lows = np.zeros(len(hashes), np.int64) if from_offsets is None else from_offsets
        unique, groups = np.unique(hashes, return_inverse=True)
        earliest = np.full(len(unique), np.iinfo(np.int64).max)
        np.minimum.at(earliest, groups, lows)
        return _by_key(*self._hits(unique, earliest).arrays(), hashes, lows)

    def offsets_of_hashes(self, hashes: Int64s) -> dict[int, set[int]]:
        """Return where records with keys of given hashes may be: commit-log offsets by hash, as far as chains reach.

        `hashes`: ascending, each once.
        Damage: as `find`.
        """
        found: dict[int, set[int]] = {}
        values, offsets = self._hits(hashes, np.zeros(len(hashes), np.int64)).arrays()
        for value, offset in zip(values.tolist(), offsets.tolist(), strict=True):
            found.setdefault(value, set()).add(offset)
        return found

    def _hits(self, unique: Int64s, earliest: Int64s) -> _Hits:
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
        return hits

    def _find_in(self, index: IndexFile, file: OpenFile, hashes: Int64s, lows: Int64s, hits: _Hits) -> None:
        count = index.entries_count
        numbers = self._heads_of(file, index, hashes)
        index = index.refreshed(file)  # a broker may have added entries, but no slot can be newer than this header
        cost_bytes = _READS_OF_ENTRY * file.limits.near_bytes if file.is_remote else _READ_BYTES
        left = index.entries_from(int(lows.min())) if file.is_remote else count
        is_swept = len(hashes) * cost_bytes > left * ENTRY.size_bytes
        count = index.entries_count
        numbers = self._past_newest(index, file, numbers)
        broken = (numbers < 0) | (numbers > count)
        if broken.any():
            self._doubt(index, f"slots with entry numbers not in 0 to {count}")
        if is_swept:
            led = np.flatnonzero((numbers > 0) & ~broken)
            led = led[np.argsort(numbers[led])]
            heads = numbers[led], hashes[led]
            if not file.is_remote:  # single requests for the heads would take longer than all entries
                self._require_of_slots(index, entries_at(file, index, heads[0])["key_hash"].astype(np.int64), heads[1])
                heads = _NONE, _NONE
            self._sweep(index, file, hashes, lows, count, hits, heads)
            return
        swept = [(hashes[broken], lows[broken], count)]
        going = (numbers > 0) & (numbers <= count)
        hashes, lows, numbers = hashes[going], lows[going], numbers[going]
        for _ in range(_CHAIN_MAX):
            if not len(numbers):
                break
            entries = columns_of(entries_at(file, index, numbers))
            good = index.is_plausible(entries, numbers)
            good &= index.are_of_one_slot(entries["key_hash"], hashes)
            offsets = entries["commit_log_offset"]
            if not good.all():
                self._doubt(index, "impossible entries")
                swept.append((hashes[~good], lows[~good], count))
            hit = good & (entries["key_hash"] == hashes)
            hits.add(hashes[hit], offsets[hit])
            numbers = entries["previous_entry_number"]
            going = good & (numbers > 0) & (offsets >= lows)
            hashes, lows, numbers = hashes[going], lows[going], numbers[going]
        if len(numbers):
            swept.append((hashes, lows, int(numbers.max())))
        for some_hashes, some_lows, upto in swept:
            if len(some_hashes):
                unique, places = np.unique(some_hashes, return_index=True)
                self._sweep(index, file, unique, some_lows[places], upto, hits)

    def _heads_of(self, file: OpenFile, index: IndexFile, hashes: Int64s) -> Int64s:
        """Return the entry numbers in the slots of hashes; of a remote file, a search that goes on has them already."""
        known = self._heads.get(file.file)
        if known is None or not np.array_equal(known[0], hashes):
            known = hashes, heads_of(file, index, hashes)
            if file.is_remote:
                self._heads[file.file] = known
        return known[1]

    @staticmethod
    def _past_newest(index: IndexFile, file: OpenFile, numbers: Int64s) -> Int64s:
        """Return entry numbers; in place of an entry that the header does not count yet, the entry before it.

        The broker is adding that entry. The range of its record counts as uncovered, so the record is not lost.
        """
        newest = index.entries_count + 1
        ahead = numbers == newest
        if not ahead.any() or index.entry_position(newest + 1) > index.segment.size_bytes:
            return numbers
        entry = entries_at(file, index, np.array([newest]))[0]
        return np.where(ahead, np.int64(entry["previous_entry_number"]), numbers)

    def _sweep(
        self, index: IndexFile, file: OpenFile, hashes: Int64s, lows: Int64s, upto: int, hits: _Hits,
        heads: tuple[Int64s, Int64s] = (_NONE, _NONE),
    ) -> None:
        """Search all entries up to a number, newest first, without following chains; `hashes` ascending.

        `heads`: numbers of entries that slots have, ascending, with hashes of the slots.
        """
        lowest = int(lows.min())
        may_be = np.zeros(_SIEVE, np.bool_)
        may_be[hashes % _SIEVE] = True
        count = BLOCK_ENTRIES
        if file.is_remote:
            searched = index.entries_from(lowest) * _OLDEST_PART // (_OLDEST_PART - 1)
            count *= min(_REMOTE_BLOCKS, 1 + searched // BLOCK_ENTRIES)
        end = upto + 1
        while end > 1:
            begin = max(1, end - count)
            length = (end - begin) * ENTRY.size_bytes
            entries = columns_of(index.entries_of(file.read(index.entry_position(begin), length)))
            found, offsets = entries["key_hash"], entries["commit_log_offset"]
            good = index.is_plausible(entries, begin)
            some = max(1, len(offsets) // _OLDEST_PART)
            oldest = offsets[:some][good[:some]]
            is_last = len(oldest) and oldest.max() < lowest  # entries are in the order of the log
            following = max(1, begin - count)
            if not is_last:
                file.fetch_ahead(index.entry_position(following), (begin - following) * ENTRY.size_bytes)
            if not good.all() or not index.is_chained(entries, begin):
                self._doubt(index, "impossible entries")
            rows = slice(*np.searchsorted(heads[0], [begin, end]))
            self._require_of_slots(index, found[heads[0][rows] - begin], heads[1][rows])
            near = np.flatnonzero(may_be[found % _SIEVE] & good)
            near = near[hashes[np.minimum(np.searchsorted(hashes, found[near]), len(hashes) - 1)] == found[near]]
            hits.add(found[near], offsets[near])
            if is_last:
                break
            end = begin

    def _require_of_slots(self, index: IndexFile, found: Int64s, hashes: Int64s) -> None:
        """Doubt a file in which slots have entries of other slots. `found`, `hashes`: of the entries and slots."""
        if not index.are_of_one_slot(found, hashes).all():
            self._doubt(index, "slots with entries of other slots")

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
    """Return the hits of hashes as hits of keys; several keys may have the same hash."""
    order = np.argsort(hashes, kind="stable")
    first, last = np.searchsorted(hashes[order], found), np.searchsorted(hashes[order], found, "right")
    counts = last - first
    inside = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    key_numbers = order[np.repeat(first, counts) + inside].astype(np.int64)
    offsets = np.repeat(offsets, counts)
    late = offsets >= lows[key_numbers]
    key_numbers, offsets = key_numbers[late], offsets[late]
    order = np.lexsort((offsets, key_numbers))
    key_numbers, offsets = key_numbers[order], offsets[order]
    is_first = np.append(True, (np.diff(key_numbers) != 0) | (np.diff(offsets) != 0))[: len(order)]
    return key_numbers[is_first], offsets[is_first]


def open_index(store: Store, slots_count: int | None = None) -> Index:
    """Return the index of a store. `slots_count`: the broker's maxHashSlotNum if it is known.

    Damage: index-damaged, unreadable-file.
    """
    return Index(store, slots_count)
