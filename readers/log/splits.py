"""Byte ranges of commit logs: the part that one task reads, in a process of this machine or a Spark executor.

A record contains its offset, so a split may begin anywhere: its scan finds the first record that begins in it, and
reads a record that crosses its end (`segment_scan.py`). The size of a split does not depend on the file's size, but for
one: the split in which the data of a log seems to end has the unused rest of its segment too. Its scan searches that
rest for a record, so splits of the rest would read it a second time.

A split after the end of its segment's data may have records that a recovery cut off. A recovery only moves the write
position; records that it cut off stay in the file until later writes cover them. A scan from the begin of a segment
stops where the data ends (`segment_scan.py`) and does not return these records. A scan that begins after the end cannot
see the end, so it first scans the ranges before. A process remembers the results, so it scans a segment at most once,
however small the splits are.
"""

from __future__ import annotations

import bisect
import itertools
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from rmqtx.readers.log.commit_log import WrittenEnd, last_with_data, written_end
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.segment_scan import SegmentScan, Span
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.remembered import unused_rests
from rmqtx.readers.store.store import Store

#: The size of one task: large enough that its start costs little, small enough that two cores end together.
SPLIT_BYTES = 128 << 20
#: In all segments except the last one, only a blank record ends the data, and it is not longer than the largest message
#: that a broker accepts (maxMessageSize, 4 MiB unless configured).
BLANK_BYTES_MAX = 64 << 20
#: An offset after all data, for a plan of a log whose end was not searched for.
UNSEARCHED = (1 << 63) - 1
_SEGMENTS_REMEMBERED_MAX = 64
_STORES_REMEMBERED_MAX = 64

#: A file in one snapshot: while its broker runs, another snapshot may have another end.
_Key = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class WorkDivision:
    """How an audit divides its work; no row depends on it.

    `split_bytes`: the bytes of one task; None: as the engine chooses. `temporary_directory`: where intermediate results
    are stored; None: where temporary files are.
    """

    split_bytes: int | None = None
    temporary_directory: str | None = None


BY_ENGINE = WorkDivision()


@dataclass(frozen=True, slots=True)
class Split:
    """A range of a segment to scan.

    Units: bytes of the file; `number` counts the splits of a plan. `is_last`: no later segment holds data.
    """

    number: int
    store: Store
    segment: Segment
    from_position: int
    to_position: int
    is_last: bool

    @property
    def offsets(self) -> tuple[int, int]:
        """The commit-log offsets of its range."""
        return self.segment.base_offset + self.from_position, self.segment.base_offset + self.to_position

    def scan(self) -> SegmentScan:
        """Return the scan of the range, which begins when it is iterated."""
        scan = SegmentScan(
            self.segment, from_position=self.from_position, to_position=self.to_position, is_last=self.is_last
        )
        scan.unused = unused_rests(self.store)
        return scan


