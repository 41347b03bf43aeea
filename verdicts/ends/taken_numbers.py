"""Finds the half messages of a store whose half queue offset does not identify them, and op marks without one.

An op message names a half queue offset, and the check compares this number with the number of a slot, not with a
record. If two half messages have one number, one of them has no slot, and an op message may be the decision of either.
If a start has dispatched half messages to other slots than their numbers, the check skips a slot for an op message of
another half message (docs/formats/half_and_op.md#numbers; seen on 4.9.7 and 5.3.3). If no half message has the number
of an op mark, the half message is lost, or the number is damaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.finding_kinds.queues import RESUME_SLOTLESS
from rmqtx.readers.log.op_messages import ops_of
from rmqtx.readers.log.record_at import blocks_at
from rmqtx.readers.log.splits import Split
from rmqtx.readers.log.transaction_records import is_final
from rmqtx.readers.model.columns import Bools, Int64s, int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding, as_text
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.rocksdb.rocksdb_queues import end_in_rocksdb
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, Store
from rmqtx.verdicts.missing.split_numbers import SplitNumbers, is_shifted_slot, last_half_offset
from rmqtx.verdicts.model.verdict_inputs import FILLER_SLOT, NO_SLOT, NOWHERE, UNKNOWN_SLOT, HalfNumbers

_OPS_AT_ONCE = 1 << 16
_EMPTY = np.empty(0, np.int64)
#: The most marks of one range of the log that are kept; the others have lower numbers.
_MARKS_MAX = 100


def half_numbers(
    store: Store, misplaced: SplitNumbers, splits: Iterable[Split], op_cursor: int | None
) -> HalfNumbers:
    """Return the half messages of a store that their half queue offset does not identify.

    `misplaced`: of its whole log; `splits`: the log, which is read again only if numbers occur twice.
    `op_cursor`: the first op message that the check reads; None if unknown.
    """
    ranges = shared_ranges([(first, last) for first, last, _ in misplaced.runs])
    found = _shared(splits, misplaced.contradicting, ranges)
    slots = _proven_slots(store, misplaced)
    offsets, slots = misplaced.offsets[slots != UNKNOWN_SLOT], slots[slots != UNKNOWN_SLOT]
    if len(found.numbers) and not _has_slots(store):
        offsets, slots = found.places, np.full(len(found.places), UNKNOWN_SLOT, np.int64)
    order = np.argsort(offsets, kind="stable")
    offsets, slots = offsets[order], slots[order]
    settling, hiding = _naming_offsets(store, slots, op_cursor)
    return replace(found, offsets=offsets, slots=slots, settling_offsets=settling, hiding_offsets=hiding)


def shared_ranges(runs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the ranges of numbers, first and last, that two or more ascending runs cover; ascending."""
    edges = sorted([*((first, 0, 1) for first, _ in runs), *((last, 1, -1) for _, last in runs)])
    found: list[tuple[int, int]] = []
    depth, begin = 0, 0
    for place, _, step in edges:
        if depth + step == 2 and step == 1:
            begin = place
        elif depth == 2 and step == -1:
            found.append((begin, place))
        depth += step
    return found


def _shared(splits: Iterable[Split], contradicting: Int64s, ranges: list[tuple[int, int]]) -> HalfNumbers:
    """Return the half messages with the same number as another, by one more reading of the log.

    `contradicting`: places of half messages whose number is damaged.
    """
    if not ranges:
        return HalfNumbers()
    firsts, lasts = (np.array(values, np.int64) for values in zip(*ranges, strict=True))
    halves: list[tuple[Int64s, Int64s]] = []
    finals: list[tuple[Int64s, Int64s, Int64s]] = []
    for split in splits:
        for mine, some in _numbers_and_finals(split):
            row = np.maximum(np.searchsorted(firsts, mine[0], "right") - 1, 0)
            inside = (mine[0] >= firsts[row]) & (mine[0] <= lasts[row]) & ~np.isin(mine[1], contradicting)
            halves.append((mine[0][inside], mine[1][inside]))
            finals.append(some)
    if not halves:
        return HalfNumbers()
    numbers, places = (np.concatenate([_EMPTY, *parts]) for parts in zip(*halves, strict=True))
    order = np.lexsort((places, numbers))
    numbers, places = numbers[order], places[order]
    same = numbers[1:] == numbers[:-1]
    is_shared = np.concatenate([same, [False]]) | np.concatenate([[False], same])
    numbers, places = numbers[is_shared], places[is_shared]
    named, ends, times = (np.concatenate([_EMPTY, *parts]) for parts in zip(*finals, strict=True))
    return HalfNumbers(
        numbers=numbers, places=places, final_offsets=first_that_names(places, named, ends, ends),
        final_times_ms=first_that_names(places, named, ends, times),
    )


