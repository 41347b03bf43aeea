"""Half queue offsets of a live broker that do not identify one half message, as `ends/taken_numbers.py` finds in files.

A broker serves half messages by their slots, so those without a slot are seen only when they are asked for by id. The
slot with the number of each one shows whether another half message has that number. An op message that names a half
message written after it proves an earlier one with the same number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.log.op_messages import ops_of
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.model.columns import Int64s, int64s
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC
from rmqtx.remoting.live.store_facts import LiveStore
from rmqtx.remoting.protocol.errors import Refused
from rmqtx.remoting.protocol.record_bytes import blocks_of
from rmqtx.verdicts.ends.refused_numbers import may_be_damaged
from rmqtx.verdicts.ends.taken_numbers import first_that_names, named_numbers
from rmqtx.verdicts.missing.split_numbers import REFUSED_MAX
from rmqtx.verdicts.model.verdict_inputs import NO_SLOT, NOWHERE, HalfNumbers, MissingRange
from rmqtx.verdicts.model.witnesses import Witnesses

_EMPTY = np.empty(0, np.int64)
_SLOTS_AT_ONCE = 1000
_PULLED_SINGLY_MAX = 10_000


class PulledHalves:
    """The half messages that were read from the half queue: their numbers, places, and the slots that were read."""

    def __init__(self) -> None:
        self._numbers: list[Int64s] = [_EMPTY]
        self._places: list[Int64s] = [_EMPTY]
        self.ranges: list[tuple[int, int]] = []

    def note_range(self, begin: int, end: int) -> None:
        """Note that slots from `begin` to before `end` are read."""
        self.ranges.append((begin, end))

    def add(self, block: Block) -> None:
        """Add the half messages among records that were read from slots; a slot may lead to one of another topic."""
        are_halves = block.topic_is(HALF_TOPIC)
        self._numbers.append(block.header("queue_offset")[are_halves].astype(np.int64))
        self._places.append(block.commit_log_offsets[are_halves])

    @property
    def numbers(self) -> Int64s:
        """Their half queue offsets."""
        return np.concatenate(self._numbers)

    @property
    def places(self) -> Int64s:
        """Their commit-log offsets."""
        return np.concatenate(self._places)

    def unread_beside(self, numbers: Int64s, begin: int, end: int) -> list[tuple[int, int]]:
        """Return the ranges of slots in [begin, end) that are not read, and that may lead to a half message with one of
        some numbers, on a broker that gives refused ones a number.
        """
        wanted = np.unique((numbers[:, None] - np.arange(REFUSED_MAX)).reshape(-1))
        wanted = wanted[(wanted >= begin) & (wanted < end)]
        for first, last in self.ranges:
            wanted = wanted[(wanted < first) | (wanted >= last)]
        runs = np.split(wanted, np.flatnonzero(np.diff(wanted) != 1) + 1) if len(wanted) else []
        return [(int(run[0]), int(run[-1]) + 1) for run in runs]

    def are_in_their_slots(self) -> bool:
        """Whether no half message has a number outside the slots that were read, and no two have the same."""
        numbers = self.numbers
        inside = np.zeros(len(numbers), np.bool_)
        for begin, end in self.ranges:
            inside |= (numbers >= begin) & (numbers < end)
        return bool(inside.all()) and len(np.unique(numbers)) == len(numbers)


def live_half_numbers(
    facts: LiveStore, kept: Witnesses, pulled: PulledHalves, check_ops: Sequence[Block]
) -> HalfNumbers:
    """Return the half messages among some transactions, or in the slots read, that their number does not identify.

    `kept`: the witnesses of the transactions. `check_ops`: the op messages from the check's cursor on, as far as read.
    Raises: Unreachable, NoAnswer.
    """
    is_mine = pc.and_(pc.equal(kept.halves["topic"], HALF_TOPIC), pc.equal(kept.halves["queue_id"], 0))
    halves = kept.halves.filter(is_mine)
    numbers, places = int64s(halves["queue_offset"]), int64s(halves["commit_log_offset"])
    rows = np.flatnonzero((numbers >= facts.half_cursor) & ~np.isin(places, pulled.places))
    owners = {number: owner_of(facts, number) for number in np.unique(numbers[rows]).tolist()}
    slots = slots_by_place(facts, pulled)
    shared: set[tuple[int, int]] = set()
    for number, place in zip(numbers[rows].tolist(), places[rows].tolist(), strict=True):
        owner = owners[number]
        if owner is None or owner[0] == place or place in slots:
            continue
        slots[place] = NO_SLOT
        if owner[1] == number:
            shared |= {(number, place), (number, owner[0])}
    shared |= _named_too_early(kept, numbers, places) | _numbered_twice(
        np.concatenate([numbers, pulled.numbers]), np.concatenate([places, pulled.places])
    )
    return _as_value(slots, sorted(shared), check_ops, kept, facts.root)


def _numbered_twice(numbers: Int64s, places: Int64s) -> set[tuple[int, int]]:
    """Return the half messages whose number another one has too; 5.0.0 and 5.1.0 do this after a refused message."""
    halves = np.unique(np.stack([numbers, places]), axis=1)
    same = halves[0, 1:] == halves[0, :-1]
    is_shared = np.append(same, False) | np.append(False, same)
    return set(zip(*halves[:, is_shared].tolist(), strict=True)) if is_shared.any() else set()


def owner_of(facts: LiveStore, number: int) -> tuple[int, int] | None:
    """Return the place and the number of the half message in a slot; NOWHERE beyond the queue; None if unknown."""
    broker = facts.broker
    try:
        if number >= broker.max_offset(HALF_TOPIC):
            return NOWHERE, NOWHERE
        for block in blocks_of([broker.pull(HALF_TOPIC, 0, number, 1).body], facts.root, []):
            return int(block.commit_log_offsets[0]), int(block.header("queue_offset")[0])
    except Refused:
        pass
    return None


def slots_by_place(facts: LiveStore, pulled: PulledHalves) -> dict[int, int]:
    """Return by place the slot of each half message that was read from another slot than its number."""
    if pulled.are_in_their_slots():
        return {}
    number_of = dict(zip(pulled.places.tolist(), pulled.numbers.tolist(), strict=True))
    try:
        places = [one for begin, end in pulled.ranges for one in _places(facts, begin, end)]
    except Refused:
        return {}
    return {place: slot for place, slot in places if number_of.get(place, slot) != slot}


def _places(facts: LiveStore, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the places to which some slots lead, with the slots; where these are not served, from single pulls."""
    while begin < end:
        slots = facts.broker.slots(HALF_TOPIC, 0, begin, min(_SLOTS_AT_ONCE, end - begin)).slots
        for slot in slots:
            yield slot.commit_log_offset, slot.queue_offset
        if not slots:  # 4.3.0, queues in RocksDB
            break
        begin += len(slots)
    for number in range(begin, min(end, begin + _PULLED_SINGLY_MAX)):
        for block in blocks_of([facts.broker.pull(HALF_TOPIC, 0, number, 1).body], facts.root, []):
            yield int(block.commit_log_offsets[0]), number


