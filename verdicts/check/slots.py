"""The slots of the half and op queue that the check reads, and their records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rmqtx.readers.log.commit_log import scan_segments
from rmqtx.readers.log.record_at import blocks_at
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.queues.consume_queue import Queue
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, Store
from rmqtx.verdicts.startup.started_queues import StartedQueue

#: How far back the last slot with a record is searched.
_LAST_SLOTS = 4_096


@dataclass(slots=True)
class CheckedSlots:
    """Slots of a queue from `begin` to before `end`; invalid ones are skipped. Units: bytes of the log."""

    begin: int
    end: int
    numbers: Int64s
    offsets: Int64s
    lengths: Int64s


def half_queues(store: Store) -> list[int]:
    """Return the numbers of the half queues; 0 if there is none yet."""
    return [number for topic, number in store.queues() if topic == HALF_TOPIC] or [0]


def checked_slots(queue: Queue, cursor: int, minimum: int, started: StartedQueue | None = None) -> CheckedSlots:
    """Return the slots that a check reads from a cursor on.

    `minimum`: the queue's smallest offset. `started`: the queue as the check finds it, if not as it is stored.

    Raises: UnreadableFile, FileChanged.
    """
    started = StartedQueue(queue.max_offset, end=queue.max_offset) if started is None else started
    end = started.end
    begin = cursor if minimum <= cursor <= end else minimum
    numbers_added = started.added_numbers
    added_end = started.kept_end + len(numbers_added)
    numbers, offsets, lengths, _ = queue.read(begin, min(started.kept_end, end))
    again = queue.read(max(begin, added_end), end) if added_end < end else ()
    added = np.array(started.added, np.int64).reshape(-1, 2)
    more = numbers_added >= begin
    return CheckedSlots(
        begin, end,
        np.concatenate([numbers, numbers_added[more], *again[:1]]),
        np.concatenate([offsets, added[more, 0], *again[1:2]]),
        np.concatenate([lengths.astype(np.int64), added[more, 1], *again[2:3]]),
    )  # fmt: skip


def unqueued(store: Store, queue_id: int, halves: Queue, ops: Queue) -> dict[str, list[tuple[int, int]]]:
    """Return half and op messages of the log that a running broker adds to their queues in a moment, or a killed one at
    a start that is not predicted (`started_queues.py` has those that are): commit-log offset and length of each.
    """
    ends = {HALF_TOPIC: _last_offset(store, halves), OP_TOPIC: _last_offset(store, ops)}
    found: dict[str, list[tuple[int, int]]] = {topic: [] for topic in ends}
    for block in scan_segments(store, [], [], from_offset=min(ends.values()), with_fillers=True):
        mine = block.header("queue_id") == queue_id
        for topic, end in ends.items():
            behind = block.take(mine & block.topic_is(topic) & (block.commit_log_offsets > end))
            found[topic].extend(zip(behind.commit_log_offsets.tolist(), behind.lengths.tolist(), strict=True))
    return found


def _last_offset(store: Store, queue: Queue) -> int:
    """Commit-log offset of a queue's last record; just before the log if it has none."""
    last = queue.read(max(0, queue.max_offset - _LAST_SLOTS), queue.max_offset)[1].tolist()  # a bundle leaves some out
    return int(last[-1]) if last else store.log_begin_offset - 1


def numbers_of_own(block: Block, numbers: Int64s, topic: str, queue_id: int) -> Int64s:
    """Return the slot numbers of the records that are of the queue and have this number in it."""
    is_own = (block.header("queue_offset") == numbers) & (block.header("queue_id") == queue_id)
    own: Int64s = numbers[is_own & block.topic_is(topic)]
    return own


def slots_without_record(
    store: Store, topic: str, queue_id: int, slots: CheckedSlots, own_numbers: list[Int64s], fillers: Int64s
) -> Finding | None:
    """Return a finding for slots that point to no record of their own; None if there are none.

    Slots of expired records are not included: brokers delete the oldest files of a log and leave the slots.
    `own_numbers`: as `numbers_of_own` returns them, and the slots that a start adds. `fillers`: those among the slots;
    check-skips is their finding.
    """
    due = slots.numbers[slots.offsets >= store.log_begin_offset]
    without = np.setdiff1d(due, np.concatenate([np.empty(0, np.int64), *own_numbers]))
    skipped = np.setdiff1d(fillers, slots.numbers)  # a start may write a record's slot over a filler
    unread = slots.end - slots.begin - len(slots.numbers) - len(skipped)  # invalid entries are no slots
    if not len(without) and unread <= 0:
        return None
    first = f", the first number {without[0]}" if len(without) else ""
    what = f"those of {len(without) + max(0, unread)} slots of {topic}/{queue_id}{first}"
    return Finding(store.root, "undecidable", actual=f"{what}: no record of their own is there")


def records_of(store: Store, slots: CheckedSlots) -> Iterator[tuple[Block, Int64s]]:
    """Return the records of slots, including fillers for lost ones, with their slot numbers.

    A record that is shorter than in the slot is read too: where a power loss took the end of the log and left the slot,
    a later record may begin at its place. For place 0 a broker reads at the begin of the log.
    """
    order = np.argsort(slots.offsets, kind="stable")
    numbers, offsets, lengths = slots.numbers[order], slots.offsets[order], slots.lengths[order]
    log = store.log()
    try:
        found = [np.empty(0, np.int64)]
        for block in blocks_at(log, offsets, lengths, with_fillers=True):
            found.append(block.commit_log_offsets)
            yield block, numbers[np.searchsorted(offsets, block.commit_log_offsets)]
        left = offsets >= log.begin_offset
        left &= ~np.isin(offsets, np.concatenate(found))
        for block in blocks_at(log, offsets[left], with_fillers=True) if left.any() else ():
            rows = np.searchsorted(offsets, block.commit_log_offsets)
            is_shorter = block.lengths <= lengths[rows]
            if is_shorter.any():
                yield block.take(is_shorter), numbers[rows[is_shorter]]
        if log.begin_offset and len(offsets) and not offsets[0]:
            for block in blocks_at(log, [log.begin_offset], with_fillers=True):
                if block.lengths[0] <= lengths[0]:
                    yield block, numbers[:1]
    finally:
        log.close()
