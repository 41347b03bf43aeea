"""The flags of a transaction: what an operator should notice beside its state. `judge.py` applies them.

Decisions that a broker accepted and did not write: from 5.1.0 on an op message waits in the broker's memory for up to
transactionOpBatchInterval (docs/formats/half_and_op.md#op, docs/formats/half_and_op.md#lost-op-batch). A commit writes
its COMMIT record at once, so only rollbacks are lost with that memory: the store does not show them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Bools, are_among, int64s
from rmqtx.readers.model.moments import HOUR_MS
from rmqtx.readers.old_tables.beside_log import NONE
from rmqtx.verdicts.check.check_rules import is_younger
from rmqtx.verdicts.check.stored_records import are_askable
from rmqtx.verdicts.model.verdict_words import State
from rmqtx.verdicts.transactions.chains import Chains
from rmqtx.verdicts.transactions.futures import Futures
from rmqtx.verdicts.transactions.judgement import Judgement

if TYPE_CHECKING:
    from rmqtx.verdicts.model.verdict_inputs import StoreView

EXPIRES_SOON_MS = 6 * HOUR_MS
CLOCK_AHEAD_MS = 5_000
CLOCK_BEHIND_MS = 600_000
CHECK_PASS_MS_MAX = 60_000

FLAGS: dict[str, str] = {
    "duplicate_commit": "more than one COMMIT record names one of its copies: consumers receive the message once for "
    "each record",
    "commit_without_op": "a COMMIT record and no op mark: if the check will still reach a copy and asks a producer, "
    "the answer COMMIT delivers it again (rmqtx show ID: next)",
    "commit_after_rollback": "a COMMIT record was written after an op message, or a ROLLBACK record, had ended it",
    "commit_after_discard": "a COMMIT record was written after the broker had discarded it",
    "discarded_though_decided": "the broker discarded a copy although a commit or rollback was already recorded",
    "open_after_decision": "decided or discarded, but the broker checks it again: the check will still reach a copy "
    "without a valid op mark, or reaches it again because the cursor was set back; or (3.1) its slot of the state "
    "table is still open. A committed one without any op mark has commit_without_op instead",
    "conflict": "it was both committed and rolled back: a committed copy has more op marks than COMMIT records, or "
    "(designs before 4.3) both records exist; consumers received the message",
    "unanswerable": "its number in the state table differs from the record's, or will differ after a start that "
    "follows a crash and rebuilds the table: every answer is refused (3.1)",
    "never_asked": "open, and the broker never checks it: the check is stopped at one of its copies or at an earlier "
    "message; or (3.1) the state table has no entry for it, or will have none after a start that follows a crash and "
    "rebuilds the table",
    "stalled": "pending; while the broker ran, its newest copy waited without a check for longer than two check "
    f"intervals plus transactionTimeOut plus {CHECK_PASS_MS_MAX // 1000} s for a round; the time since a broker "
    "stopped does not count, because no check ran then",
    "never_checked": "pending, and no copy shows a check, although its broker ran longer than the timeout and one "
    "check interval after it was stored; the time since a broker stopped does not count",
    "immune": "pending, and the immunity time that its producer requested is not over",
    "discarded_unasked": "discarded, and each of its checks came within the immunity time that its producer requested: "
    "the broker counted the checks and did not ask",
    "resumed": "a half copy was written by RESUME_CHECK_HALF_MESSAGE (number of checks set back to 0): an operator had "
    "it checked again",
    "escaped": "half copies were stored by different brokers (a slave acting as master passed it on, 5.1.0+)",
    "expires_soon": f"pending, and less than {EXPIRES_SOON_MS // HOUR_MS} h of fileReservedTime are left by the "
    "current clock, even if its broker is stopped: after that time the check discards it without asking",
    "expired": "pending, and older than fileReservedTime: the next round of the check discards it without asking its "
    "producer; decide it before that round, or raise fileReservedTime (where the queues are in "
    "files, rmqtx simulate STORE --with fileReservedTime=HOURS predicts what the check does then)",
    "orphan_op": "an op message refers to it, but the half record itself cannot be read",
    "poison": "pending, and the check cannot ask its producer: its body, group, real topic or real queue is unusable",
    "masked": "an op mark that belongs to another record names the half queue offset of a copy of this transaction: "
    "the check skips that copy as settled, and will not check the transaction",
    "number_shared": "another half message of its queue has the half queue offset of one of its copies: op messages do "
    "not distinguish them",
    "number_taken": "another half message has, or will have, the slot of the half queue with the half queue offset of "
    "one of its copies, and the check has not passed that slot: a decision on this transaction hides the other half "
    "message from the check",
    "delayed_half": "a delay or timer property diverted the half message itself; its real topic is lost",
    "bad_body": "a copy is marked as compressed and is not (put back by a broker before 4.6.0, resumed before 5.3.2): "
    "consumers cannot read it",
    "clock_skew": f"born more than {CLOCK_AHEAD_MS // 1000} s after or {CLOCK_BEHIND_MS // 60_000} min before it was "
    "stored: its age is wrong, and checks come at once or too late",
    "checked_again_after_restart": "a half copy is later than a discard copy, and no resume wrote it: the check began "
    "again at an older cursor (a kill, a failover, a cursor set back), so it is checked and discarded once more",
    "may_be_decided": "pending or discarded, and its producer may have rolled it back: brokers from 5.1.0 on keep ops "
    "in memory for transactionOpBatchInterval, and lose them when they are killed",
    "without_copy": "discarded by a version or design that writes no copy of what it discards (4.3.0 to 4.5.1, "
    "transactions in RocksDB)",
    "redelivered": "rolled back, discarded or lost, and a copy that rmqtx redeliver sent is in its real topic of a "
    "store or broker that was read: consumers received it",
}

_LOWEST, _HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def flags_of(judged: Judgement, futures: Futures) -> dict[str, Bools]:
    """Return the transactions that have each flag.

    Shape: by flag, one value per transaction.
    Order: that of FLAGS, in which rows name them.
    """
    found = _of_decisions(judged, futures) | _of_waiting(judged, futures) | _of_copies(judged)
    found["may_be_decided"] = may_be_decided(judged, found["checked_again_after_restart"])
    return {name: found[name] for name in FLAGS if name in found}  # copies are searched for when the rows are known


def _of_decisions(judged: Judgement, futures: Futures) -> dict[str, Bools]:
    """Flags for unusual decisions and discards."""
    copies, chains = judged.copies, judged.chains
    halves, others, finals, discards = chains.halves, copies.others, chains.finals, chains.discards
    first_mark_rank = chains.marks.lowest(chains.marks.rank, _HIGHEST, copies.marks.decides)
    is_committed, is_decided = judged.state.are(State.COMMITTED), judged.state.are(State.COMMITTED, State.ROLLED_BACK)
    is_discarded, has_mark = judged.state.are(State.DISCARDED), judged.found.marks_count > 0
    is_prepared, is_delayed = halves.newest_is(others.is_prepared), halves.any_of(chains.diverted_halves)
    first_decision = np.minimum(finals.first_rank, first_mark_rank)
    # A flag that depends on the absence of a record is not set where missing bytes may contain that record.
    has_no_op, has_no_other_final = ~has_mark & ~judged.may_lack_op, ~judged.may_lack_final
    is_late = is_committed & has_no_other_final
    is_discarded_unasked = futures.is_unasked & ~futures.is_never_asked
    is_open = halves.any_of(copies.is_open) & (~judged.may_lack_op & ~is_discarded_unasked | is_prepared)
    hiding = copies.marks.is_misdirected & ~copies.marks.shared.is_foreign
    is_masked = chains.marks.any_of(hiding) | halves.any_of(copies.is_hidden)
    return {
        "duplicate_commit": chains.commits_count > 1,
        "commit_without_op": is_committed & halves.any_of(~others.is_prepared) & has_no_op,
        "commit_after_rollback": is_late & has_mark & (finals.first_rank > first_mark_rank),
        "commit_after_discard": is_late & discards.has & (finals.first_rank > discards.first_rank),
        "discarded_though_decided": discards.has & is_decided & (first_decision < discards.last_rank),
        "open_after_decision": is_open & ((is_decided & (has_mark | is_prepared)) | is_discarded),
        "conflict": is_committed & (has_no_other_final | chains.has_rollback_record) & _is_rolled_back_too(judged),
        "masked": is_masked & ~is_committed & ~has_mark & ~is_delayed,
        "without_copy": judged.found.is_without_copy & is_discarded,
    }


def _of_waiting(judged: Judgement, futures: Futures) -> dict[str, Bools]:
    """Flags for the way in which a pending transaction waits."""
    copies, halves, others = judged.copies, judged.chains.halves, judged.copies.others
    # Missing checks count only for the time in which the broker ran.
    ran_until = copies.per_transaction(lambda view: view.reference_time_ms)
    timeout = copies.per_transaction(lambda view: view.settings.transaction_time_out_ms)
    interval = copies.per_transaction(lambda view: view.settings.transaction_check_interval_ms)
    reserved = copies.per_transaction(lambda view: view.settings.file_reserved_time_ms)
    immunity = halves.newest(halves.integers("immunity_seconds"), -1)
    waited = ran_until - halves.newest(halves.integers("store_time_ms"))
    is_pending = judged.state.are(State.PENDING)
    in_half_topic = is_pending & ~halves.newest_is(others.is_other)
    # Immunity and fileReservedTime also end while a broker is stopped: a broker that starts uses the current clock.
    now = copies.per_transaction(lambda view: view.present_ms)
    born = int64s(judged.chains.born_time_ms)
    may_be_immune = is_pending & ~halves.newest_is(others.is_prepared) & (immunity > 0)
    may_equal = halves.newest_is(copies.may_equal_immunity)
    was_immune = may_be_immune & is_younger(ran_until - born, immunity * 1000, may_equal)
    is_immune = may_be_immune & is_younger(now - born, immunity * 1000, may_equal)
    has_slot = (others.open_slot != NONE) | ((others.decided_slot != NONE) & ~others.is_predicted)
    is_slotless = others.is_prepared & others.has_tables & ~others.never_asks & ~has_slot & ~others.is_table_damaged
    askable = are_askable(halves.table)
    poisoned = np.where(
        others.is_rocksdb, others.is_unreadable_key, ~others.is_prepared & ~(_are_readable(halves.table) & askable)
    )
    return {
        "never_asked": (is_pending & halves.any_of(is_slotless)) | futures.is_never_asked,
        "stalled": in_half_topic & ~was_immune & (waited > timeout + 2 * interval + CHECK_PASS_MS_MAX),
        "never_checked": in_half_topic & (judged.found.checks_count == 0) & (waited > timeout + interval) & ~was_immune,
        "immune": is_immune,
        "expires_soon": in_half_topic & (now - born > reserved - EXPIRES_SOON_MS) & ~futures.is_unasked,
        "expired": is_pending & futures.is_expired,
        "poison": is_pending & halves.any_of(copies.is_ahead & poisoned),
    }


def _of_copies(judged: Judgement) -> dict[str, Bools]:
    """Flags for unusual copies, in any state."""
    copies, chains, others = judged.copies, judged.chains, judged.copies.others
    halves, discards = chains.halves, chains.discards
    born, stored = int64s(chains.born_time_ms), int64s(chains.half_store_time_ms)
    # The check counts from 1, and a message from a client has no count; a half put into RocksDB again has one.
    has_count = np.asarray(pc.is_valid(halves.table["checks_count"]))
    is_resumed = halves.any_of(has_count & (others.is_rocksdb | (halves.integers("checks_count") == 0)))
    is_delayed = halves.any_of(chains.diverted_halves)  # its timer returns the half, in any state of its copies
    has_later_half = discards.has & (halves.last_rank > discards.first_rank)
    host = halves.integers("store_host_number")
    return {
        "unanswerable": halves.any_of(others.is_unanswerable),
        "discarded_unasked": _is_discarded_unasked(judged),
        "resumed": is_resumed,
        "checked_again_after_restart": has_later_half & ~is_resumed & ~is_delayed,
        "escaped": halves.has & (halves.highest(host, _LOWEST) != halves.lowest(host, _HIGHEST)),
        "orphan_op": halves.any_of(_are_damaged(chains) & copies.is_marked),
        "number_shared": halves.any_of(copies.is_number_shared),
        "number_taken": halves.any_of(copies.is_number_taken),
        "delayed_half": is_delayed,
        "bad_body": halves.any_of(~_are_readable(halves.table)) | discards.any_of(~_are_readable(discards.table)),
        "clock_skew": halves.has & ((born - stored > CLOCK_AHEAD_MS) | (stored - born > CLOCK_BEHIND_MS)),
    }


def _is_discarded_unasked(judged: Judgement) -> Bools:
    """Discarded transactions whose copies with checks, to the last check, were all put back within the immunity time.

    Source: the check counts before it compares the immunity time (TransactionalMessageServiceImpl.check).
    """
    halves = judged.chains.halves
    checks, immunity = halves.integers("checks_count"), halves.integers("immunity_seconds")
    age_ms = halves.integers("store_time_ms") - halves.integers("born_time_ms")
    is_put_back = checks > 0
    is_immune = is_younger(age_ms, immunity * 1000, judged.copies.may_equal_immunity)
    was_asked = is_put_back & ((immunity <= 0) | ~is_immune)
    has_last = halves.highest(checks, -1) == judged.found.checks_count
    found: Bools = judged.state.are(State.DISCARDED) & halves.any_of(is_put_back) & ~halves.any_of(was_asked) & has_last
    return found


def _are_damaged(chains: Chains) -> Bools:
    """Half copies whose record lies in bytes that cannot be read; they are known by the readable rest of the record."""
    halves, offsets = chains.halves, chains.halves.integers("commit_log_offset")
    found = np.zeros(len(halves), np.bool_)
    for missing in (one for view in chains.views.values() for one in view.missing):
        inside = (offsets >= missing.begin_offset) & (offsets < missing.end_offset)
        found |= inside & halves.are_in([missing.store])
    return found


def _are_readable(copies: pa.Table) -> Bools:
    """Copies with a body that consumers can read, as far as is known."""
    readable: Bools = np.asarray(pc.fill_null(copies["body_is_readable"], True))
    return readable


def _is_rolled_back_too(judged: Judgement) -> Bools:
    """Whether a ROLLBACK record names it, or a committed copy has more op marks than decisions on record.

    Every decision that a broker accepts marks the copy that it names, and a commit also writes a COMMIT record. The
    order of the records need not be the order of the decisions: from 5.1.0 on ops are written in batches, so the op of
    a rollback may lie after a later COMMIT record. The records are the same where a committed copy was closed after
    the op cursor was set back by hand.
    """
    chains, halves, finals = judged.chains, judged.chains.halves, judged.chains.finals
    marks = chains.marks_per_copy(judged.copies.marks.decides)
    rows = np.flatnonzero((marks > 1) & ~(chains.diverted_halves | judged.copies.others.is_prepared))
    chosen = chains.named_finals & ~chains.replicated_finals
    chosen &= are_among(finals.number, halves.number[rows])
    commits = Counter(
        zip(
            finals.number[chosen].tolist(), finals.integers("prepared_transaction_offset")[chosen].tolist(),
            strict=True,
        )
    )
    others = Counter(
        (decision.store, decision.queue_id, decision.queue_offset)
        for view in chains.views.values() for decision in view.misdirected_decisions
    )
    is_twice = chains.has_rollback_record.copy()
    columns = ["store", "queue_id", "queue_offset", "commit_log_offset"]
    for row, copy in zip(rows.tolist(), halves.table.select(columns).take(pa.array(rows)).to_pylist(), strict=True):
        number = int(halves.number[row])
        own = commits[number, copy["commit_log_offset"]]
        is_twice[number] |= 0 < own < marks[row] - others[copy["store"], copy["queue_id"], copy["queue_offset"]]
    return is_twice


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
