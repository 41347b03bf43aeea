"""Progress of a stream that reads growing stores: commit-log offsets by store, and how far the next batch may go.

A stream stops at the last sound record: it reads neither a record that its broker has not completely written, nor
records that a recovery cut off. In all files except the last one with data every byte is final, so a batch may end
anywhere; in the last one, records are followed one by one to find the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from rmqtx.readers.log.commit_log import WrittenEnd, last_with_data, written_bytes
from rmqtx.readers.log.record_block import Block, end_in_zeros
from rmqtx.readers.log.segment_scan import SegmentScan
from rmqtx.readers.log.splits import UNSEARCHED, Split, SplitPlan, live_blocks
from rmqtx.readers.model.errors import BadRequest, FileChanged
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.store import Store

#: Root of a store → commit-log offset of the next byte to read. JSON as it is.
Offsets = dict[str, int]
#: Length before a place in which the last record is searched; more if that record is longer.
_BACK_BYTES = 64 << 10
_PAGE_BYTES = 4096


def initial_offsets(stores: list[Store], from_offset: int = 0) -> Offsets:
    """Return the begin of each log, or of its first record at or after `from_offset`.

    Raises: BadRequest if a log ends before `from_offset`; FileChanged, UnreadableFile.
    """
    return {store.root: _first_record(store, max(from_offset, store.log_begin_offset)) for store in stores}


def latest_offsets(
    stores: list[Store], start: Mapping[str, int], max_bytes: int | None = None, *, skips_lost: bool = False
) -> Offsets:
    """Return how far a batch from `start` may go: to the last sound record of each log, or about `max_bytes` in all.

    Shape:  every store of `start` and of `stores`; a new store begins at the begin of its log. Each store gets an equal
            part of `max_bytes`, and at least one record.
    Units:  bytes of the commit log.
    Damage: is skipped, as in any scan.
    Raises: FileChanged if files between `start` and the end no longer exist, unless `skips_lost`, or if the log was
            truncated before `start`; UnreadableFile.
    """
    roots = {store.root for store in stores}
    for root in start:
        if root not in roots:
            raise FileChanged(f"{root} is part of the stream and no longer exists", file=root)
    part_bytes = None if max_bytes is None else max(1, max_bytes // max(1, len(stores)))
    return {
        store.root: _latest(store, start.get(store.root, store.log_begin_offset), part_bytes, skips_lost)
        for store in stores
    }


def splits_between(
    stores: list[Store], start: Mapping[str, int], end: Mapping[str, int], split_bytes: int, *, skips_lost: bool = False
) -> list[Split]:
    """Return the splits of a batch, numbered; their records begin in [start, end), and repeated calls return the same.

    Order:  stores as given, commit-log offset ascending. The store of a split has only the segment of the split.
    Raises: FileChanged if files of the range no longer exist, unless `skips_lost`.
    """
    splits: list[Split] = []
    for store in stores:
        first, stop = start.get(store.root, store.log_begin_offset), end.get(store.root, 0)
        if first >= stop:
            continue
        if not skips_lost:
            _require_files(store, first, stop)
        last = last_with_data(store.commit_log)
        for split in SplitPlan((store,), (WrittenEnd(last, UNSEARCHED),), split_bytes, first, stop):
            alone = replace(store, commit_log=(split.segment,), findings=())
            splits.append(replace(split, number=len(splits), store=alone))
    return splits


def blocks_between(split: Split) -> Iterator[Block]:
    """Yield the blocks of sound records of a split from `splits_between`.

    In the last segment the range contains no records that a recovery cut off, because it ends before them.
    Raises: UnreadableFile, FileChanged.
    """
    return iter(split.scan()) if split.is_last else live_blocks(split)


def _first_record(store: Store, offset: int) -> int:
    """Return where the first record at or after an offset begins; in files that are final, the offset itself."""
    last = last_with_data(store.commit_log)
    segment = next((segment for segment in store.commit_log if segment.base_offset == last), None)
    if segment is None or offset <= segment.base_offset:
        return offset
    position, end = offset - segment.base_offset, 0
    for block in SegmentScan(segment, from_position=max(0, position - _BACK_BYTES), is_last=True):
        behind = block.positions[block.positions >= position]
        if len(behind):
            return segment.base_offset + int(behind[0])
        end = int(block.positions[-1] + block.lengths[-1])
    if end < position:
        raise BadRequest(
            f"{store.root}: the commit log ends before {offset}", advice="see rmqtx stores for the range of the log"
        )
    return offset


def _latest(store: Store, start: int, part_bytes: int | None, skips_lost: bool) -> int:
    if start > max((segment.end_offset for segment in store.commit_log), default=0):
        raise FileChanged(
            f"{store.root}: the commit log ends before the place that the stream has read to", file=store.root,
            field="end of the log", expected=f"offset {start} or more", actual="an earlier offset",
            advice="start a new stream; rows that this stream returned after the cut no longer exist in the store",
        )
    last = last_with_data(store.commit_log)
    place = start
    left_bytes = part_bytes
    for segment in store.commit_log:
        if (segment.end_offset <= place and segment.base_offset < last) or segment.base_offset > last:
            continue
        if segment.base_offset > place:
            if not skips_lost:
                raise _lost(store, place, segment.base_offset)
            place = segment.base_offset
        limit = segment.end_offset if left_bytes is None else min(segment.end_offset, place + left_bytes)
        end = limit if segment.base_offset < last else _last_end(store, segment, place, limit)
        if left_bytes is not None:
            left_bytes -= end - place
        place = end
        if left_bytes is not None and left_bytes <= 0:
            break
    return place


def _last_end(store: Store, segment: Segment, start: int, limit: int) -> int:
    """Return the offset after the last sound record from `start` on, in the last segment that holds data.

    The record begins in [start, limit), or, if damage leaves none there, in a larger range.
    """
    if store.in_use and _is_unwritten(segment, start - segment.base_offset):
        return start
    while True:
        end = _walked_end(segment, start, limit)
        if end > start or limit >= segment.end_offset:
            return end
        limit = min(segment.end_offset, start + 8 * (limit - start))


def _is_unwritten(segment: Segment, position: int) -> bool:
    """Whether no data follows a record's end, found out without reading the rest of the file each time."""
    end = -(-position // _PAGE_BYTES) * _PAGE_BYTES + _PAGE_BYTES
    with segment.open() as file:
        return written_bytes(segment) <= end and not file.read(position, end - position).strip(b"\0")


def _walked_end(segment: Segment, start: int, limit: int) -> int:
    """Return the offset after the last sound record that begins in [start, limit).

    While a broker writes, a record may be visible before the record in front of it. A second read sees the record in
    front, so only a record that is missing twice is damaged.
    """
    position, to_position = start - segment.base_offset, limit - segment.base_offset
    end, is_whole = _walk(segment, position, to_position)
    if not is_whole:
        end, _ = _walk(segment, position, to_position)
    return segment.base_offset + end


def _walk(segment: Segment, position: int, to_position: int) -> tuple[int, bool]:
    """Return where the last sound, finished record from `position` on ends, and whether no damage is before it."""
    back_bytes = _BACK_BYTES
    while True:
        begin = max(0, position - back_bytes)
        scan = SegmentScan(segment, from_position=begin, to_position=to_position, is_last=True)
        end: int | None = None
        for block in scan:
            if end is None and begin and int(block.positions[0]) >= position:
                break  # the record before is longer: without its store time, old records after the end look new
            _require_not_cut_back(segment, block, position)
            end = int(block.positions[-1] + block.lengths[-1])
            # A broker may be about to write the rest of the last record's properties.
            if end_in_zeros(block)[-1]:
                end = int(block.positions[-1])
        else:
            if end is not None and end < position:
                raise _cut_back(segment, position)
            reached = position if end is None else end
            is_whole = not any(
                span.kind == "damaged" and position <= span.position_bytes < reached for span in scan.spans
            )
            return reached, is_whole
        back_bytes *= 8


def _require_not_cut_back(segment: Segment, block: Block, position: int) -> None:
    before = int((block.positions < position).sum())
    if before and int(block.positions[before - 1] + block.lengths[before - 1]) > position:
        raise _cut_back(segment, position)


def _cut_back(segment: Segment, position: int) -> FileChanged:
    return FileChanged(
        f"{segment.file} was truncated and written again: no record ends at the place that the stream has read to",
        file=segment.file, position_bytes=position,
        advice="start a new stream; rows that this stream returned after the cut no longer exist in the store",
    )


def _require_files(store: Store, first: int, stop: int) -> None:
    place = first
    for segment in store.commit_log:
        if segment.end_offset <= place:
            continue
        if segment.base_offset > place:
            raise _lost(store, place, min(stop, segment.base_offset))
        place = segment.end_offset
        if place >= stop:
            return
    raise _lost(store, place, stop)


def _lost(store: Store, begin: int, end: int) -> FileChanged:
    return FileChanged(
        f"{store.root}: the files of commit-log offsets {begin} to {end} no longer exist, and the stream has not read "
        f"them",
        file=store.root, expected=f"offset {begin}", actual=f"offset {end}", field="begin of the log",
        advice="start a new stream, or set fail_on_data_loss to false to continue after them",
    )
