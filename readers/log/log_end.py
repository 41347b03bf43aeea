"""Find splits after the end of their segment's data, where records may stand that a recovery cut off.

A recovery only moves the write position; records that it cut off stay in the file until later writes cover them. A scan
from the begin of a segment stops where the data ends (`segment_scan.py`) and does not return these records. A scan that
begins after the end cannot see the end, so it first scans the ranges before. A process remembers the results, so it
scans a segment at most once, however small the splits are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from rmqtx.readers.log.commit_log import last_with_data
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.segment_scan import SegmentScan, Span
from rmqtx.readers.log.splits import Split
from rmqtx.readers.store.store import Store

#: In all segments except the last one, only a blank record ends the data, and it is not longer than the largest message
#: that a broker accepts (maxMessageSize, 4 MiB unless configured).
BLANK_BYTES_MAX = 64 << 20
_SEGMENTS_REMEMBERED_MAX = 64
_STORES_REMEMBERED_MAX = 64

#: A file in one snapshot: while its broker runs, another snapshot may have another end.
_Key = tuple[str, int, int]


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
