"""How far a reading of growing stores has come, and how far it may go: commit-log offsets by store.

A stream never goes behind the last sound record: not into a record that its broker has not written to its end, not into
what a recovery once cut off. In all files but the last one that holds data, every byte is final, so a batch may end
anywhere in them; in the last one the records are walked to find the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from readers.log.commit_log import last_with_data, written_bytes
from readers.log.log_end import live_blocks
from readers.log.record_block import Block
from readers.log.segment_scan import SegmentScan
from readers.log.splits import Split, SplitPlan
from readers.model.errors import BadRequest, FileChanged
from readers.storage.segments import Segment
from readers.store.store import Store

#: Root of a store → commit-log offset of the next byte to read. JSON as it is.
Offsets = dict[str, int]
#: Bytes before a place in which its last record is looked for; more where that one is longer.
_BACK_BYTES = 64 << 10
_PAGE_BYTES = 4096


def initial_offsets(stores: list[Store], from_offset: int = 0) -> Offsets:
    """The begin of each log that is here, or of its first record at or behind `from_offset`.

    Raises: BadRequest if a log ends before that; FileChanged, UnreadableFile.
    """
    return {store.root: _first_record(store, max(from_offset, store.log_begin_offset)) for store in stores}


def latest_offsets(
    stores: list[Store], start: Mapping[str, int], max_bytes: int | None = None, *, skips_lost: bool = False
) -> Offsets:
    """How far a batch from `start` may go: to the last sound record of each log, or about `max_bytes` in all.

    Shape:  every store of `start` and of `stores`; one that is new begins at its log's begin. Each store gets an equal
            part of `max_bytes`, and at least one record.
    Units:  bytes of the commit log.
    Damage: is passed over; the batch's scan steps over it as any scan does.
    Raises: FileChanged if records between `start` and the end are gone from the files, unless `skips_lost`, or the log
            was cut back behind `start`; UnreadableFile.
    """
    roots = {store.root for store in stores}
    for root in start:
        if root not in roots:
            raise FileChanged(f"{root} is part of the stream and is not there any more", file=root)
    part_bytes = None if max_bytes is None else max(1, max_bytes // max(1, len(stores)))
    return {
        store.root: _latest(store, start.get(store.root, store.log_begin_offset), part_bytes, skips_lost)
        for store in stores
    }


def splits_between(
    stores: list[Store],
    start: Mapping[str, int],
    end: Mapping[str, int],
    split_bytes: int,
    *,
    skips_lost: bool = False,
) -> list[Split]:
    """The splits of a batch, numbered; their records are those that begin in [start, end), whenever it is asked.

    Order:  stores as given, commit-log offset ascending. The store of a split has that one segment only.
    Raises: FileChanged if files of the range are gone, unless `skips_lost`.
    """
    splits: list[Split] = []
    for store in stores:
        first, stop = start.get(store.root, store.log_begin_offset), end.get(store.root, 0)
        if first >= stop:
            continue
        if not skips_lost:
            _require_files(store, first, stop)
        last = last_with_data(store.commit_log)
        for split in SplitPlan((store,), (last,), split_bytes, first, stop):
            alone = replace(store, commit_log=(split.segment,), findings=())
            splits.append(replace(split, number=len(splits), store=alone))
    return splits


def blocks_between(split: Split) -> Iterator[Block]:
    """The blocks of sound records of a split that `splits_between` gave.

    In the last segment nothing that a recovery cut off can be in its range, for the walk ended before that.
    Raises: UnreadableFile, FileChanged.
    """
    return iter(split.scan()) if split.is_last else live_blocks(split)


def _first_record(store: Store, offset: int) -> int:
    """Where the first record at or behind an offset begins; in files that are final, any offset will do."""
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
        raise BadRequest(f"{store.root}: the commit log ends before {offset}", advice="look at rmqtx stores")
    return offset


def _latest(store: Store, start: int, part_bytes: int | None, skips_lost: bool) -> int:
    if start > max((segment.end_offset for segment in store.commit_log), default=0):
        raise FileChanged(
            f"{store.root}: the commit log is shorter than what the stream has read", file=store.root,
            field="end of the log", expected=f"offset {start} or more", actual="an earlier one",
            advice="begin a new stream; what this one gave behind the cut is no more",
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
    """The offset behind the last sound record from `start` on, in the last segment that holds data.

    One that begins in [start, limit); where damage leaves none there, the first ones behind it.
    """
    if store.in_use and _is_unwritten(segment, start - segment.base_offset):
        return start
    while True:
        end = _walked_end(segment, start, limit)
        if end > start or limit >= segment.end_offset:
            return end
        limit = min(segment.end_offset, start + 8 * (limit - start))


def _is_unwritten(segment: Segment, position: int) -> bool:
    """Whether nothing stands from a record's end on, told without looking through the rest of the file each time."""
    end = -(-position // _PAGE_BYTES) * _PAGE_BYTES + _PAGE_BYTES
    with segment.open() as file:
        return written_bytes(segment) <= end and not file.read(position, end - position).strip(b"\0")


def _walked_end(segment: Segment, start: int, limit: int) -> int:
    """The offset behind the last sound record that begins in [start, limit).

    A broker writes while this reads: a record may be seen before the one in front of it. What was written before is
    there when it is read again, so only what is missing twice is damage.
    """
    position, to_position = start - segment.base_offset, limit - segment.base_offset
    end, is_whole = _walk(segment, position, to_position)
    if not is_whole:
        end, _ = _walk(segment, position, to_position)
    return segment.base_offset + end


def _walk(segment: Segment, position: int, to_position: int) -> tuple[int, bool]:
    """Where the last sound record from `position` on ends, and whether records follow one another up to there."""
    back_bytes = _BACK_BYTES
    while True:
        begin = max(0, position - back_bytes)
        scan = SegmentScan(segment, from_position=begin, to_position=to_position, is_last=True)
        end: int | None = None
        for block in scan:
            if end is None and begin and int(block.positions[0]) >= position:
                break  # the record before is longer: without its store time, older records behind the end look new
            _require_not_cut_back(segment, block, position)
            end = int(block.positions[-1] + block.lengths[-1])
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
        f"{segment.file} was cut back and written again: no record ends where the stream had read to",
        file=segment.file, position_bytes=position,
        advice="begin a new stream; what this one gave behind the cut is no more",
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
        f"{store.root}: the files of commit-log offsets {begin} to {end} are gone, and the stream has not read them",
        file=store.root, expected=f"offset {begin}", actual=f"offset {end}", field="begin of the log",
        advice="begin a new stream, or set fail_on_data_loss to false to go on behind them",
    )