def _numbers_and_finals(split: Split) -> Iterator[tuple[tuple[Int64s, Int64s], tuple[Int64s, Int64s, Int64s]]]:
    """Return the half messages of queue 0 (number, place), and the decisions (named place, place, time), by block."""
    try:
        for block in split.scan():
            halves = block.take(block.topic_is(HALF_TOPIC) & (block.header("queue_id") == 0))
            finals = block.take(is_final(block))
            yield (
                (halves.header("queue_offset").astype(np.int64), halves.commit_log_offsets),
                (finals.header("prepared_transaction_offset").astype(np.int64), finals.commit_log_offsets,
                 finals.header("store_time_ms").astype(np.int64)),
            )
    except SourceError:
        return  # reported by the scan


def first_that_names(wanted: Int64s, named: Int64s, ends: Int64s, values: Int64s) -> Int64s:
    """Return a value of the first record that names each given number or place; NOWHERE if none does.

    `named`, `ends`, `values`: what each record names, its own commit-log offset, and its value.
    """
    order = np.lexsort((ends, named))
    named = np.append(named[order], np.iinfo(np.int64).max)
    row = np.searchsorted(named, wanted)
    found: Int64s = np.where(named[row] == wanted, np.append(values[order], NOWHERE)[row], NOWHERE)
    return found


def _has_slots(store: Store) -> bool:
    """Whether a half queue in files shows the slots of half messages."""
    if store.has_rocksdb_queues:
        return False
    try:
        with open_queue(store, HALF_TOPIC, 0) as queue:
            return last_half_offset(store, queue) is not None
    except SourceError:
        return False


def _proven_slots(store: Store, misplaced: SplitNumbers) -> Int64s:
    """Return the slot of each half message that the slot with its number does not lead to.

    UNKNOWN_SLOT: that slot cannot be used, or leads to no half message, or to one with another number although the
    slots beside it are not shifted, and so may have led to this one: it is damaged.
    """
    numbers, slots = misplaced.numbers, misplaced.slots.copy()
    rows = np.flatnonzero(slots == NO_SLOT)
    if not len(rows):
        return slots
    rows = rows[np.argsort(numbers[rows], kind="stable")]
    slots[rows] = UNKNOWN_SLOT
    try:
        with open_queue(store, HALF_TOPIC, 0) as queue:
            asked = numbers[rows]
            slots[rows[asked >= queue.max_offset]] = NO_SLOT
            slots[rows[asked < queue.first_offset]] = FILLER_SLOT
            inside = rows[(asked >= queue.first_offset) & (asked < queue.max_offset)]
            leads_to = queue.offsets_at(numbers[inside])
            # A rebuilt queue begins with fillers: they lead to no record. A damaged slot would be a finding.
            are_fillers = (leads_to < 0) & (numbers[inside] < queue.min_offset) & (not queue.findings)
    except SourceError:
        return slots
    slots[inside[are_fillers]] = FILLER_SLOT
    slots[inside[_are_taken(store, numbers[inside], leads_to)]] = NO_SLOT
    return slots


def _are_taken(store: Store, numbers: Int64s, offsets: Int64s) -> Bools:
    """Which slots lead to the half message that has their number, or are shifted; at each offset may be any record."""
    wanted = np.unique(offsets[offsets >= 0])
    own: dict[int, int] = {}
    with store.log() as log:
        for block in blocks_at(log, wanted):
            halves = block.take(block.topic_is(HALF_TOPIC) & (block.header("queue_id") == 0))
            own |= zip(halves.commit_log_offsets.tolist(), halves.header("queue_offset").tolist(), strict=True)
        return np.array([
            offset in own and (own[offset] == number or is_shifted_slot(store, log, number, offset))
            for number, offset in zip(numbers.tolist(), offsets.tolist(), strict=True)
        ], np.bool_)


