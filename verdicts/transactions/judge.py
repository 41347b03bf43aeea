"""The verdict on each transaction: its state, with flags, reason, advice and the evidence, as a row.

The reason code is chosen here. For prepared records and halves in RocksDB the reason is about one half copy, the
`reason_copy`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Bools, Int64s, lists_of
from rmqtx.readers.model.tables import TRANSACTIONS
from rmqtx.readers.old_tables.beside_log import NONE
from rmqtx.readers.store.store import HALF_TOPICS
from rmqtx.verdicts.ends.doubtful_ends import without_doubtful
from rmqtx.verdicts.model.predicted import Event
from rmqtx.verdicts.model.verdict_inputs import StoreView
from rmqtx.verdicts.model.verdict_words import EVIDENCE, Advice, State
from rmqtx.verdicts.model.witnesses import Witnesses
from rmqtx.verdicts.transactions.chains import Chains
from rmqtx.verdicts.transactions.design_tables import state_entries_of
from rmqtx.verdicts.transactions.flags import flags_of
from rmqtx.verdicts.transactions.found_states import FoundStates
from rmqtx.verdicts.transactions.futures import Futures
from rmqtx.verdicts.transactions.judged_copies import JudgedCopies
from rmqtx.verdicts.transactions.judgement import Codes, Judgement
from rmqtx.verdicts.transactions.measures import MEASURES, Measures
from rmqtx.verdicts.transactions.reason_codes import NUMBERS, REASONS
from rmqtx.verdicts.transactions.reasons import sentences

_HIGHEST = np.iinfo(np.int64).max


def judge(
    witnesses: Witnesses, views: Mapping[str, StoreView], columns: Collection[str] = TRANSACTIONS.names
) -> pa.Table:
    """Return the verdict on every transaction of the witnesses.

    Shape: one row of TRANSACTIONS per transaction, with the given columns only, in the order of the table, and those of
           MEASURES that are given; `strengths.with_causes` adds the `causes`.
    Order: first half copy, then those with only discard copies or finals.
    """
    trusted = without_doubtful(witnesses, views)
    chains = Chains(trusted, views)
    del witnesses, trusted  # the groups are copies
    rows = _Rows(Judgement.of(FoundStates.of(JudgedCopies.of(chains))))
    schema = chosen_schema(columns)
    return pa.Table.from_arrays([_COLUMNS[name](rows) for name in schema.names], schema=schema)


def chosen_schema(columns: Collection[str]) -> pa.Schema:
    """Return the given columns of TRANSACTIONS and MEASURES, in the order of these tables."""
    return pa.schema([field for field in (*TRANSACTIONS, *MEASURES) if field.name in columns])


def _decided_times(judged: Judgement) -> pa.Array:
    finals, discards, marks = judged.chains.finals, judged.chains.discards, judged.chains.marks
    far = _HIGHEST
    marked = marks.lowest(marks.integers("store_time_ms"), far, judged.copies.marks.decides)
    times = np.select(
        [
            judged.state.are(State.COMMITTED),
            judged.state.are(State.ROLLED_BACK),
            judged.state.are(State.DISCARDED) & discards.has,
        ],
        [
            finals.lowest(finals.integers("store_time_ms"), far),
            marked,
            discards.highest(discards.integers("store_time_ms"), 0),
        ],
        far,
    )
    return pa.array(times, pa.int64(), mask=times == far)


def _deliveries(judged: Judgement) -> pa.Array:
    """Return the number of deliveries; a final that waited for its delay delivers the one that named a copy."""
    is_unknown = judged.state.are(State.UNDECIDABLE) | judged.may_lack_final | judged.may_begin_earlier
    chains = judged.chains
    return pa.array(np.maximum(chains.commits_count, chains.finals.has), pa.int64(), mask=is_unknown)


def _flag_lists(flags: dict[str, Bools], count: int) -> pa.Array:
    return lists_of(list(flags), list(flags.values()), count, TRANSACTIONS.field("flags").type)


def _advice(judged: Judgement, futures: Futures, is_masked: Bools) -> pa.Array:
    others, halves = judged.copies.others, judged.chains.halves
    is_pending = judged.state.are(State.PENDING)
    is_asked_again = judged.is_asked_still & ~futures.is_unasked
    is_resumable = is_pending & is_masked | judged.state.are(State.DISCARDED, State.LOST)
    is_resumable &= ~is_asked_again
    is_asked = halves.newest_is((others.is_asked & ~others.is_unanswerable) | others.was_asked | others.is_table_unread)
    choices = [
        (judged.is_closable & ~futures.is_cut, Advice.CLOSE),
        (is_pending & halves.newest_is(others.is_prepared) & ~is_asked, Advice.DECIDE),
        # A resumed half is appended at the end: a stopped check does not reach it either, and one that is older than
        # fileReservedTime is discarded again without asking.
        (is_pending & futures.is_unasked | (futures.is_stopped | futures.is_too_old) & is_resumable, Advice.DECIDE),
        (is_resumable, Advice.RESUME),
        (is_pending | is_asked_again, Advice.WAIT),
    ]
    numbers = np.select([rows for rows, _ in choices], list(range(len(choices))), len(choices))
    return pa.array([*(advice for _, advice in choices), Advice.NONE], pa.string()).take(pa.array(numbers))


#: Masks of transactions with their codes: the first mask that holds gives the code.
_Choices = list[tuple[Bools, str]]


def _reason_codes(judged: Judgement) -> Codes:
    """Return the code of each transaction's reason, as its number in REASONS."""
    codes = judged.undecidable_codes.copy()
    for state, choose in _CHOOSERS.items():
        rows = np.flatnonzero(judged.state.are(state))
        if len(rows):
            codes[rows] = _first_that_holds(choose(judged, rows))
    return codes


