"""Files of a log whose records are those of another log: the slots that lead into them find other records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.missing.unfound_slots import STALE_RUN_MIN, UnfoundSlot


def files_of_another_log(store: Store, unfound: Sequence[UnfoundSlot]) -> Iterator[tuple[Segment, str, int]]:
    """Yield each file of another log, with a topic that shows this and the number of its slots that lead into the file.

    None of these slots leads to its record, and the queue goes on with a slot that does: then the queue is of the log
    of the later file. Where a whole queue contradicts the log, either may be the other one; the last slots of a queue
    can be left of records that a recovery has cut off.
    `unfound`: the slots whose record is not in the log, without those that lead into damaged bytes.
    Damage: a queue that cannot be read proves nothing.
    """
    absent: dict[str, set[int]] = defaultdict(set)
    for slot in unfound if len(store.commit_log) > 1 else ():
        if slot.queue_id == 0:
            absent[slot.topic].add(slot.queue_offset)
    for segment in store.commit_log if absent else ():
        counts = {topic: _slots_into(store, segment, topic, numbers) for topic, numbers in absent.items()}
        shown = [topic for topic, count in counts.items() if count >= STALE_RUN_MIN]
        if shown and min(counts.values()) >= 0:
            yield segment, shown[0], counts[shown[0]]


def _slots_into(store: Store, segment: Segment, topic: str, absent: set[int]) -> int:
    """Return the number of slots of a topic that lead into a file, if none of them is right, but the next one is.

    Shape: −1 if one is right; 0 if they show nothing. Two brokers may have messages with one number at one place, but
           hardly with one length, except the first one.
    """
    try:
        with open_queue(store, topic, 0) as queue:
            first, last = (queue.offset_of(offset) for offset in (segment.base_offset, segment.end_offset))
            numbers, places, lengths, _ = queue.read(first, last + 1)
    except SourceError:
        return 0
    is_inside = (places > segment.base_offset + segment.frame_bytes) & (places < segment.end_offset)
    slots = list(zip(*(values[is_inside].tolist() for values in (numbers, places, lengths)), strict=True))
    with store.log() as log:
        for number, place, length in slots:
            block = None if number in absent else block_at(log, place)
            if block is not None and int(block.lengths[0]) == length:
                return -1
    is_behind = len(places) and places[-1] >= segment.end_offset and int(numbers[-1]) not in absent
    return len(slots) if is_behind else 0