@dataclass(frozen=True)
class SplitPlan:
    """The splits of some stores, numbered; the plan has only lengths, so it is small, and splits are made on demand.

    Shape: `ends` belongs to `stores`: where their data ends; `UNSEARCHED` for the offset makes all splits equally long.
    Units: bytes; `from_offset` and `to_offset` bound the commit-log offsets, the upper one excluded.
    Order: stores as given, commit-log offset ascending.
    """

    stores: tuple[Store, ...]
    ends: tuple[WrittenEnd, ...]
    split_bytes: int = SPLIT_BYTES
    from_offset: int | None = None
    to_offset: int | None = None

    def __len__(self) -> int:
        return self._firsts[-1]

    def __iter__(self) -> Iterator[Split]:
        return (self[number] for number in range(len(self)))

    def __getitem__(self, number: int) -> Split:
        if not 0 <= number < len(self):
            raise IndexError(number)
        row = bisect.bisect_right(self._firsts, number) - 1
        store_number, segment, begin, end, split_bytes = self._ranges[row]
        position = begin + (number - self._firsts[row]) * split_bytes
        return Split(
            number, self.stores[store_number], segment, position, min(position + split_bytes, end),
            segment.base_offset >= self.ends[store_number].last_base,
        )

    @property
    def total_bytes(self) -> int:
        """Bytes of all splits."""
        return sum(end - begin for _, _, begin, end, _ in self._ranges)

    @cached_property
    def sizes_bytes(self) -> Int64s:
        """The size of each split."""
        ranges = [(end - begin, split_bytes) for _, _, begin, end, split_bytes in self._ranges]
        lengths, wholes = np.array(ranges, np.int64).reshape(-1, 2).T
        counts = -(-lengths // wholes)
        sizes = np.repeat(wholes, counts)
        sizes[np.cumsum(counts) - 1] = lengths - (counts - 1) * wholes
        return sizes

    @cached_property
    def _ranges(self) -> list[tuple[int, Segment, int, int, int]]:
        ranges = []
        for number, (store, written) in enumerate(zip(self.stores, self.ends, strict=True)):
            for segment in store.commit_log:
                begin = max(0, (self.from_offset or 0) - segment.base_offset)
                end = segment.size_bytes
                if self.to_offset is not None:
                    end = min(end, self.to_offset - segment.base_offset)
                used = max(0, min(end, written.offset - segment.base_offset) - begin)
                rest = begin + max(0, -(-used // self.split_bytes) - 1) * self.split_bytes
                if begin < rest:
                    ranges.append((number, segment, begin, rest, self.split_bytes))
                if rest < end:
                    ranges.append((number, segment, rest, end, end - rest))
        return ranges

    @cached_property
    def _firsts(self) -> list[int]:
        counts = (-(-(end - begin) // split_bytes) for _, _, begin, end, split_bytes in self._ranges)
        return list(itertools.accumulate(counts, initial=0))


def plan_splits(
    stores: list[Store], *, split_bytes: int = SPLIT_BYTES, from_offset: int | None = None, to_offset: int | None = None
) -> SplitPlan:
    """Return the splits of some stores. Reads a few bytes of each log to find where its data ends. Units: bytes."""
    return SplitPlan(tuple(stores), tuple(map(written_end, stores)), split_bytes, from_offset, to_offset)


@dataclass(slots=True)
class _Looked:
    """How far a segment was scanned, and where its data ends if the scan found it. Units: bytes of the file."""

    upto: int
    end: int | None = None


_looked: OrderedDict[_Key, _Looked] = OrderedDict()
_last_bases: OrderedDict[tuple[str, int], int] = OrderedDict()


def settled(split: Split) -> Split:
    """Return the split with `is_last` by the bytes of the log. The end of the data is searched once per process."""
    return replace(split, is_last=split.segment.base_offset >= _last_base(split.store))


def live_blocks(split: Split) -> Iterator[Block]:
    """Yield the blocks of sound records of a split; none if the split begins after the end of its segment's data.

    Order:  position ascending.
    Damage: is skipped; `SplitResult` and the table `findings` report it.
    Raises: UnreadableFile, FileChanged.
    """
    scan = split.scan()
    blocks = iter(scan)
    first = next(blocks, None)
    if first is None or is_behind_end(split, int(first.positions[0])):
        return
    yield first
    yield from blocks
    looked = _looked_at(split)
    if looked.upto == split.from_position:
        _remember(looked, split.to_position, scan.spans, split.segment.size_bytes)


def is_behind_end(split: Split, first_position: int) -> bool:
    """Whether the first record of a split's scan, at a position of the file, stands after the data's end.

    The last record before that end may reach into the split, so the end may be in the split without a record before it.
    Raises: UnreadableFile, FileChanged.
    """
    looked = _looked_at(split)
    begin = split.from_position
    if looked.end is None and looked.upto < begin:
        scan = SegmentScan(split.segment, from_position=looked.upto, to_position=begin, is_last=split.is_last)
        for _ in scan:
            pass
        _remember(looked, begin, scan.spans, split.segment.size_bytes)
    return looked.end is not None and looked.end <= first_position


def _looked_at(split: Split) -> _Looked:
    segment = split.segment
    key = (segment.file, segment.size_bytes, split.store.taken_time_ms)
    looked = _looked.get(key)
    if looked is None:
        first = 0 if split.is_last else max(0, segment.size_bytes - BLANK_BYTES_MAX)
        looked = _looked[key] = _Looked(first)
        if len(_looked) > _SEGMENTS_REMEMBERED_MAX:
            _looked.popitem(last=False)
    return looked


def _remember(looked: _Looked, upto: int, spans: list[Span], size_bytes: int) -> None:
    looked.upto = max(looked.upto, upto)
    end = size_bytes
    for span in sorted(spans, key=lambda span: span.position_bytes, reverse=True):
        if span.position_bytes + span.length_bytes != end:
            break
        end = span.position_bytes
    if end < size_bytes:
        looked.end = end


def _last_base(store: Store) -> int:
    key = (store.root, store.taken_time_ms)
    base = _last_bases.get(key)
    if base is None:
        base = _last_bases[key] = last_with_data(store.commit_log)
        if len(_last_bases) > _STORES_REMEMBERED_MAX:
            _last_bases.popitem(last=False)
    return base