def _named_too_early(kept: Witnesses, numbers: Int64s, places: Int64s) -> set[tuple[int, int]]:
    """Return the half messages whose number an op message before them names."""
    named, ops = int64s(kept.marks["half_queue_offset"]), int64s(kept.marks["commit_log_offset"])
    first = first_that_names(numbers, named, ops, ops)
    rows = np.flatnonzero((first != NOWHERE) & (first < places))
    return set(zip(numbers[rows].tolist(), places[rows].tolist(), strict=True))


def _as_value(
    slots: dict[int, int], shared: list[tuple[int, int]], check_ops: Sequence[Block], kept: Witnesses, root: str
) -> HalfNumbers:
    if not slots and not shared:
        return HalfNumbers()
    offsets = np.array(sorted(slots), np.int64)
    chosen = np.array([slots[place] for place in offsets.tolist()], np.int64)
    pairs = np.array(shared, np.int64).reshape(-1, 2)
    places = pairs[:, 1].copy()
    finals, ends, times = (
        int64s(kept.finals[name]) for name in ("prepared_transaction_offset", "commit_log_offset", "store_time_ms")
    )
    wanted = pa.array(chosen[chosen >= 0])
    parts = [
        named_numbers(ops_of(block.take(block.topic_is(OP_TOPIC)), root), wanted) for block in check_ops
    ] if len(wanted) else []
    named, ops = (np.concatenate([_EMPTY, *column]) for column in zip(*parts, strict=True)) if parts else (_EMPTY,) * 2
    settling = first_that_names(chosen, named, ops, ops)
    named = np.concatenate([named, int64s(kept.marks["half_queue_offset"], NOWHERE)])
    ops = np.concatenate([ops, int64s(kept.marks["commit_log_offset"])])
    return HalfNumbers(
        offsets, chosen, settling, first_that_names(chosen, named, ops, ops), pairs[:, 0].copy(), places,
        first_that_names(places, finals, ends, ends), first_that_names(places, finals, ends, times),
    )


def damaged_numbers(facts: LiveStore, pulled: PulledHalves, named: Int64s, ops: Int64s) -> Iterator[MissingRange]:
    """Yield the ranges of half messages whose number may be damaged, as `ends/refused_numbers.py` finds them in files.

    `named`, `ops`: numbers that op messages name, and their places.
    """
    slots = facts.half_numbers.slots
    numbers = dict(zip(pulled.places.tolist(), pulled.numbers.tolist(), strict=True))
    shifted = zip(facts.half_numbers.shifted.tolist(), slots[slots >= 0].tolist(), strict=True)
    rows = [(place, numbers[place], slot) for place, slot in shifted if place in numbers]
    moved = np.array(rows, np.int64).reshape(-1, 3)
    distances = {slot: number - slot for _, number, slot in rows}
    for place, number, slot in moved[may_be_damaged(moved, _EMPTY, named, ops)].tolist():
        if number - slot in (distances.get(slot - 1), distances.get(slot + 1)):
            continue  # shifted with the one beside it
        what = f"the half message at commit-log offset {place} has half queue offset {number}, and slot {slot}"
        yield MissingRange(
            facts.root, place, place + 1, what, is_identified=True, half_queue_offsets=(slot,),
            prepared_offsets=(place,),
        )


def live_number_findings(facts: LiveStore) -> list[Finding]:
    """Return the finding about half messages that their number does not identify."""
    table = facts.half_numbers
    if not table:
        return []
    places = np.unique(np.concatenate([table.offsets, table.places]))
    some = ", ".join(str(place) for place in places[:3].tolist())
    return [Finding(
        facts.root, "half-number-taken", expected="one half message for each half queue offset",
        actual=f"{len(places)} half messages that share one, or are not in its slot, at commit-log offsets {some}"
        f"{' and later' if len(places) > 3 else ''}",
    )]
