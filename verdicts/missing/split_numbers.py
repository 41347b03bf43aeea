"""The half queue offsets of the half messages in one split of a log, and those that are not in their slot.

Half messages get their queue offsets in the order of the log, so one split has one ascending run of them. A half queue
that was deleted or rebuilt empty begins again at 0, and a failover before 5.2.0 may give two records one offset
(docs/formats/half_and_op.md#numbers).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from rmqtx.readers.log.record_at import block_at, stored_block
from rmqtx.readers.model.columns import Bools, Int64s, no_numbers
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.queues.consume_queue import Queue, open_queue
from rmqtx.readers.storage.segments import SegmentedLog
from rmqtx.readers.store.store import HALF_TOPIC, Store
from rmqtx.verdicts.model.verdict_inputs import NO_SLOT

_SLOTS_AT_ONCE = 1 << 20
#: The most half messages that a broker refused between two starts, so how many slots before its number one is (5.0.0,
#: 5.1.0).
REFUSED_MAX = 32


@dataclass(slots=True)
class SplitNumbers:
    """The half queue offsets in one split; small for any size of the split, unless slots and records differ.

    Shape: `runs`: first and last queue offset of each ascending run, and the commit-log offset at which it begins, in
           log order. `numbers`, `offsets`, `slots`: the
           half messages that the slot of their queue offset does not lead to: queue offset, commit-log offset, and the
           slot that leads to them (NO_SLOT). Those after the record of the last slot, which the broker has not
           dispatched yet, are left out. `contradicting`: commit-log offsets of half messages with a damaged queue
           offset, which the slot that leads to them contradicts; they are not in `runs`.
    """

    runs: list[tuple[int, int, int]] = field(default_factory=list)
    numbers: Int64s = field(default_factory=no_numbers)
    offsets: Int64s = field(default_factory=no_numbers)
    slots: Int64s = field(default_factory=no_numbers)
    contradicting: Int64s = field(default_factory=no_numbers)

    def add(self, other: SplitNumbers) -> None:
        """Add those of the next range of the log."""
        self.runs = [*self.runs, *other.runs]
        for name in ("numbers", "offsets", "slots", "contradicting"):
            setattr(self, name, np.concatenate([getattr(self, name), getattr(other, name)]))

    def slots_of(self, offsets: Int64s, numbers: Int64s) -> Int64s:
        """Return the slots of some half messages: for the shifted ones another than their number."""
        rows = np.flatnonzero(self.slots != NO_SLOT)
        if not len(rows) or not len(offsets):
            return numbers
        rows = rows[np.argsort(self.offsets[rows], kind="stable")]
        row = rows[np.minimum(np.searchsorted(self.offsets[rows], offsets), len(rows) - 1)]
        slots: Int64s = np.where(self.offsets[row] == offsets, self.slots[row], numbers)
        return slots

    def before(self, offset: int) -> SplitNumbers:
        """Return the numbers of the ranges before an offset, with as few runs as possible; no run has both."""
        kept = self.offsets < offset
        runs: list[tuple[int, int, int]] = []
        for first, last, begin in self.runs:
            if begin >= offset:
                continue
            if runs and runs[-1][1] < first:
                runs[-1] = runs[-1][0], last, runs[-1][2]
            else:
                runs.append((first, last, begin))
        contradicting = self.contradicting[self.contradicting < offset]
        return SplitNumbers(runs, self.numbers[kept], self.offsets[kept], self.slots[kept], contradicting)


def joined_numbers(parts: Iterable[SplitNumbers]) -> SplitNumbers:
    """Return the numbers of several splits, which are in log order."""
    whole = SplitNumbers()
    for part in parts:
        whole.add(part)
    return whole


def split_numbers(
    store: Store, offsets: Int64s, numbers: Int64s, begin_offset: int, end_offset: int
) -> SplitNumbers:
    """Return the half queue offsets in a range of the log.

    `offsets`, `numbers`: commit-log and queue offsets of the half messages of queue 0 in the range, in log order.
    """
    result = SplitNumbers(_runs(offsets, numbers))
    if not len(numbers) or store.has_rocksdb_queues:
        return result
    try:
        with open_queue(store, HALF_TOPIC, 0) as queue:
            last = last_half_offset(store, queue)
            if last is None:
                return result
            slots = _slots_of(queue, offsets, numbers, begin_offset, end_offset)
        are_shifted = _are_shifted(slots, numbers)
        _compare_ends(store, offsets, numbers, slots, are_shifted)
    except SourceError:
        return result  # a queue that cannot be read proves nothing
    is_damaged = (slots != NO_SLOT) & (slots != numbers) & ~are_shifted
    if is_damaged.any():
        result.runs, result.contradicting = _runs(offsets[~is_damaged], numbers[~is_damaged]), offsets[is_damaged]
    is_other = (slots != numbers) & (offsets <= last)
    is_other &= (slots == NO_SLOT) | are_shifted
    result.numbers, result.offsets, result.slots = numbers[is_other], offsets[is_other], slots[is_other]
    return result


def last_half_offset(store: Store, queue: Queue) -> int | None:
    """Return the commit-log offset in the last slot of the half queue; None without a half message.

    What lies before that offset and has no slot gets none: a broker dispatches the log in its order.
    """
    place = queue.last_place() if queue.exists else None
    return place if place is not None and is_half_at(store, place) else None


def is_half_at(store: Store, offset: int) -> bool:
    """Whether a sound half message begins at an offset of the log."""
    block = stored_block(store, offset)
    return block is not None and bool(block.topic_is(HALF_TOPIC)[0])


def is_shifted_slot(store: Store, log: SegmentedLog, number: int, offset: int) -> bool:
    """Whether a slot of the half queue leads to a half message with another number, as a slot beside it does.

    A start that dispatches half messages to a queue with another end shifts all of them by the same distance.
    Raises: SourceError.
    """
    distance = _distance(log, number, offset)
    if not distance:
        return False
    with open_queue(store, HALF_TOPIC, 0) as queue:
        numbers, places, _, _ = queue.read(number - 1, number + 2)
    return any(
        _distance(log, beside, place) == distance
        for beside, place in zip(numbers.tolist(), places.tolist(), strict=True) if beside != number
    )


def _distance(log: SegmentedLog, number: int, offset: int) -> int | None:
    """Return how far the queue offset of a half message is from the slot that leads to it; None without one."""
    block = block_at(log, offset)
    if block is None or not block.topic_is(HALF_TOPIC)[0] or block.header("queue_id")[0]:
        return None
    return int(block.header("queue_offset")[0]) - number


def _runs(offsets: Int64s, numbers: Int64s) -> list[tuple[int, int, int]]:
    if not len(numbers):
        return []
    cuts = np.flatnonzero(np.diff(numbers) <= 0) + 1
    begins, ends = np.concatenate([[0], cuts]), np.concatenate([cuts, [len(numbers)]]) - 1
    return list(zip(*(values.tolist() for values in (numbers[begins], numbers[ends], offsets[begins])), strict=True))


def _slots_of(queue: Queue, offsets: Int64s, numbers: Int64s, begin_offset: int, end_offset: int) -> Int64s:
    """Return the slot that leads to each half message; NO_SLOT if none does."""
    found = np.full(len(offsets), NO_SLOT, np.int64)
    first, last = queue.offset_of(begin_offset), queue.offset_of(end_offset)
    while first < last:
        slots, places, _, _ = queue.read(first, min(first + _SLOTS_AT_ONCE, last))
        if len(places):
            order = np.argsort(places, kind="stable")
            row = np.minimum(np.searchsorted(places[order], offsets), len(places) - 1)
            is_here = places[order][row] == offsets
            found[is_here] = slots[order][row[is_here]]
        first += _SLOTS_AT_ONCE
    # A damaged slot that points far away misleads the binary search by places.
    rows = np.flatnonzero((found == NO_SLOT) & (numbers >= queue.first_offset) & (numbers < queue.max_offset))
    rows = rows[np.argsort(numbers[rows], kind="stable")]
    rows = rows[queue.offsets_at(numbers[rows]) == offsets[rows]]
    found[rows] = numbers[rows]
    return found


def _compare_ends(store: Store, offsets: Int64s, numbers: Int64s, slots: Int64s, are_shifted: Bools) -> None:
    """Compare the first and the last half message of a range with their neighbours outside; changes `are_shifted`."""
    rows = [row for row in {0, len(slots) - 1} if slots[row] not in (NO_SLOT, numbers[row]) and not are_shifted[row]]
    with store.log() as log:
        for row in rows:
            are_shifted[row] = is_shifted_slot(store, log, int(slots[row]), int(offsets[row]))


def _are_shifted(slots: Int64s, numbers: Int64s) -> Bools:
    """Which half messages are in another slot by the same distance as a neighbour: one by itself is damage."""
    distance = np.where(slots == NO_SLOT, 0, slots - numbers)
    same = distance[1:] == distance[:-1]
    has_neighbour = np.concatenate([same, [False]]) | np.concatenate([[False], same])
    shifted: Bools = (distance != 0) & has_neighbour
    return shifted
