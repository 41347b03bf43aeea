"""Finds the half messages that a refused one moved to another slot, where only one of them is beside the other.

5.0.0 and 5.1.0 give a half message its half queue offset before they refuse it, so the next ones are in the slots
before theirs, until the next start (docs/formats/half_and_op.md#numbers). Of several, all are shifted by the same
distance. One alone looks as if its number was damaged: nothing in the store shows which of both happened.

No state depends on it, unless an op message after it names its slot, which would be its number if that one was damaged.
An op message that names its number may be its decision, or that of the half message in the slot with this number.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from rmqtx.readers.log.op_messages import ops_of
from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.log.splits import Split
from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.releases import REFUSED_TAKES_NUMBER
from rmqtx.readers.queues.consume_queue import Queue, open_queue
from rmqtx.readers.storage.segments import SegmentedLog
from rmqtx.readers.store.broker_settings import BrokerSettings
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, Store
from rmqtx.verdicts.ends.taken_numbers import named_numbers
from rmqtx.verdicts.missing.split_numbers import REFUSED_MAX, SplitNumbers
from rmqtx.verdicts.missing.unfound_slots import UnfoundSlot
from rmqtx.verdicts.model.verdict_inputs import NO_SLOT


def with_refused(
    store: Store, settings: BrokerSettings, numbers: SplitNumbers, splits: Iterable[Split]
) -> SplitNumbers:
    """Return the numbers, with the half messages as shifted that a refused one may have moved to another slot.

    An earlier release may have written the log of a broker, so a later one counts too.

    `numbers`: of the whole log. `splits`: the log, which is read again only if one may be moved.
    """
    if REFUSED_TAKES_NUMBER.between(None, settings.version_high) is False:
        return numbers
    found = _moved(store, numbers.contradicting)
    if not len(found):
        return numbers
    found = found[~_are_doubtful(found, numbers.numbers[numbers.slots != NO_SLOT], splits)]
    runs = [*numbers.runs, *((number, number, place) for place, number, _ in found.tolist())]
    order = np.argsort(np.concatenate([numbers.offsets, found[:, 0]]), kind="stable")
    return SplitNumbers(
        sorted(runs, key=lambda run: run[2]),
        np.concatenate([numbers.numbers, found[:, 1]])[order],
        np.concatenate([numbers.offsets, found[:, 0]])[order],
        np.concatenate([numbers.slots, found[:, 2]])[order],
        numbers.contradicting[~np.isin(numbers.contradicting, found[:, 0])],
    )


def without_shifted(numbers: SplitNumbers, unfound: Iterable[UnfoundSlot]) -> list[UnfoundSlot]:
    """Return the slots that do not lead to a shifted half message among some numbers."""
    shifted = set(zip(numbers.offsets.tolist(), numbers.slots.tolist(), strict=True))
    return [
        slot for slot in unfound
        if slot.topic != HALF_TOPIC or slot.queue_id or (slot.commit_log_offset, slot.queue_offset) not in shifted
    ]


def _moved(store: Store, places: Int64s) -> Int64s:
    """Return some half messages that are in a slot shortly before their number: place, number, slot of each."""
    found: list[tuple[int, int, int]] = []
    if len(places):
        try:
            with store.log() as log, open_queue(store, HALF_TOPIC, 0) as queue:
                for place in places.tolist():
                    found += _moved_at(log, queue, place)
        except SourceError:
            pass  # reported by the reader of the file
    return np.array(found, np.int64).reshape(-1, 3)


def _moved_at(log: SegmentedLog, queue: Queue, place: int) -> list[tuple[int, int, int]]:
    block, slot = block_at(log, place), queue.offset_of(place)
    slots, places, lengths, _ = queue.read(slot - 1, slot + 2)
    if block is None or (np.diff(places) <= 0).any():
        return []
    number = int(block.header("queue_offset")[0])
    is_here = (slots == slot) & (places == place) & (lengths == block.header("length_bytes")[0])
    return [(place, number, slot)] if is_here.any() and 0 < number - slot <= REFUSED_MAX else []


def may_be_damaged(moved: Int64s, others: Int64s, named: Int64s, ops: Int64s) -> Bools:
    """Return which half messages have an op message after them that names their slot, a number that none of them has.

    `moved`: place, number and slot of each. `others`: numbers of other half messages that are not in their slot.
    `named`, `ops`: numbers that op messages name, and their places.
    """
    places, slots = moved[:, 0], moved[:, 2]
    are_named: Bools = ((named[None, :] == slots[:, None]) & (ops[None, :] > places[:, None])).any(axis=1)
    return are_named & ~np.isin(slots, np.concatenate([moved[:, 1], others]))


def _are_doubtful(moved: Int64s, others: Int64s, splits: Iterable[Split]) -> Bools:
    """Return for each of some half messages in the log whether its number may be damaged."""
    doubtful: Bools = np.zeros(len(moved), np.bool_)
    wanted = pa.array(np.unique(moved[:, 2]))
    for split in splits:
        try:
            for block in split.scan():
                ops = ops_of(block.take(block.topic_is(OP_TOPIC)), split.store.root)
                doubtful |= may_be_damaged(moved, others, *named_numbers(ops, wanted))
        except SourceError:
            return np.ones(len(moved), np.bool_)  # reported by the scan
    return doubtful
