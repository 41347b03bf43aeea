"""Slots that queues get after a following audit has read their records: the broker writes queues after the log.

Each split is compared with the slots that exist when it is read (`missing_ranges.py`); later slots are compared here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.storage.segments import Segment, SegmentedLog
from rmqtx.readers.store.store import HALF_TOPIC, Store
from rmqtx.verdicts.missing.missing_ranges import COMPARED_TOPICS, UnfoundSlot
from rmqtx.verdicts.missing.split_numbers import is_shifted_slot


def slot_counts(store: Store) -> dict[str, int]:
    """Return topic → queue offset after its last slot; an unreadable queue proves nothing and is skipped."""
    counts: dict[str, int] = {}
    for topic in COMPARED_TOPICS:
        try:
            with open_queue(store, topic, 0) as queue:
                counts[topic] = queue.max_offset
        except SourceError:
            continue
    return counts


def compared_slots(store: Store, counts: Mapping[str, int], offset: int) -> dict[str, int]:
    """Return topic → queue offset up to which slots are compared when the log is read up to `offset`.

    `counts`: the slots that existed before the log was read.
    """
    compared: dict[str, int] = {}
    for topic, count in counts.items():
        try:
            with open_queue(store, topic, 0) as queue:
                compared[topic] = min(count, queue.offset_of(offset))
        except SourceError:
            continue
    return compared


def unfound_late_slots(
    store: Store, compared: Mapping[str, int], offset: int
) -> Iterator[tuple[UnfoundSlot, Segment]]:
    """Return slots after the compared ones whose record before `offset` is missing, and its segment.

    Raises: UnreadableFile, FileChanged, for the log.
    """
    log = store.log()
    try:
        for topic in COMPARED_TOPICS:
            for slot in _late(store, topic, compared.get(topic), offset):
                segment = log.segment_at(slot.commit_log_offset)
                if segment is None or slot.commit_log_offset >= offset or _is_there(log, slot):
                    continue
                if topic != HALF_TOPIC or not is_shifted_slot(store, log, slot.queue_offset, slot.commit_log_offset):
                    yield slot, segment
    finally:
        log.close()


def _late(store: Store, topic: str, first: int | None, offset: int) -> Iterator[UnfoundSlot]:
    try:
        with open_queue(store, topic, 0) as queue:
            begin = queue.min_offset if first is None else max(first, queue.min_offset)
            numbers, places, lengths, _ = queue.read(begin, queue.offset_of(offset))
    except SourceError:
        return
    for slot in zip(numbers.tolist(), places.tolist(), lengths.tolist(), strict=True):
        yield UnfoundSlot(topic, *slot)


def _is_there(log: SegmentedLog, slot: UnfoundSlot) -> bool:
    block = block_at(log, slot.commit_log_offset)
    return (
        block is not None
        and bool(block.topic_is(slot.topic)[0])
        and int(block.header("queue_offset")[0]) == slot.queue_offset
        and int(block.header("queue_id")[0]) == 0
    )
