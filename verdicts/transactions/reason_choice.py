"""Choose the reason code of each transaction from the evidence of its judgement.

For prepared records and halves in RocksDB the reason is about one half copy, the `reason_copy`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.old_tables.beside_log import NONE
from rmqtx.verdicts.model.predicted import Event
from rmqtx.verdicts.model.verdict_words import State
from rmqtx.verdicts.transactions.judgement import Judgement
from rmqtx.verdicts.transactions.reason_codes import NUMBERS

Codes = npt.NDArray[np.int8]
#: Masks of transactions with their codes: the first mask that holds gives the code.
Choices = list[tuple[Bools, str]]


def chosen_codes(judged: Judgement) -> Codes:
    """Return the code of each transaction's reason, as its number in REASONS."""
    codes = judged.undecidable_codes.copy()
    for state, choose in _CHOOSERS.items():
        rows = np.flatnonzero(judged.state.are(state))
        if len(rows):
            codes[rows] = _first_that_holds(choose(judged, rows))
    return codes


def _first_that_holds(choices: Choices) -> Codes:
    return np.select([mask for mask, _ in choices], [np.int8(NUMBERS[code]) for _, code in choices]).astype(np.int8)


def _is_about(judged: Judgement, rows: Int64s, copies: Bools) -> Bools:
    """Whether the reason is about one of the given half copies."""
    if not copies.any():
        return np.zeros(len(rows), np.bool_)
    found: Bools = judged.chains.halves.has[rows] & copies[judged.found.reason_copy[rows]]
    return found


def _else(rows: Int64s, code: str) -> tuple[Bools, str]:
    return np.ones(len(rows), np.bool_), code


def _of_committed(judged: Judgement, rows: Int64s) -> Choices:
    return [(judged.is_perhaps_asked[rows], "commit_record_table_unread"), _else(rows, "commit_record")]


def _of_rolled_back(judged: Judgement, rows: Int64s) -> Choices:
    names_offset = np.asarray(pc.is_valid(judged.chains.marks.table["half_commit_log_offset"]))
    by_offset = names_offset[judged.found.first_own_mark[rows]]
    return [
        (by_offset & judged.chains.has_rollback_record[rows], "rollback_record"), (by_offset, "rocksdb_op_message"),
        _else(rows, "op_message"),
    ]  # fmt: skip


def _of_pending(judged: Judgement, rows: Int64s) -> Choices:
    is_diverted = judged.chains.diverted_halves[judged.chains.halves.last[rows]]
    return [
        *_of_rocksdb(judged, rows), *_of_prepared(judged, rows), (judged.found.is_copied_later[rows], "copied_later"),
        (is_diverted, "diverted"), _else(rows, "check_to_come"),
    ]  # fmt: skip


def _of_rocksdb(judged: Judgement, rows: Int64s) -> Choices:
    others = judged.copies.others
    choices = [
        (others.is_recorded, "rocksdb_in_table"), (~others.has_tables, "rocksdb_not_dropped_yet"),
        (others.last_offset == NONE, "rocksdb_table_empty"), (others.is_rocksdb, "rocksdb_behind_table"),
    ]  # fmt: skip
    return [(_is_about(judged, rows, others.is_rocksdb & copies), code) for copies, code in choices]


def _of_prepared(judged: Judgement, rows: Int64s) -> Choices:
    others = judged.copies.others
    asks = ~others.never_asks
    choices = [
        (others.is_unanswerable & others.is_predicted, "prepared_refused_after_start"),
        (others.is_unanswerable, "prepared_refused"),
        (others.is_asked & others.is_predicted, "prepared_asked_after_start"),
        (others.is_asked & others.is_rebuilt, "prepared_asked_renumbered"),
        (others.is_asked, "prepared_asked"),
        (others.was_asked, "prepared_was_asked"),
        (others.refuses_commit, "prepared_commit_refused"),
        (others.is_predicted & asks, "prepared_forgotten_after_start"),
        (others.is_table_damaged & asks, "prepared_table_damaged"),
        ((others.decided_slot != NONE) & asks, "prepared_slot_decided"),
        (others.has_tables & asks, "prepared_without_slot"),
        (others.may_ask, "prepared_table_unread"),
        (others.is_prepared, "prepared_never_asked"),
    ]
    return [(_is_about(judged, rows, others.is_prepared & copies), code) for copies, code in choices]


def _of_discarded(judged: Judgement, rows: Int64s) -> Choices:
    without_copy = judged.found.is_without_copy[rows]
    return [
        (without_copy & _is_about(judged, rows, judged.copies.others.is_rocksdb), "rocksdb_dropped"),
        (without_copy, "dropped_without_copy"), _else(rows, "discard_copy"),
    ]  # fmt: skip


def _of_lost(judged: Judgement, rows: Int64s) -> Choices:
    is_unread = judged.copies.future.event == Event.SKIPPED
    return [
        (_is_about(judged, rows, judged.copies.others.is_rocksdb), "rocksdb_never_known"),
        (_is_about(judged, rows, judged.copies.is_slotless), "without_slot"),
        (_is_about(judged, rows, is_unread), "slot_unread"),
        (_is_about(judged, rows, judged.copies.is_hidden), "hidden_by_number"), _else(rows, "check_passed"),
    ]  # fmt: skip


_CHOOSERS: dict[State, Callable[[Judgement, Int64s], Choices]] = {
    State.COMMITTED: _of_committed, State.ROLLED_BACK: _of_rolled_back, State.PENDING: _of_pending,
    State.DISCARDED: _of_discarded, State.LOST: _of_lost,
}  # fmt: skip
