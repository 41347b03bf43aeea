"""The verdict on each transaction: its state, with flags, reason, advice and the evidence, as a row."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from readers.model.columns import Bools
from readers.model.tables import TRANSACTIONS
from readers.old_tables.beside_log import NONE
from readers.store.store import HALF_TOPIC, ROCKSDB_HALF_TOPIC
from verdicts.ends.doubtful_ends import without_doubtful
from verdicts.model.verdict_inputs import StoreView
from verdicts.model.witnesses import Witnesses
from verdicts.transactions.chains import Chains
from verdicts.transactions.check_reach import CheckReach
from verdicts.transactions.design_tables import state_entries_of
from verdicts.transactions.flags import flags_of
from verdicts.transactions.judgement import Judgement
from verdicts.transactions.reason_choice import chosen_codes
from verdicts.transactions.reason_codes import REASONS
from verdicts.transactions.reasons import sentences

_HIGHEST = np.iinfo(np.int64).max


def judge(witnesses: Witnesses, views: Mapping[str, StoreView]) -> pa.Table:
    """Return the verdict on every transaction of the witnesses.

    Shape: one row of TRANSACTIONS per transaction; `discard_times.with_discard_times` adds the `discard_at_ms`.
    Order: first half copy, then those with only discard copies or finals.
    """
    trusted = without_doubtful(witnesses, views)
    return _rows(Judgement(Chains(trusted, is_of_one_store=len(views) <= 1), views))


def _decided_times(judged: Judgement) -> pa.Array:
    finals, discards, marks = judged.finals, judged.discards, judged.marks
    far = _HIGHEST
    marked = marks.lowest(marks.integers("store_time_ms"), far, ~judged.is_misdirected_mark)
    times = np.select(
        [judged.state == "COMMITTED", judged.state == "ROLLED_BACK", (judged.state == "DISCARDED") & discards.has],
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
    is_unknown = (judged.state == "UNDECIDABLE") | judged.may_lack_final | judged.may_begin_earlier
    return pa.array(np.maximum(judged.commits_count, judged.finals.has), pa.int64(), mask=is_unknown)


def _flag_lists(flags: dict[str, Bools]) -> pa.Array:
    names = list(flags)
    matrix = np.stack([flags[name] for name in names], axis=1)
    offsets = np.concatenate([[0], np.cumsum(matrix.sum(axis=1))]).astype(np.int32)
    values = pa.array(names, pa.string()).take(pa.array(np.nonzero(matrix)[1]))
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=TRANSACTIONS.field("flags").type)


def _advice(judged: Judgement, reach: CheckReach, is_masked: Bools) -> pa.Array:
    others = judged.others
    # a broker before 3.2 checks most of them
    unread = others.may_ask & (~others.has_tables | (others.is_table_damaged & (others.open_slot == NONE)))
    is_resumable = (judged.state == "PENDING") & is_masked | np.isin(judged.state, ["DISCARDED", "LOST"])
    is_resumable &= ~judged.is_asked_still | reach.is_never_asked
    is_asked = judged.newest_is((others.is_asked & ~others.is_unanswerable) | others.was_asked | unread)
    return pa.array(
        np.select(
            [
                judged.is_closable,
                (judged.state == "PENDING") & judged.newest_is(judged.others.is_prepared) & ~is_asked,
                # A resumed half is appended at the end: a stopped check does not reach it either.
                reach.is_never_asked & (judged.state == "PENDING") | reach.is_stopped & is_resumable
                | reach.is_spent,
                is_resumable,
                (judged.state == "PENDING") | judged.is_asked_still,
            ],
            ["close", "decide", "decide", "resume", "wait"],
            "none",
        )
    )


def _rows(judged: Judgement) -> pa.Table:
    """The rows of TRANSACTIONS, in the order of the chains."""
    halves, finals = judged.halves, judged.finals
    reach = CheckReach(judged)
    flags = flags_of(judged, reach)
    codes = chosen_codes(judged)
    topic = judged.real_topics()
    half_topics = pa.array([HALF_TOPIC, ROCKSDB_HALF_TOPIC])
    is_lost = pc.is_in(topic, value_set=half_topics)  # a diverted half message loses its real topic
    queue_id = pc.coalesce(
        halves.at("real_queue_id", halves.first),
        judged.discards.at("real_queue_id", judged.discards.first),
        finals.at("queue_id", finals.last),
        judged.chains.offset_marks.at("queue_id", judged.chains.offset_marks.last),
    )
    columns = {
        "store": judged.store,
        "transaction_id": judged.identity(),
        "state": pa.array(judged.state),
        "flags": _flag_lists(flags),
        "reason": sentences(judged, codes, flags, reach),
        "advice": _advice(judged, reach, flags["masked"]),
        "producer_group": judged.first_of("producer_group"),
        "topic": pc.if_else(is_lost, pa.scalar(None, pa.string()), topic),
        "queue_id": pc.if_else(is_lost, pa.scalar(None, pa.int32()), queue_id),
        "keys": judged.first_of("keys"),
        "born_time_ms": judged.born_time_ms,
        "half_store_time_ms": judged.half_store_time_ms,
        "decided_time_ms": _decided_times(judged),
        "checks_count": pa.array(judged.checks_count, pa.int64(), mask=judged.has_unknown_checks).cast(pa.int32()),
        **judged.chains.evidence(),
        "state_entries": state_entries_of(judged.chains, judged.views, TRANSACTIONS.field("state_entries").type),
        "discard_at_ms": pa.nulls(judged.chains.count, pa.int64()),
        "deliveries_count": _deliveries(judged),
        "reason_code": pa.array(list(REASONS), pa.string()).take(pa.array(codes)),
    }
    return pa.Table.from_arrays([columns[name] for name in TRANSACTIONS.names], schema=TRANSACTIONS)
