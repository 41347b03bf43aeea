"""Slots of queues whose record was not found in the log, and what the log shows about their places."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rmqtx.readers.log.prepared_records import is_prepared, is_rollback
from rmqtx.readers.log.record_layout import CRC_MASK
from rmqtx.readers.log.segment_scan import SegmentScan
from rmqtx.readers.model.columns import Int32s, Int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.storage.segments import Segment, SegmentedLog
from rmqtx.readers.store.store import Store

_SLOTS_AT_ONCE = 1 << 20
#: How far from the records of its neighbours the record of a slot is searched for.
SEARCHED_BYTES_MAX = 32 << 20
#: How far before a place its record is searched for: at first, and at most (records are at most 4 MiB by default).
_BACK_BYTES = (64 << 10, 8 << 20)
#: After this number of slots in a row that the log refutes, the next ones are of an older log too: a broker writes the
#: slots of a queue in order, and would have replaced them.
STALE_RUN_MIN = 2


@dataclass(frozen=True, slots=True)
class UnfoundSlot:
    """A slot of the half, op or discard queue whose record is missing; of any queue if the log has prepared records.

    Units: bytes of the commit log.
    """

    topic: str
    queue_offset: int
    commit_log_offset: int
    record_length_bytes: int
    queue_id: int = 0


def unfound_slots(
    store: Store, topic: str, offsets: Int64s, queue_offsets: Int64s, begin_offset: int, end_offset: int
) -> list[UnfoundSlot]:
    """Return queue slots that point into a range of the log where their record was not found.

    `offsets`, `queue_offsets`: places and slots of the topic's records of queue 0 in the range, in log order.
    Units: bytes of the commit log.
    """
    unfound: list[UnfoundSlot] = []
    try:
        with open_queue(store, topic, 0) as queue:
            first, last = queue.offset_of(begin_offset), queue.offset_of(end_offset)
            while first < last:
                numbers, places, lengths, _ = queue.read(first, min(first + _SLOTS_AT_ONCE, last))
                is_asked = (places >= begin_offset) & (places < end_offset)
                unfound += unfound_among(
                    topic, numbers[is_asked], places[is_asked], lengths[is_asked], offsets, queue_offsets
                )
                first += _SLOTS_AT_ONCE
    except SourceError:
        pass  # a queue that cannot be read proves nothing against the log
    return unfound


def unfound_among(
    topic: str, numbers: Int64s, places: Int64s, lengths: Int32s | Int64s, offsets: Int64s, queue_offsets: Int64s
) -> list[UnfoundSlot]:
    """Return the slots of queue 0 of a topic that point to none of its records.

    `numbers`, `places`, `lengths` are the slots'; `offsets`, `queue_offsets` the records', in the order of the log.
    """
    absent = np.ones(len(places), np.bool_)
    if len(offsets):
        row = np.minimum(np.searchsorted(offsets, places), len(offsets) - 1)
        absent = (offsets[row] != places) | (queue_offsets[row] != numbers)
    return [
        UnfoundSlot(topic, int(numbers[row]), int(places[row]), int(lengths[row]))
        for row in np.flatnonzero(absent).tolist()
    ]


def stands_between_its_neighbours(store: Store, slot: UnfoundSlot) -> bool:
    """Whether the log has the record of a damaged slot at a place between the records of its neighbours."""
    number = slot.queue_offset
    with open_queue(store, slot.topic, slot.queue_id) as queue:
        before = queue.read(number - 1, number)[1].tolist()
        behind = queue.read(number + 1, number + 2)[1].tolist()
    begin = before[0] if before else store.log_begin_offset
    end = behind[0] if behind else begin + SEARCHED_BYTES_MAX
    for segment in store.commit_log:
        low, high = max(begin - segment.base_offset, 0), min(end - segment.base_offset, segment.size_bytes)
        if low >= high or end - begin > SEARCHED_BYTES_MAX:
            continue
        for block in SegmentScan(segment, from_position=low, to_position=high):
            rows = block.topic_is(slot.topic) & ~(is_prepared(block) | is_rollback(block))  # these are in no queue
            if (rows & (block.header("queue_offset") == number) & (block.header("queue_id") == slot.queue_id)).any():
                return True
    return False


def record_around(segment: Segment, position: int) -> int | None:
    """Return where the record begins that contains a place, and does not begin there; None if no sound record does.

    A record with a body that contradicts its CRC is not sound: its lengths may be damaged too.
    Units: bytes in the file.
    Raises: UnreadableFile.
    """
    for back in _BACK_BYTES:
        begin = max(0, position - back)
        for block in SegmentScan(segment, from_position=begin, to_position=position + 1):
            begins = block.commit_log_offsets - segment.base_offset
            ends = begins + block.header("length_bytes")
            for row in np.flatnonzero((begins < position) & (position < ends)).tolist():
                body = block.bodies()[row].as_py()
                is_whole = body is not None and zlib.crc32(body) & CRC_MASK == int(block.header("body_crc")[row])
                return int(begins[row]) if is_whole else None
        if begin == 0:
            break
    return None


def are_refuted(log: SegmentedLog, offsets: Sequence[int]) -> bool:
    """Whether the last slots of a queue, STALE_RUN_MIN in number, all point into sound records.

    `offsets`: their places, as commit-log offsets.
    """
    if len(offsets) < STALE_RUN_MIN:
        return False
    for offset in offsets:
        segment = log.segment_at(offset)
        if segment is None or record_around(segment, offset - segment.base_offset) is None:
            return False
    return True