def _first_that_holds(choices: _Choices) -> Codes:
    return np.select([mask for mask, _ in choices], [np.int8(NUMBERS[code]) for _, code in choices]).astype(np.int8)


def _is_about(judged: Judgement, rows: Int64s, copies: Bools) -> Bools:
    """Whether the reason is about one of the given half copies."""
    if not copies.any():
        return np.zeros(len(rows), np.bool_)
    found: Bools = judged.chains.halves.has[rows] & copies[judged.found.reason_copy[rows]]
    return found


def _else(rows: Int64s, code: str) -> tuple[Bools, str]:
    return np.ones(len(rows), np.bool_), code


def _of_committed(judged: Judgement, rows: Int64s) -> _Choices:
    return [(judged.is_perhaps_asked[rows], "commit_record_table_unread"), _else(rows, "commit_record")]


def _of_rolled_back(judged: Judgement, rows: Int64s) -> _Choices:
    names_offset = np.asarray(pc.is_valid(judged.chains.marks.table["half_commit_log_offset"]))
    by_offset = names_offset[judged.found.first_own_mark[rows]]
    return [
        (by_offset & judged.chains.has_rollback_record[rows], "rollback_record"), (by_offset, "rocksdb_op_message"),
        _else(rows, "op_message"),
    ]


def _of_pending(judged: Judgement, rows: Int64s) -> _Choices:
    is_diverted = judged.chains.diverted_halves[judged.chains.halves.last[rows]]
    return [
        *_of_rocksdb(judged, rows), *_of_prepared(judged, rows), (judged.found.is_copied_later[rows], "copied_later"),
        (is_diverted, "diverted"), _else(rows, "check_to_come"),
    ]


def _of_rocksdb(judged: Judgement, rows: Int64s) -> _Choices:
    others = judged.copies.others
    choices = [
        (others.is_recorded, "rocksdb_in_table"), (~others.has_tables, "rocksdb_not_dropped_yet"),
        (others.last_offset == NONE, "rocksdb_table_empty"), (others.is_rocksdb, "rocksdb_behind_table"),
    ]
    return [(_is_about(judged, rows, others.is_rocksdb & copies), code) for copies, code in choices]


def _of_prepared(judged: Judgement, rows: Int64s) -> _Choices:
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


def _of_discarded(judged: Judgement, rows: Int64s) -> _Choices:
    without_copy = judged.found.is_without_copy[rows]
    return [
        (without_copy & _is_about(judged, rows, judged.copies.others.is_rocksdb), "rocksdb_dropped"),
        (without_copy, "dropped_without_copy"), _else(rows, "discard_copy"),
    ]


def _of_lost(judged: Judgement, rows: Int64s) -> _Choices:
    is_unread = judged.copies.future.event == Event.SKIPPED
    return [
        (_is_about(judged, rows, judged.copies.others.is_rocksdb), "rocksdb_never_known"),
        (_is_about(judged, rows, judged.copies.is_slotless), "without_slot"),
        (_is_about(judged, rows, is_unread), "slot_unread"),
        (_is_about(judged, rows, judged.copies.is_hidden), "hidden_by_number"), _else(rows, "check_passed"),
    ]