def _naming_offsets(store: Store, slots: Int64s, op_cursor: int | None) -> tuple[Int64s, Int64s]:
    """Return for each slot the first op message that the check reads and that names the slot, and the first of all;
    NOWHERE if none does.
    """
    if not (slots >= 0).any():
        return np.full(len(slots), NOWHERE, np.int64), np.full(len(slots), NOWHERE, np.int64)
    wanted = pa.array(slots[slots >= 0])
    named, ops, are_read = [_EMPTY], [_EMPTY], [_EMPTY.astype(np.bool_)]
    try:
        with store.log() as log, open_queue(store, OP_TOPIC, 0) as queue:
            begin = queue.min_offset
            while begin < queue.max_offset:
                op_numbers, places, lengths, _ = queue.read(begin, begin + _OPS_AT_ONCE)
                read_places = places[op_numbers >= (op_cursor or 0)]
                for block in blocks_at(log, places, lengths):
                    rows = ops_of(block.take(block.topic_is(OP_TOPIC)), store.root)
                    numbers, offsets = named_numbers(rows, wanted)
                    named.append(numbers)
                    ops.append(offsets)
                    are_read.append(np.isin(offsets, read_places))
                begin += _OPS_AT_ONCE
    except SourceError:
        pass  # reported by the reader of the queue
    numbers, offsets, is_read = np.concatenate(named), np.concatenate(ops), np.concatenate(are_read)
    return (
        first_that_names(slots, numbers[is_read], offsets[is_read], offsets[is_read]),
        first_that_names(slots, numbers, offsets, offsets),
    )


def named_numbers(ops: pa.RecordBatch, wanted: pa.Array) -> tuple[Int64s, Int64s]:
    """Return which of the given numbers op messages name, and the commit-log offset of the op message of each."""
    lists = ops["half_queue_offsets"]
    named = pc.list_flatten(lists)
    chosen = pc.is_in(named, value_set=wanted)
    places = ops["commit_log_offset"].take(pc.list_parent_indices(lists))
    return int64s(named.filter(chosen)), int64s(places.filter(chosen))


def number_findings(store: Store, numbers: HalfNumbers) -> list[Finding]:
    """Return the findings of a store about half messages that their half queue offset does not identify."""
    found: list[Finding] = []
    directory = as_text(store.queue_directory(HALF_TOPIC, 0))
    if len(numbers.numbers):
        first, last = int(numbers.numbers[0]), int(numbers.numbers[-1])
        some = " and ".join(str(place) for place in numbers.places[numbers.numbers == first][:2].tolist())
        several = f"half queue offset {first}" if first == last else f"half queue offsets {first} to {last}"
        found.append(Finding(
            store.root, "half-number-taken", directory, expected="one half message for each half queue offset",
            actual=f"{several}: {len(numbers.numbers)} half messages, for example at commit-log offsets {some}",
        ))
    are_slotless = (numbers.slots == NO_SLOT) | (numbers.slots == FILLER_SLOT)
    for is_chosen, code, actual, advice in (
        (are_slotless, "slot-missing", "no slot of the half queue leads to {what}", RESUME_SLOTLESS),
        (numbers.slots >= 0, "half-number-taken", "the slots of {what} have other numbers than their records", None),
    ):
        places = numbers.offsets[is_chosen]
        if len(places):
            first = int(places[0])
            what = f"the half message at commit-log offset {first}"
            if len(places) > 1:
                what = f"{len(places)} half messages, from commit-log offset {first} to {places[-1]}"
            found.append(Finding(
                store.root, code, directory, commit_log_offset=first, expected="a slot with its half queue offset",
                actual=actual.format(what=what), advice=advice,
            ))
    return found


def highest_marks(marks: Iterable[pa.RecordBatch], end: int | None) -> Int64s:
    """Return the op marks of queue 0 at or after a half queue offset: rows of op message and number.

    `end`: as `half_queue_end` returns it; no rows if it is unknown.
    Order: number ascending; of very many only the last ones.
    """
    if end is None:
        return np.empty((0, 2), np.int64)
    parts = [np.empty((0, 2), np.int64)]
    for rows in marks:
        numbers = int64s(rows["half_queue_offset"])
        chosen = (numbers >= end) & (int64s(rows["queue_id"]) == 0)
        if chosen.any():
            parts.append(np.stack([int64s(rows["commit_log_offset"])[chosen], numbers[chosen]], axis=1))
    found = np.concatenate(parts)
    return found[np.argsort(found[:, 1], kind="stable")][-_MARKS_MAX:]


def half_queue_end(store: Store) -> int | None:
    """Return the half queue offset after the last slot; None if the half queue has no slot in a file."""
    try:
        with open_queue(store, HALF_TOPIC, 0) as queue:
            if not queue.exists or not queue.max_offset:
                return None
            return max(queue.max_offset, end_in_rocksdb(store, HALF_TOPIC))
    except SourceError:
        return None


def op_number_findings(store: Store, offsets: Int64s, numbers: Int64s) -> Iterator[Finding]:
    """Return a finding for each op mark beyond the end of the half queue. Parallel arrays: op message, number."""
    log = store.log()
    for offset, number in zip(offsets.tolist(), numbers.tolist(), strict=True):
        yield Finding(
            store.root, "op-beyond-end", *log.place_of(offset), commit_log_offset=offset,
            expected="offsets of half messages in the half queue", actual=str(number),
        )
