"""What is missing where a log seems to end, though its queues know records behind that place in the same file.

A block that is gone moves all that follows it, and no record behind it states its own place any more; pages that were
never written are zeros. Both look like the bytes behind the end of a log, and only the queues know better.
"""

from __future__ import annotations

from collections.abc import Sequence

from readers.consume_queue import open_queue
from readers.errors import SourceError
from readers.missing import UNFOUND_SLOTS_FEW, UnfoundSlot, stands_between_its_neighbours
from readers.sources import Segment
from readers.store import Store


def lost_tails(
    store: Store, tails: Sequence[tuple[Segment, int, int]], unfound: Sequence[UnfoundSlot]
) -> list[tuple[Segment, int, int]]:
    """The parts of what seems to lie behind the end of the log that held records, as (segment, position, length).

    `tails`: (segment, position, length) of what seems unused. Up to the last record that a queue knows there; nothing
    in a store in use, whose queues are read later than its log.
    Units: bytes.
    """
    if store.in_use:
        return []
    lost = []
    for segment, position, length in tails:
        begin, end = segment.base_offset + position, segment.base_offset + position + length
        mine = [slot for slot in unfound if begin <= slot.commit_log_offset < end]
        fitting = {topic for topic in {slot.topic for slot in mine} if _fits_before(store, topic, begin, unfound)}
        believed = [slot for slot in mine if slot.topic in fitting]
        if len(believed) <= UNFOUND_SLOTS_FEW:  # so few may be damaged themselves
            believed = [slot for slot in believed if not stands_between_its_neighbours(store, slot)]
        if believed:
            last = max(slot.commit_log_offset + slot.record_length_bytes for slot in believed)
            lost.append((segment, position, min(last, end) - begin))
    return lost


def _fits_before(store: Store, topic: str, end_offset: int, unfound: Sequence[UnfoundSlot]) -> bool:
    """Whether most slots of a queue before a place of the log lead to their records: else it is another log's queue."""
    wrong = sum(slot.topic == topic and slot.commit_log_offset < end_offset for slot in unfound)
    try:
        with open_queue(store, topic, 0) as queue:
            return 2 * wrong <= queue.offset_of(end_offset) - queue.min_offset
    except SourceError:  # a queue that cannot be read proves nothing against the log
        return False