_CHOOSERS: dict[State, Callable[[Judgement, Int64s], _Choices]] = {
    State.COMMITTED: _of_committed, State.ROLLED_BACK: _of_rolled_back, State.PENDING: _of_pending,
    State.DISCARDED: _of_discarded, State.LOST: _of_lost,
}


class _Rows:
    """What columns of TRANSACTIONS are made of; each part is made when the first column needs it."""

    def __init__(self, judged: Judgement) -> None:
        self.judged = judged

    @cached_property
    def futures(self) -> Futures:
        """What the next start and the check do next."""
        return Futures(self.judged)

    @cached_property
    def flags(self) -> dict[str, Bools]:
        """The transactions with each flag."""
        return flags_of(self.judged, self.futures)

    @cached_property
    def measures(self) -> Measures:
        """Times between events, and counts of checks."""
        return Measures(self.judged)

    @cached_property
    def codes(self) -> Codes:
        """The reason codes."""
        return _reason_codes(self.judged)

    @cached_property
    def has_lost_topic(self) -> pa.Array:
        """Which transactions have no real topic: a diverted half message loses it."""
        return pc.is_in(self.judged.chains.real_topics, value_set=pa.array(HALF_TOPICS))


def _queue_ids(rows: _Rows) -> pa.Array:
    halves, discards, finals, marks = rows.judged.chains.bearers
    queue_id = pc.coalesce(
        halves.at("real_queue_id", halves.first), discards.at("real_queue_id", discards.first),
        finals.at("queue_id", finals.last), marks.at("queue_id", marks.last),
    )
    return pc.if_else(rows.has_lost_topic, pa.scalar(None, pa.int32()), queue_id)


def _checks_counts(judged: Judgement) -> pa.Array:
    found = judged.found
    return pa.array(found.checks_count, pa.int64(), mask=found.has_unknown_checks).cast(pa.int32())


_COLUMNS: dict[str, Callable[[_Rows], pa.Array]] = {
    "store": lambda rows: rows.judged.copies.store,
    "transaction_id": lambda rows: rows.judged.chains.ids,
    "state": lambda rows: rows.judged.state.names(),
    "flags": lambda rows: _flag_lists(rows.flags, rows.judged.chains.count),
    "reason": lambda rows: sentences(rows.judged, rows.codes, rows.flags, rows.futures),
    "advice": lambda rows: _advice(rows.judged, rows.futures, rows.flags["masked"]),
    "producer_group": lambda rows: rows.judged.chains.first_of("producer_group"),
    "topic": lambda rows: pc.if_else(
        rows.has_lost_topic, pa.scalar(None, pa.string()), rows.judged.chains.real_topics
    ),
    "queue_id": _queue_ids,
    "keys": lambda rows: rows.judged.chains.first_of("keys"),
    "born_time_ms": lambda rows: rows.judged.chains.born_time_ms,
    "half_store_time_ms": lambda rows: rows.judged.chains.half_store_time_ms,
    "decided_time_ms": lambda rows: _decided_times(rows.judged),
    "checks_count": lambda rows: _checks_counts(rows.judged),
    **{
        name: lambda rows, name=name: rows.judged.chains.evidence(name)  # type: ignore[misc]
        for name in EVIDENCE
    },
    "state_entries": lambda rows: state_entries_of(rows.judged.chains, TRANSACTIONS.field("state_entries").type),
    "discard_at_ms": lambda rows: rows.futures.column_of_times(rows.futures.discard_ms),
    "next_event": lambda rows: rows.futures.words,
    "next_event_at_ms": lambda rows: rows.futures.column_of_times(rows.futures.event_ms),
    "answer_effect": lambda rows: rows.futures.answer_effects,
    "deliveries_count": lambda rows: _deliveries(rows.judged),
    "reason_code": lambda rows: pa.array(list(REASONS), pa.string()).take(pa.array(rows.codes)),
    "causes": lambda rows: pa.nulls(rows.judged.chains.count, TRANSACTIONS.field("causes").type),
    **{name: lambda rows, name=name: rows.measures.column(name) for name in MEASURES.names},  # type: ignore[misc]
}
