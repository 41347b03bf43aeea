"""Which half message an op message is the decision of, where its half queue offset does not identify one.

An op message names a half queue offset. It does not decide a half message that lies after it in the log. Where
several half messages before it have the number, the op messages that name the number are assigned in log order:

* one that follows a COMMIT record on one of these half messages is the op message of that commit;
* else, if only one of them is not settled yet, it is that one's decision, unless it is not in the slot of its number
  and another one is settled: then its number may be damaged, and the op message may be the second one of the other;
* else it may be the decision of each that is not settled: UNDECIDABLE.

The check makes no difference between these half messages: it skips a slot whose number any op message names.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.verdicts.model.verdict_inputs import HalfNumbers, StoreView
from rmqtx.verdicts.transactions.chains import Chains

#: An op follows its decision within the batch interval plus this time.
FINAL_SLACK_MS = 60_000
#: Instead of the op message that settles a copy: its op marks show it.
BY_MARKS = -2


@dataclass(frozen=True, slots=True)
class SharedMarks:
    """What op marks are worth, one value per op mark.

    Shape: `is_foreign`: the decision of another half message, or of one that was there before; `is_ambiguous`: it may
           be the decision of one of several; then `is_foreign` too.
    """

    is_foreign: Bools
    is_ambiguous: Bools


def shared_marks(chains: Chains) -> SharedMarks:
    """Return which op marks are not, or not certainly, the decision of the half copy whose number they name."""
    marks, of_mark = chains.marks, chains.half_of_mark
    places = np.append(chains.halves.integers("commit_log_offset"), -1)[of_mark]
    by_number = (of_mark >= 0) & np.asarray(pc.is_null(marks.table["half_commit_log_offset"]))
    offsets = marks.integers("commit_log_offset")
    result = SharedMarks(by_number & (offsets < places), np.zeros(len(marks), np.bool_))
    for name, view in chains.views.items():
        if len(view.half_numbers.numbers):
            here = by_number & marks.are_in([name])
            _assign(result, view, chains, np.flatnonzero(here & _are_shared(chains, view.half_numbers)), places)
    return result


def _are_shared(chains: Chains, numbers: HalfNumbers) -> Bools:
    marks = chains.marks
    shared: Bools = np.isin(marks.integers("half_queue_offset"), numbers.numbers) & (marks.integers("queue_id") == 0)
    return shared


def _assign(result: SharedMarks, view: StoreView, chains: Chains, rows: Int64s, places: Int64s) -> None:
    """Find the owner of each op mark in some rows, which are those of one store; changes the result."""
    numbers, offsets = chains.marks.integers("half_queue_offset"), chains.marks.integers("commit_log_offset")
    times = chains.marks.integers("store_time_ms")
    ops: dict[int, dict[int, int]] = defaultdict(dict)
    for row in rows.tolist():
        ops[int(numbers[row])][int(offsets[row])] = int(times[row])
    owners = {number: _owners(view, number, sorted(named.items())) for number, named in ops.items()}
    for row in rows.tolist():
        mine = owners[int(numbers[row])][int(offsets[row])]
        result.is_foreign[row] |= mine != {int(places[row])}
        result.is_ambiguous[row] = len(mine) > 1 and int(places[row]) in mine


def _owners(view: StoreView, number: int, ops: list[tuple[int, int]]) -> dict[int, set[int]]:
    """Return for each op message with a number the half messages that it may be the decision of.

    `ops`: commit-log offset and store time of each, in log order.
    """
    table = view.half_numbers
    low, high = np.searchsorted(table.numbers, [number, number + 1])
    halves = [
        (int(table.places[row]), int(table.final_offsets[row]), int(table.final_times_ms[row]))
        for row in range(low, high)
    ]
    slack_ms = view.settings.transaction_op_batch_interval_ms + FINAL_SLACK_MS
    shifted = set(table.shifted.tolist())
    settled: set[int] = set()
    owners: dict[int, set[int]] = {}
    for op_offset, time_ms in ops:
        before = [half for half in halves if half[0] < op_offset and half[0] not in settled]
        committed = [half for half in before if 0 <= half[1] < op_offset]
        if committed:
            first = min(committed, key=lambda half: half[1])
            # The op message of a commit follows at once: a much later one may be that of another decision.
            is_late = time_ms - first[2] > slack_ms
            owners[op_offset] = {half[0] for half in before} if is_late else {first[0]}
            settled.add(first[0])
        else:
            owners[op_offset] = {half[0] for half in before}
            if len(before) == 1 and settled and before[0][0] in shifted:
                owners[op_offset] |= settled
            elif len(before) == 1:
                settled.add(before[0][0])
    return owners


class MisplacedCopies(NamedTuple):
    """Where the half queue has each half copy.

    Shape: `slot` as in `HalfNumbers`; `settling`: the op message that settles it there, `hiding`: the first one that
           names its slot, also one that the check has passed; −1 if none does, BY_MARKS where its op marks show it.
           `is_shared`: another half message has its number.
    """

    slot: Int64s
    settling: Int64s
    hiding: Int64s
    is_shared: Bools


def misplaced_copies(chains: Chains, slots: Int64s) -> MisplacedCopies:
    """Return where the half queue has the half copies.

    `slots`: the queue offsets of the copies, which nearly all have as their slot.
    """
    halves = chains.halves
    found, settling = slots.copy(), np.full(len(halves), BY_MARKS, np.int64)
    hiding = settling.copy()
    is_shared = np.zeros(len(halves), np.bool_)
    for name, view in chains.views.items():
        table = view.half_numbers
        if not table:
            continue
        here = halves.are_in([name]) & (halves.integers("queue_id") == 0)
        places = halves.integers("commit_log_offset")
        is_shared |= here & np.isin(places, table.places) & np.isin(slots, table.numbers)
        if len(table.offsets):
            row = np.minimum(np.searchsorted(table.offsets, places), len(table.offsets) - 1)
            rows = np.flatnonzero(here & (table.offsets[row] == places))
            found[rows], settling[rows] = table.slots[row[rows]], table.settling_offsets[row[rows]]
            hiding[rows] = table.hiding_offsets[row[rows]]
    return MisplacedCopies(found, settling, hiding, is_shared)


def number_words(chains: Chains, marks: Bools) -> npt.NDArray[np.object_]:
    """Return for each transaction a text about the first of its chosen op marks."""
    words = np.full(chains.count, "", np.object_)
    for row in np.flatnonzero(marks)[::-1].tolist():
        words[chains.marks.number[row]] = (
            f"the op message at commit-log offset {chains.marks.integers('commit_log_offset')[row]} names half queue "
            f"offset {chains.marks.integers('half_queue_offset')[row]}"
        )
    return words
