"""Rebuilding index files from the records of a log, as a broker's dispatch writes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from rmqtx.readers.index.index import ENTRY, HEADER, INDEX_SLOT
from rmqtx.readers.index.record_keys import key_pairs, key_pairs_with_typed_ids, tag_pairs
from rmqtx.readers.log.header_rules import plausible_times
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.model.columns import Int32s, Int64s
from rmqtx.readers.model.moments import BROKER_TIME_MAX_MS
from rmqtx.repairs.changes.new_stores import write_at
from rmqtx.repairs.records.store_sizes import StoreSizes

_SECONDS_MAX = (1 << 31) - 1


def _name(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms // 1000, UTC):%Y%m%d%H%M%S}{time_ms % 1000:03d}"


@dataclass(slots=True)
class IndexBuilder:
    """Writes the index files of a store below `root`; blocks are added in the order of the log.

    `with_tags`: also index tags, as 5.5.0 does. `with_typed_ids`: index ids as `topic#U#id`, as rocketmq-rust does.
    Shape:  `completed_time_ms`: store time of the last entry of the last full file, for the checkpoint; 0 if no file is
            full.
    Raises: OSError where a file cannot be written.
    Source: store/index/IndexService.java buildIndex, store/index/IndexFile.java putKey; docs/formats/index.md#file,
            docs/formats/index.md#keys.
    """

    root: Path
    sizes: StoreSizes
    with_tags: bool = False
    with_typed_ids: bool = False
    completed_time_ms: int = 0
    entries_count: int = 0
    _heads: Int32s = field(init=False)
    _file: Path | None = None
    _names: set[str] = field(default_factory=set)
    _header: dict[str, int] = field(default_factory=lambda: dict.fromkeys(HEADER.offsets, 0))

    def __post_init__(self) -> None:
        self._heads = np.zeros(self.sizes.index_slots_count, np.int32)

    def add(self, block: Block) -> None:
        """Add the keys of a block's records."""
        pairs = key_pairs_with_typed_ids if self.with_typed_ids else key_pairs
        found = [pairs(block), *([tag_pairs(block)] if self.with_tags else [])]
        offsets, hashes = (np.concatenate(columns) for columns in zip(*found, strict=True))
        if not len(offsets):
            return
        order = np.argsort(offsets, kind="stable")
        offsets, hashes = offsets[order], hashes[order]
        at = np.searchsorted(block.commit_log_offsets, offsets)
        times, headed = block.header("store_time_ms")[at], plausible_times(block)[at]
        while len(offsets):
            room = self.sizes.index_entries_count - max(1, self._header["next_entry_number"])
            if self._file is None or room <= 0:
                self._begin(int(headed[0]))
                continue
            self._enter(offsets[:room], hashes[:room], times[:room], headed[:room])
            offsets, hashes, times, headed = offsets[room:], hashes[room:], times[room:], headed[room:]

    def finish(self) -> int:
        """Write what is still in memory, and return the number of files."""
        self._write_head()
        return len(self._names)

    def _begin(self, time_ms: int) -> None:
        """Start a new file, whose header begins with the end of the previous file."""
        if self._file is not None:
            self._write_head()
            self.completed_time_ms = self._header["end_time_ms"]
        end, end_ms = self._header["end_offset"], self._header["end_time_ms"]
        self._header = {
            "begin_time_ms": end_ms, "end_time_ms": end_ms, "begin_offset": end, "end_offset": end,
            "used_slots_count": 0, "next_entry_number": 1,
        }
        self._heads[:] = 0
        self._file = self.root / "index" / self._new_name(time_ms)

    def _new_name(self, time_ms: int) -> str:
        """Return a new file name: the time when the file was started, ascending."""
        time_ms = min(max(time_ms, 0), BROKER_TIME_MAX_MS)
        while (name := _name(time_ms)) in self._names:
            time_ms += 1
        self._names.add(name)
        return name

    def _enter(self, offsets: Int64s, hashes: Int64s, times: Int64s, headed: Int64s) -> None:
        """Add entries with the times of their records; the header gets `headed`, the times of plausible records."""
        header, count = self._header, len(offsets)
        first = header["next_entry_number"]
        entries = np.zeros(count, ENTRY.dtype)
        entries["key_hash"], entries["commit_log_offset"] = hashes, offsets
        entries["seconds_since_begin"] = self._seconds(times, int(headed[0]), is_first=first == 1)
        slots = hashes % len(self._heads)
        entries["previous_entry_number"] = self._previous(slots, first)
        header["used_slots_count"] = int(np.count_nonzero(self._heads))
        if first == 1:
            header["begin_offset"], header["begin_time_ms"] = int(offsets[0]), int(headed[0])
        header["end_offset"], header["end_time_ms"] = int(offsets[-1]), int(headed[-1])
        header["next_entry_number"] = first + count
        self.entries_count += count
        assert self._file is not None
        slots_bytes = INDEX_SLOT.size_bytes * len(self._heads)
        position = HEADER.size_bytes + slots_bytes + ENTRY.size_bytes * first
        size = HEADER.size_bytes + slots_bytes + ENTRY.size_bytes * self.sizes.index_entries_count
        write_at(self._file, size, position, entries.tobytes())

    def _seconds(self, times: Int64s, begin_ms: int, *, is_first: bool) -> Int64s:
        """Seconds after the header's begin time; for a file's first entry, after the begin time before that entry."""
        before = self._header["begin_time_ms"]
        begin = np.full(len(times), begin_ms if is_first else before)
        if is_first:
            begin[0] = before
        seconds = np.where(begin > 0, (times - begin) // 1000, 0)
        return np.clip(seconds, 0, _SECONDS_MAX).astype(np.int64)

    def _previous(self, slots: Int64s, first: int) -> Int64s:
        """Return for each entry the previous one in its slot, and set the slots' heads to the newest entries."""
        order = np.argsort(slots, kind="stable")
        ordered = slots[order]
        previous = np.empty(len(slots), np.int64)
        is_follower = np.concatenate([[False], ordered[1:] == ordered[:-1]])
        shifted = np.concatenate([[0], order[:-1] + first])
        previous[order] = np.where(is_follower, shifted, self._heads[ordered])
        self._heads[slots] = np.arange(first, first + len(slots))  # of several entries of a slot the last one stays
        return previous

    def _write_head(self) -> None:
        if self._file is None:
            return
        heads = self._heads.astype(">i4").tobytes()
        size = HEADER.size_bytes + len(heads) + ENTRY.size_bytes * self.sizes.index_entries_count
        write_at(self._file, size, 0, HEADER.pack(**self._header) + heads)
