"""Records' keys compared with the index, and index entries with the records that they point to.

Entries in a file have the order of the log, so those for one split are a range, found by binary search. Each split
returns the runs of entries that its records explain, and the records in a file's range that lack an entry. Entries that
no split has explained are examined one by one when the whole store is known, so an entry that misled the search is no
finding by itself. An entry contains only a hash: a wrong entry with the right hash is not found. Its seconds must be
those of its record's store time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rmqtx.readers.index.index import BLOCK_ENTRIES, ENTRY, HEADER, IndexFile
from rmqtx.readers.index.index_search import open_index
from rmqtx.readers.index.record_keys import (
    explained_entries,
    has_typed_ids,
    have_entry_of,
    key_pairs,
    may_lack_entries,
    tag_pairs,
    typed_id_pairs,
    unique_key_pairs,
)
from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import FINDINGS_MAX, Finding, one_by_one
from rmqtx.readers.model.moments import BROKER_TIME_MAX_MS
from rmqtx.readers.model.ranges import LogRanges, between, merged, runs_of
from rmqtx.readers.queues.slot_files import boundary, cache_of
from rmqtx.readers.storage.open_file import OpenFile
from rmqtx.readers.store.store import Store

_HASH_BITS = 31
#: The most unexplained entries that are examined one by one; more are one finding.
_EXAMINED_MAX = 1000
#: Newest entries that are read to find out what is indexed.
_SAMPLED = 64
_SECONDS_MAX = 0x7FFFFFFF


@dataclass(slots=True)
class IndexPart:
    """The result of one split for the index.

    Shape: `runs`: file → numbers of entries [from, to) that a record explains. `lacking`: rows (commit-log offset,
           hash) of keys that the index should contain. `wrong_times`: file → rows (number of an entry, seconds from
           its record, seconds in the entry, the record's place), at most FINDINGS_MAX.
    """

    runs: dict[str, Int64s] = field(default_factory=dict)
    lacking: Int64s = field(default_factory=lambda: np.empty((0, 2), np.int64))
    wrong_times: dict[str, Int64s] = field(default_factory=dict)


# --- one split --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class IndexClaims:
    """The entries that the records of a split should have: blocks are added, then all are compared."""

    store: Store
    _offsets: list[Int64s] = field(default_factory=list)
    _hashes: list[Int64s] = field(default_factory=list)
    _allowed: list[tuple[Int64s, Int64s]] = field(default_factory=list)
    """Optional entries."""
    _stored: list[tuple[Int64s, Int64s]] = field(default_factory=list)
    _typed: list[tuple[Int64s, Int64s, Int64s]] = field(default_factory=list)
    """Ids in the two forms of Java and of rocketmq-rust: offset, hash of the one, hash of the other."""

    def add(self, block: Block) -> None:
        """Add the records of a block."""
        if index_files(self.store):
            self._stored.append((block.commit_log_offsets, block.header("store_time_ms")))
            if newest_entries_have_tags(self.store):
                self._allowed.append(tag_pairs(block))
            may_lack = may_lack_entries(block)
            if may_lack.any():
                self._allowed.append(key_pairs(block.take(may_lack)))
                block = block.take(~may_lack)
            offsets, hashes = key_pairs(block)
            if may_have_typed_ids(self.store):
                self._allowed.append(typed := typed_id_pairs(block))
                self._typed.append((typed[0], unique_key_pairs(block)[1], typed[1]))
            self._offsets.append(offsets)
            self._hashes.append(hashes)

    def compared(self, begin_offset: int) -> IndexPart:
        """Return the result of the split after all blocks were added. `begin_offset`: its first commit-log offset."""
        part = IndexPart()
        if not self._offsets:
            return part
        keyed = sum(len(offsets) for offsets in self._offsets)
        offsets = np.concatenate([*self._offsets, *(offsets for offsets, _ in self._allowed)])
        hashes = np.concatenate([*self._hashes, *(hashes for _, hashes in self._allowed)])
        wanted = _packed(offsets, hashes, begin_offset)
        if not len(offsets):
            return part
        order = np.argsort(wanted, kind="stable")
        wanted, offsets, is_key = wanted[order], offsets[order], order < keyed
        places, stored = (np.concatenate(part) for part in zip(*self._stored, strict=True))
        times = stored[np.searchsorted(places, offsets)]
        sought = _Sought(wanted, times, begin_offset, int(offsets[0]), int(offsets[-1]))
        covered = np.zeros(len(wanted), np.bool_)
        for index in index_files(self.store):
            if index.end_offset < sought.low or index.begin_offset > sought.high:
                continue
            covered |= (offsets > index.begin_offset) & (offsets < index.end_offset)
            try:
                sought.compare(index, part)
            except SourceError:
                covered[:] = False  # reported when the whole store is examined
        absent = covered & is_key & ~sought.found
        if self._typed:
            offsets_of, plain, typed = (np.concatenate(part) for part in zip(*self._typed, strict=True))
            is_found = np.isin(_packed(offsets_of, typed, begin_offset), wanted[sought.found])
            absent &= ~np.isin(wanted, _packed(offsets_of, plain, begin_offset)[is_found])
        part.lacking = np.stack([offsets[absent], wanted[absent] & 0x7FFFFFFF], axis=1)
        self._offsets, self._hashes, self._allowed, self._stored, self._typed = [], [], [], [], []
        return part


@dataclass(slots=True)
class _Sought:
    """The keys of a split, which are sought in index files.

    Shape: `wanted`: place and hash, ascending; `times` of their records; `found`: which have an entry so far.
    Units: commit-log offsets; `low`, `high`: the first and the last record with a key.
    """

    wanted: Int64s
    times: Int64s
    begin_offset: int
    low: int
    high: int
    found: npt.NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.found = np.zeros(len(self.wanted), np.bool_)

    def compare(self, index: IndexFile, part: IndexPart) -> None:
        """Compare an index file; add what it has to the result of the split. Raises: SourceError."""
        wanted, times, found, low, high = self.wanted, self.times, self.found, self.low, self.high
        runs, strange = [], []
        with index.segment.open() as file:
            first, _ = _boundary(index, file, low)
            _, end = _boundary(index, file, high + 1)
            for number in range(first, end, BLOCK_ENTRIES):
                entries = read_entries(index, file, number, min(number + BLOCK_ENTRIES, end))
                offsets = entries["commit_log_offset"].astype(np.int64)
                pairs = _packed(offsets, entries["key_hash"].astype(np.int64), self.begin_offset)
                at = np.minimum(np.searchsorted(wanted, pairs), len(wanted) - 1)
                same = (wanted[at] == pairs) & (offsets >= low) & (offsets <= high)
                found[at[same]] = True
                runs.append(runs_of(np.flatnonzero(same) + number))
                numbers, said = np.flatnonzero(same) + number, entries["seconds_since_begin"][same].astype(np.int64)
                seconds = expected_seconds(index.header["begin_time_ms"], numbers, times[at[same]])
                is_possible = (times[at[same]] >= 0) & (times[at[same]] <= BROKER_TIME_MAX_MS)
                is_strange = (seconds != said) & (said >= 0) & is_possible
                rows = np.stack([numbers, seconds, said, offsets[same]], axis=1)[is_strange]
                strange.append(rows[:FINDINGS_MAX])
        # a key that a record has twice has two entries
        for row in np.flatnonzero(np.diff(wanted) == 0).tolist():
            found[row + 1] |= found[row]
        part.runs[index.segment.file] = merged(runs)
        part.wrong_times[index.segment.file] = np.concatenate([np.empty((0, 4), np.int64), *strange])[:FINDINGS_MAX]


def _packed(offsets: Int64s, hashes: Int64s, begin_offset: int) -> Int64s:
    """Pack place and hash into one number: places of one split are close together, and hashes are never negative."""
    packed: Int64s = (offsets - begin_offset << _HASH_BITS) | (hashes & 0x7FFFFFFF)
    return packed


def read_entries(index: IndexFile, file: OpenFile, first: int, end: int) -> npt.NDArray[np.void]:
    """Return entries [first, end) of an index file."""
    return index.entries_of(file.read(index.entry_position(first), (end - first) * ENTRY.size_bytes))


def _boundary(index: IndexFile, file: OpenFile, offset: int) -> tuple[int, int]:
    """Return a short range of entry numbers that contains the first entry for a place at or after `offset`."""
    return boundary(
        lambda low, high: read_entries(index, file, low, high)["commit_log_offset"].astype(np.int64),
        1, index.entries_count + 1, offset,
    )


def index_files(store: Store) -> list[IndexFile]:
    """Return the index files that can be compared: the length of their slot table is known. Opened once per process."""
    cache = cache_of(store)
    files = cache.get("index")
    if not isinstance(files, list):
        files = cache["index"] = [file for file in open_index(store).files if file.why_incomplete() is None]
    return files


def may_have_typed_ids(store: Store) -> bool:
    """Whether the index may have ids as rocketmq-rust writes them; determined once per process."""
    cache = cache_of(store)
    if "typed_ids" not in cache:
        cache["typed_ids"] = has_typed_ids(store, index_files(store))
    return bool(cache["typed_ids"])


def newest_entries_have_tags(store: Store) -> bool:
    """Whether the newest entries include tags, as 5.5.0 writes them; determined once per process.

    If several versions wrote the store and the result is wrong, entries are explained one by one at the end.
    """
    cache = cache_of(store)
    if "tags" not in cache:
        files = index_files(store)
        cache["tags"] = bool(files) and have_entry_of(
            store, files[-1], max(1, files[-1].entries_count + 1 - _SAMPLED), _SAMPLED, tag_pairs
        )
    return bool(cache["tags"])


# --- the whole store --------------------------------------------------------------------------------------------------


class IndexComparison:
    """The findings about the index of a store, after all splits have compared their records with it.

    `reported_offsets`: places of the log with another finding, which explains their index entries too.
    `is_partial`: not all splits were read; only entries between those that the same split explains are examined.
    """

    def __init__(
        self, store: Store, parts: list[IndexPart], ranges: LogRanges, reported_offsets: set[int], *,
        is_partial: bool = False,
    ) -> None:
        self._is_partial = is_partial
        self._store = store
        self._parts = parts
        self._ranges = ranges
        self._reported_offsets = reported_offsets
        self._entered_offsets, self._entered_hashes = set(reported_offsets), set[int]()
        self._right: set[tuple[int, int]] = set()

    def findings(self) -> Iterator[Finding]:
        """Return entries that no record explains, and records that lack an entry, unless a wrong entry is the cause.

        Order: file, entry number; then commit-log offset.
        """
        for index in index_files(self._store):
            name = index.segment.file
            mine = [part.runs[name] for part in self._parts if name in part.runs]
            runs = merged(mine)
            if self._is_partial:
                seen = merged([np.array([[rows[0, 0], rows[-1, 1]]], np.int64) for rows in mine if len(rows)])
                runs = merged([runs, between(seen, 1, index.entries_count + 1)])
            headers = list(header_time_findings(self._store, index, self._reported_offsets))
            yield from headers
            if not headers:  # all seconds count from the time in the header
                rows = [part.wrong_times[name] for part in self._parts if name in part.wrong_times]
                yield from entry_time_findings(self._store, index, rows, self._reported_offsets)
            try:
                yield from self._unexplained(index, runs)
            except SourceError as error:
                yield Finding(
                    self._store.root, "unreadable-file", error.file, error.position_bytes, actual=error.message
                )
                return
        lacking = np.concatenate([np.empty((0, 2), np.int64), *(part.lacking for part in self._parts)]).tolist()
        offsets = {
            offset
            for offset, key_hash in lacking
            if offset not in self._entered_offsets and key_hash not in self._entered_hashes
            and (offset, key_hash) not in self._right
        }
        yield from self._lacking(sorted(offsets))

    def _unexplained(self, index: IndexFile, runs: Int64s) -> Iterator[Finding]:
        ranges, doubtful = self._ranges, []  # type: LogRanges, list[tuple[int, int, int]]
        with index.segment.open() as file:
            begin, count = 1, index.entries_count
            for low, high in [*runs.tolist(), (count + 1, count + 1)]:
                for number in range(begin, low, BLOCK_ENTRIES):
                    entries = read_entries(index, file, number, min(number + BLOCK_ENTRIES, low))
                    offsets = entries["commit_log_offset"].astype(np.int64)
                    # Impossible entries are reported by the reader of the index. An expired place, or one in damaged
                    # bytes, in a gap or after the end, is no contradiction and is reported elsewhere.
                    good = index.is_plausible(entries, number)
                    self._entered_offsets.update(offsets[~good].tolist())
                    self._entered_hashes.update(entries["key_hash"][~good].tolist())
                    asked = good & ranges.is_held(offsets) & ~ranges.is_damaged(offsets)
                    rows = np.flatnonzero(asked).tolist()
                    doubtful.extend((number + row, int(offsets[row]), int(entries["key_hash"][row])) for row in rows)
                begin = high
        wrong = self._wrong(doubtful[:_EXAMINED_MAX])
        if 2 * len(wrong) > _EXAMINED_MAX:  # another log's index
            wrong += doubtful[_EXAMINED_MAX:]
        self._entered_offsets.update(offset for _, offset, _ in wrong)
        self._entered_hashes.update(key_hash for _, _, key_hash in wrong)
        for (number, offset, key_hash), more in one_by_one(wrong, "entries"):
            yield Finding(
                self._store.root, "index-mismatch", index.segment.file, index.entry_position(number),
                ENTRY.size_bytes, commit_log_offset=offset,
                expected=f"a record at commit-log offset {offset} with a key of hash {key_hash}",
                actual=f"no record with this key there{more}",
            )

    def _wrong(self, entries: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        """Return the entries whose record is missing or has no key with their hash."""
        with self._store.log() as log:
            wrong = []
            for entry in entries:
                if entry[1] in self._reported_offsets:
                    continue
                block = block_at(log, entry[1])
                known = set[tuple[int, int]]() if block is None else explained_entries(block)
                if entry[1:] not in known:
                    wrong.append(entry)
                else:  # a search that was misled did not reach it
                    self._right.add(entry[1:])
            return wrong

    def _lacking(self, offsets: list[int]) -> Iterator[Finding]:
        log = self._store.log()
        for offset, more in one_by_one(offsets, "records"):
            yield Finding(
                self._store.root, "index-missing", *log.place_of(offset), commit_log_offset=offset,
                expected="an entry for each key of the record",
                actual=f"a key without an entry{more}",
            )


def expected_seconds(begin_time_ms: int, numbers: Int64s, times_ms: Int64s) -> Int64s:
    """Return the seconds that entries should contain; the first entry (1) is written before the begin time is known.

    Source: store/index/IndexFile.java putKey.
    """
    if begin_time_ms <= 0:
        return np.zeros_like(times_ms)
    seconds: Int64s = np.clip((times_ms - begin_time_ms) // 1000, 0, _SECONDS_MAX)
    seconds[numbers == 1] = 0
    return seconds


def header_time_findings(store: Store, index: IndexFile, reported_offsets: set[int]) -> Iterator[Finding]:
    """Return times in a header that differ from those of its records; nothing where the records are missing.

    `reported_offsets`: records with another finding.
    """
    try:
        with store.log() as log:
            for name in ("begin", "end"):
                offset, stored = index.header[f"{name}_offset"], index.header[f"{name}_time_ms"]
                block = None if offset in reported_offsets else block_at(log, offset)
                if index.entries_count and block is not None and int(block.header("store_time_ms")[0]) != stored:
                    yield Finding(
                        store.root, "index-damaged", index.segment.file, HEADER.offsets[f"{name}_time_ms"], 8,
                        expected=f"{name}_time_ms {int(block.header('store_time_ms')[0])}, its record's store time",
                        actual=str(stored),
                    )
    except SourceError:  # reported when the whole store is examined
        return


def entry_time_findings(
    store: Store, index: IndexFile, wrong_times: Sequence[Int64s], reported_offsets: set[int]
) -> Iterator[Finding]:
    """Return entries whose seconds differ from those of their records, as one finding.

    `wrong_times`: what the splits found in the file, as in IndexPart. `reported_offsets`: records with another finding.
    """
    every = [
        row for row in np.concatenate([np.empty((0, 4), np.int64), *wrong_times]).tolist()
        if row[3] not in reported_offsets
    ]
    if every:
        number, expected, actual, _ = min(every)
        more = f", and {len(every) - 1} more entries" if len(every) > 1 else ""
        yield Finding(
            store.root, "index-mismatch", index.segment.file, index.entry_position(number), ENTRY.size_bytes,
            expected=f"seconds_since_begin {expected}, from the store time of its record", actual=f"{actual}{more}",
            meaning="a search by key between two times may not find the record",
        )
