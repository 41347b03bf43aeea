"""The second result of a judgement: the state that all witnesses of a transaction show together.

A verdict states what the broker recorded and what it will do next. Order of judgement, each letter at its code:

(a) a COMMIT record that names a half or discard copy, or has the id → COMMITTED;
(b) else an op mark on a half copy → ROLLED_BACK, unless a decision on a record outside the half topic explains the op;
(c) else a half copy, later than any discard copy, that the check has not reached yet → PENDING;
(d) else a discard copy, or used-up checks if the version writes none → DISCARDED;
(e) else LOST;
(f) UNDECIDABLE replaces any of these if missing bytes could contain a record that changes it; the reason names the
    bytes (`judgement.py`).

The other designs have the same order (`design_tables.py` determines what is open in them): a ROLLBACK record ends a
prepared record as an op message ends a half, and only a COMMIT or ROLLBACK record does; a half in RocksDB is open while
the broker's table contains it, and discarded without a copy when the table no longer does. There a resume creates
another half with its own place: each half is judged by its own op message, and the transaction has the state of the
half that is most open, unless a COMMIT record exists.

Source: TransactionalMessageServiceImpl.check, EndTransactionProcessor; docs/formats/half_and_op.md#check,
docs/formats/half_and_op.md#failures, docs/formats/state_table.md#records, docs/formats/rocksdb_transactions.md#open,
docs/formats/end_transaction.md#repeats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.old_tables.beside_log import NONE
from rmqtx.verdicts.model.predicted import Event
from rmqtx.verdicts.model.verdict_inputs import StoreView
from rmqtx.verdicts.model.verdict_words import State
from rmqtx.verdicts.transactions.judged_copies import JudgedCopies

_NUMBERS = {state: number for number, state in enumerate(State)}


@dataclass(frozen=True, slots=True)
class StateNumbers:
    """One state per transaction, as its number among State: comparing texts costs two hundred times as much."""

    numbers: npt.NDArray[np.int8]

    @staticmethod
    def chosen(choices: Sequence[tuple[Bools, State]], other: State) -> StateNumbers:
        """Return for each transaction the state of the first choice that holds, else the other one."""
        masks, values = [mask for mask, _ in choices], [np.int8(_NUMBERS[state]) for _, state in choices]
        return StateNumbers(np.select(masks, values, np.int8(_NUMBERS[other])))

    def replaced(self, rows: Bools, state: State) -> StateNumbers:
        """Return the states with another one for some transactions."""
        return StateNumbers(np.where(rows, np.int8(_NUMBERS[state]), self.numbers))

    def are(self, *states: State) -> Bools:
        """Return which transactions have one of the given states."""
        found: Bools = self.numbers == _NUMBERS[states[0]]
        for state in states[1:]:
            found |= self.numbers == _NUMBERS[state]
        return found

    def names(self) -> pa.Array:
        """Return the states as text."""
        return pa.array(list(State), pa.string()).take(pa.array(self.numbers))


@dataclass(frozen=True, slots=True)
class FoundStates:
    """The state of each transaction by its records, as if nothing were missing.

    Shape: `copies` is the result before; the rest has one value per transaction. `marks_count`, `first_own_mark`: its
           op marks that decide, and the row of the first of them (the number of all marks without one); `is_marked`:
           one of them ends it; `is_reopened`: a half of it in RocksDB is open beside one that an op message ended;
           `is_unread`: only the RocksDB table would show whether a half is open; `is_waiting`: the check has not
           reached a copy yet, or did not before the given past time (`is_copied_later`); `checks_count`: the highest
           number of checks of its copies; `reason_copy`: the half copy for the reason; `is_without_copy`: discarded,
           and no copy was written; `depends_on_assumed_check_max`: on the highest number of checks that any half has,
           in place of transactionCheckMax.
    """

    copies: JudgedCopies
    state: StateNumbers
    marks_count: Int64s
    first_own_mark: Int64s
    is_marked: Bools
    is_reopened: Bools
    is_unread: Bools
    is_waiting: Bools
    is_copied_later: Bools
    checks_count: Int64s
    has_unknown_checks: Bools
    reason_copy: Int64s
    is_without_copy: Bools
    depends_on_assumed_check_max: Bools

    @classmethod
    def of(cls, copies: JudgedCopies) -> FoundStates:
        """Find the states that the records show."""
        chains, others, decides = copies.chains, copies.others, copies.marks.decides
        halves, marks, finals, discards = chains.halves, chains.marks, chains.finals, chains.discards
        # (b) An op ends one half in RocksDB; another half of the same transaction (resumed, sent again) stays open.
        marks_count = marks.count_of(decides)
        left = others.is_rocksdb & ~copies.is_marked
        is_reopened = halves.any_of(left & others.is_ahead)
        is_marked = (marks_count > 0) & ~is_reopened
        # (c) The check puts back or discards only copies that it has not reached before: a later copy proves this.
        later = halves.rank > discards.last_rank[halves.number]
        is_ahead = halves.any_of(copies.is_ahead & later)
        is_copied_later = halves.any_of(copies.are_identified(lambda view: view.later_hashes) & later) & ~is_ahead
        is_waiting = is_ahead | is_copied_later
        # (d) is_spent: it had all its checks.
        is_spent, depends_on_assumed = _spent_checks(copies)
        is_spent |= halves.any_of(others.is_dropped)
        state = StateNumbers.chosen([
            (finals.has, State.COMMITTED),  # (a)
            (is_marked, State.ROLLED_BACK),  # (b)
            (is_waiting, State.PENDING),  # (c)
            (discards.has | is_spent, State.DISCARDED),  # (d)
        ], State.LOST)  # (e)
        # Only the RocksDB table counts the checks of its halves: for a half that it does not contain, the number is
        # unknown. The timer of 3.0 and 3.1 counts nothing.
        is_counted = halves.highest(others.checks, NONE) != NONE
        return cls(
            copies, state, marks_count, marks.lowest(np.arange(len(marks)), len(marks), decides),
            is_marked=is_marked, is_reopened=is_reopened, is_unread=halves.any_of(left & others.is_unknown),
            is_waiting=is_waiting, is_copied_later=is_copied_later,
            checks_count=np.maximum(
                halves.highest(np.maximum(halves.integers("checks_count", 0), others.checks), 0),
                discards.highest(discards.integers("checks_count", 0), 0),
            ),
            has_unknown_checks=halves.newest_is(others.is_rocksdb) & ~is_counted | halves.any_of(others.is_uncounted),
            reason_copy=_reason_copies(copies, left),
            is_without_copy=is_spent & state.are(State.DISCARDED) & ~discards.has,
            depends_on_assumed_check_max=depends_on_assumed,
        )


def _reason_copies(copies: JudgedCopies, left: Bools) -> Int64s:
    """Return the half copy for the reason: the newest one, and of several in RocksDB the one that is most open.

    `left`: the half copies in RocksDB that no op message ended.
    """
    halves, others = copies.chains.halves, copies.others
    chosen = halves.last.copy()
    for some in (others.is_dropped, others.is_unknown, others.is_ahead) if left.any() else ():
        rows = np.flatnonzero(left & some)
        np.put(chosen, halves.number[rows], rows)  # in log order: the newest stays
    return chosen


def _spent_checks(copies: JudgedCopies) -> tuple[Bools, Bools]:
    """Return whether the newest copy had all its checks, in a store whose version writes no discard copies.

    And whether this depends on the highest number of checks seen. A copy that the check has not reached, and that it
    skips, was not discarded: fillers are in its slot.
    """
    halves = copies.chains.halves

    def most_checks(view: StoreView) -> int:
        # transactionCheckMax is not in a store: unless given, the highest number of checks seen is used.
        most = view.settings.transaction_check_max
        return most if view.settings.check_max_is_configured else min(most, view.checks_seen_max or most)

    limit = copies.per_transaction(most_checks)
    is_silent = copies.per_transaction(lambda view: view.settings.writes_discard_copy is not True) > 0
    spent: Bools = halves.has & is_silent & (limit > 0) & (halves.newest(halves.integers("checks_count", 0)) >= limit)
    spent &= ~halves.newest_is((copies.future.event == Event.SKIPPED) & copies.is_numbered_ahead)
    return spent, spent & (limit < copies.per_transaction(lambda view: view.settings.transaction_check_max))
