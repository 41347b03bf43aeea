"""The slots of the half and op queue that the check reads, their records, and what the store returns without one.

If no record can be read at the place that a slot names, the store skips each following slot whose record is in the same
file of the log, and returns the first record of a later file instead. It reads to the end of the slot's file or 800
slots, whichever comes first; the check continues where the read ended. So slots that are only skipped are never
checked, and a record that is returned for several slots is checked once for each of them. The same is so for a slot
without a length, which a start can leave behind the last record of a queue: the store reads no bytes for it, and
returns the record of the next slot. A record at its place that cannot be decoded is another case:
`half_queue_check.py`.

Source: store/DefaultMessageStore.java getMessage, CommitLog.java getMessage, rollNextFile (4.3.0 to 5.5.0);
docs/formats/half_and_op.md#skipped-slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rmqtx.readers.log.commit_log import scan_segments, written_end
from rmqtx.readers.log.record_at import blocks_at
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.queues.consume_queue import Queue
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, Store
from rmqtx.verdicts.startup.started_queues import StartedQueue

#: How far back the last slot with a record is searched.
_LAST_SLOTS = 4_096
#: maxFilterMessageSize of 16,000 bytes: the slots that one read examines.
READ_SLOTS_MAX = 800
#: The own place of a slot is in no file that a new record can end in.
NEVER_READABLE = 1 << 62


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
    return store.queue_numbers(HALF_TOPIC) or [0]


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
    )


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


def known_end(store: Store, queue: Queue, cursor: int) -> int:
    """Return where a queue ends in the log as it was when its store was opened; not before the cursor of the check.

    A running broker writes on: its newest slots may lead into files of the log that it has made since.
    """
    end, log_end = queue.max_offset, store.log().end_offset
    while end > max(cursor, queue.first_offset):
        begin = max(queue.first_offset, end - _LAST_SLOTS)
        numbers, offsets, _, _ = queue.read(begin, end)
        are_known = np.flatnonzero(offsets < log_end)
        if len(are_known):
            newer = numbers[are_known[-1] + 1 :].tolist()
            end = newer[0] if newer else end
            break
        end = begin
    return max(end, min(cursor, queue.max_offset))


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
    with store.log() as log:
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


class SlotRead(NamedTuple):
    """The answer of the store for a slot without a record at its place.

    Shape: `returned`: the slot whose record is returned instead; None if no stored slot has one. `end`: where the read
           ends without a record. `limit`: where it ends at the latest; copies that the check appends can lie between.
           `sees_copies`: whether those copies are returned: they are in a later file of the log.
           `readable_from`: the place that the end of the log must reach before the slot's own place can be read, which
           then has a record that is written there; `own_place`: that place, -1 if it can never be read.
           `is_found`: the store returns no bytes for the slot, but counts it as found: the broker gets an empty list,
           before 4.9.5 and on 5.0.0 with an exception.
    """

    returned: int | None
    end: int
    limit: int
    sees_copies: bool
    readable_from: int = NEVER_READABLE
    is_found: bool = False
    own_place: int = -1

    def hides(self, number: int) -> bool:
        """Whether the store passes the record that gets the slot of a number, the first after the stored ones."""
        return self.returned is None and number < self.limit and not self.sees_copies


class LogPlaces(NamedTuple):
    """The places of a log that a broker can read. Units: bytes; `end`: past the last record."""

    begin: int
    file_bytes: int
    end: int

    @classmethod
    def of(cls, store: Store, known_end: int = 0) -> LogPlaces:
        """Return the places of a store's log; its end is known to be at or after a place."""
        segments = store.commit_log
        size = segments[0].size_bytes if segments else 0
        return cls(store.log_begin_offset, size, max(known_end, written_end(store).offset))

    def are_readable(self, offsets: Int64s, lengths: Int64s) -> Bools:
        """Return at which places the broker gets bytes. A length that is not positive is a matter of content.

        For place 0 it gets those at the begin of the log (CommitLog.java getMessage, findMappedFileByOffset).
        """
        if not self.file_bytes:
            return np.zeros(len(offsets), np.bool_)
        places = np.where(offsets == 0, self.begin, offsets)
        file_begins = places - places % self.file_bytes
        room = np.minimum(file_begins + self.file_bytes, self.end) - places
        found: Bools = (places >= self.begin) & (np.maximum(lengths, 0) <= room)
        return found

    def next_file(self, offset: int) -> int:
        """Return where the file after that of a place begins."""
        return offset - offset % self.file_bytes + self.file_bytes if self.file_bytes else offset


def passed_slots(reads: Mapping[int, SlotRead], cursor: int, end: int) -> Int64s:
    """Return the numbers of the slots from a cursor on that a round passes without reading them. Order: ascending."""
    passed: list[int] = []
    while cursor < end:
        read = reads.get(cursor)
        after = cursor + 1 if read is None or read.returned is not None else max(read.end, cursor + 1)
        passed += range(cursor + 1, after)
        cursor = after
    return np.array(passed, np.int64)


def slot_reads(
    log: LogPlaces, begin: int, offsets: Int64s, lengths: Int64s, file_ends: Int64s, are_known: Bools
) -> dict[int, SlotRead]:
    """Return what the store returns for each slot without a record at its place.

    `offsets`, `lengths`: of the slots from `begin` on. `file_ends`: where the files of the queue end. `are_known`:
    which slots have a known value; the others have no answer.
    """
    are_at_places = log.are_readable(offsets, lengths)
    are_readable = are_at_places & (lengths != 0)
    found: dict[int, SlotRead] = {}
    stored_end = begin + len(offsets)
    for row in np.flatnonzero(~are_readable & are_known).tolist():
        number = begin + row
        after = file_ends[file_ends > number]
        limit = number + READ_SLOTS_MAX if not len(after) else min(number + READ_SLOTS_MAX, int(after[0]))
        next_file = 0 if are_at_places[row] else log.next_file(max(0, int(offsets[row])))
        returned = None
        for later in range(row + 1, min(limit, stored_end) - begin):
            if offsets[later] < next_file:
                continue
            if are_readable[later]:
                returned = begin + later
                break
            if not are_at_places[later]:
                next_file = log.next_file(int(offsets[later]))
        place = int(offsets[row])
        own_end = place + max(0, int(lengths[row]))
        is_ahead = not are_at_places[row] and place >= log.begin and own_end <= log.next_file(place)
        found[number] = SlotRead(
            returned, min(limit, stored_end), limit, log.end >= next_file, own_end if is_ahead else NEVER_READABLE,
            is_found=bool(are_at_places[row]), own_place=place if is_ahead else -1,
        )
    return found
