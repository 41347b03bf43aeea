"""Decisions that a broker accepted and did not write: ops that were only in its memory when it was killed.

From 5.1.0 on an op message waits in the broker's memory for up to transactionOpBatchInterval
(docs/formats/half_and_op.md#op, docs/formats/half_and_op.md#lost-op-batch). A commit writes its COMMIT record at once,
so only rollbacks are lost with that memory: the store does not show them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from rmqtx.readers.model.columns import Bools
from rmqtx.verdicts.model.state import State
from rmqtx.verdicts.transactions.judgement import Judgement

if TYPE_CHECKING:
    from rmqtx.verdicts.model.verdict_inputs import StoreView


def may_be_decided(judged: Judgement, is_checked_again: Bools) -> Bools:
    """Return pending and discarded transactions that the producer may have decided while ops were not written.

    `is_checked_again`: those for which the check began again at an older cursor.

    The producer can decide after each copy: the half itself, or the check that put it back. The broker then waits for
    transactionTimeOut, or the immunity time of the message, before the next check. Ops of the last
    transactionOpBatchInterval before the log's end were in memory when the broker was killed; those of an earlier kill
    are lost too, if the check has begun again at an older cursor since. What was in memory at a past time was written
    later, unless the kill followed within that interval; and what was committed later had not been rolled back.
    """
    copies, halves = judged.copies, judged.chains.halves
    if not len(halves):
        return np.zeros(judged.chains.count, np.bool_)
    held, is_cut = copies.per_transaction(_held_ms), copies.per_transaction(_is_cut) > 0
    end = copies.per_transaction(lambda view: view.killed_time_ms or 0)
    time_out = copies.per_transaction(lambda view: view.settings.transaction_time_out_ms)
    immunity = halves.integers("immunity_seconds")[halves.last] * 1000
    occasion = halves.integers("store_time_ms")[halves.last]
    in_window = is_cut & (occasion + np.maximum(time_out, immunity) >= end - held)
    in_half_topic = halves.has & ~halves.newest_is(copies.others.is_other)
    is_open = judged.state.are(State.PENDING) | (judged.state.are(State.DISCARDED) & ~judged.found.is_without_copy)
    found: Bools = is_open & in_half_topic & (held > 0) & (in_window | is_checked_again)
    # A COMMIT record of a half in the half topic was written after the given past time.
    return found & ~halves.any_of(copies.are_identified(lambda view: view.later_commit_hashes))


def lost_ops_words(judged: Judgement) -> pa.Array:
    """Return the clause of the reason for each transaction."""
    views = judged.chains.views
    numbers = {name: number for number, name in enumerate(views)}
    chosen = judged.copies.per_transaction(lambda view: numbers[view.store])
    words = np.array([_words(view) for view in views.values()] or [""], object)
    return pa.array(words[chosen].tolist(), pa.string())


def _words(view: StoreView) -> str:
    settings = view.settings
    is_default = settings.batches_ops is True and settings.is_default("transaction_op_batch_interval_ms")
    name = f"transactionOpBatchInterval{', by default' if is_default else ''}"
    where = "were only in its broker's memory" if _is_cut(view) else "are lost when a broker is killed"
    return f"; it may have been rolled back: ops of the last {_held_ms(view) / 1000:g} s ({name}) {where}"


def _held_ms(view: StoreView) -> int:
    return view.settings.transaction_op_batch_interval_ms


def _is_cut(view: StoreView) -> bool:
    """Whether ops that were in memory at the given time may be missing from the log."""
    if view.killed_time_ms is None:
        return False
    return view.at_ms is None or view.at_ms >= view.killed_time_ms - _held_ms(view)
