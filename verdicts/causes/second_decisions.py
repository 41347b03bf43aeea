"""Causes of more decisions than one, and of checks after a decision: brokers accept every decision."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.model.releases import (
    DESTINATION_LEFT_OUT,
    HALF_TOPIC_DESIGN,
    OP_LISTS,
    OPS_WAIT_TWICE,
    RESUME_REQUEST,
    Change,
)
from rmqtx.verdicts.causes.cause import OP_THREAD_NOTE, SLAVE_NOTE, Cause, Support, fits, proves
from rmqtx.verdicts.causes.evidence import Evidence
from rmqtx.verdicts.causes.traces import DECIDED, rolled_back_once_ms, said_any
from rmqtx.verdicts.model.store_evidence import FILES, OP_WRITE_MS, TRACE

_END = "broker/processor/EndTransactionProcessor.java"


def decided_again(found: Evidence) -> Bools:
    """Transactions with more decisions than one on record."""
    flags = ("duplicate_commit", "commit_after_rollback", "conflict")
    return functools.reduce(np.logical_or, map(found.flag, flags))


def single_copies(found: Evidence) -> Bools:
    """Transactions with one copy, and without an op message that names it by number: none before 4.3, or in RocksDB."""
    has_number = found.any_owner(found.marks.owner[found.marks.half >= 0])
    is_single: Bools = (found.count_of(found.copies) == 1) & ~has_number
    return is_single


def _same_copy_decided_twice(found: Evidence) -> Support:
    """Two ops name one copy; or, before half topics, there is only one record to decide.

    Two COMMIT records that name it prove that too. Else one copy with a single op message only fits: a second decision
    may have named another record, like the first COMMIT.
    A trace in which the second decision is the answer to a check excludes it where no check puts a copy back.
    """
    copies, named = found.copies, found.copy_of_mark
    decided = np.flatnonzero(np.bincount(named[named >= 0], minlength=len(copies)) > 1)
    twice = decided_again(found) & ~answered_again(found)
    proven = found.any_owner(copies.owner[decided]) | found.any_owner(found.named_twice)
    proven = twice & (proven | (single_copies(found) & ~found.half_topic))
    return fits(proven | (twice & (found.count_of(copies) == 1)), proven)


def answered_again(found: Evidence) -> Bools:
    """Transactions with one copy whose producer decided, and decided again when it was asked, by its trace."""
    again = said_any(found, *DECIDED, is_answer=False) & said_any(found, *DECIDED, is_answer=True)
    return again & single_copies(found) & found.half_topic


@dataclass(frozen=True, slots=True)
class _LateMarks:
    """Op marks that follow the put-back of the copy that they name, with what their transaction committed.

    Shape: `owner`: the transaction. `has_commits`: whether it has a COMMIT record. `commits_before`, `commits_after`:
           its COMMIT records between the named copy and the next one, and from there to the op message. `is_at_once`:
           the broker writes an op message when it takes the decision (before 5.1.0). `waited_ms`: from the put-back to
           the op message. `held_ms`: from the last COMMIT record before the put-back to the op message; -1 without one.
           `store`: the number of the store. `is_before`, `is_after`: the trace of the producer shows that a rollback
           was decided before the put-back, or after it.
    """

    owner: Int64s
    has_commits: Bools
    commits_before: Int64s
    commits_after: Int64s
    is_at_once: Bools
    waited_ms: Int64s
    held_ms: Int64s
    store: Int64s
    is_before: Bools
    is_after: Bools


def _late_marks(found: Evidence) -> _LateMarks:
    copies, marks, finals = found.copies, found.marks, found.finals
    rows = np.flatnonzero(found.copy_after_mark >= 0)
    rows = rows[copies.offset[found.copy_after_mark[rows]] < marks.offset[rows]]
    later, owner, store = found.copy_after_mark[rows], marks.owner[rows], marks.store[rows]
    own, following = copies.offset[found.copy_of_mark[rows]], copies.offset[later]
    committed_ms = found.last_time_between(finals, owner, store, own, following)
    at_once = found.whether(lambda one: OP_LISTS.between(one.version_low, one.version_high) is False)
    has_none = (found.count_of(finals) == 0)[owner] & (found.count_of(marks) == 1)[owner]
    earliest, latest = (times[owner] for times in rolled_back_once_ms(found))
    hold_ms = found.numbers(lambda one: one.op_hold_ms, 0)[store]
    # an op message of another rollback than that of the trace would come at another time
    is_of_trace = has_none & (earliest <= marks.time_ms[rows]) & (latest >= marks.time_ms[rows] - hold_ms)
    return _LateMarks(
        owner, found.count_of(finals)[owner] > 0, found.between(finals, owner, store, own, following),
        found.between(finals, owner, store, following, marks.offset[rows]), at_once[store],
        marks.time_ms[rows] - copies.time_ms[later],
        np.where(committed_ms >= 0, marks.time_ms[rows] - committed_ms, -1), store,
        is_of_trace & (latest < copies.time_ms[later]), is_of_trace & (earliest > copies.time_ms[later]),
    )


def _unusual(found: Evidence) -> Bools:
    """Transactions with traces of a check, or of another decision, after a decision."""
    return decided_again(found) | found.flag("open_after_decision") | found.flag("discarded_though_decided")


def _hold_ms(found: Evidence, late: _LateMarks) -> Int64s:
    """How long the broker held each op message at most."""
    return found.numbers(lambda one: one.op_hold_ms, 0)[late.store]


def _old_copy_decided(found: Evidence) -> Support:
    """A decision was made after the check had put back a later copy than the one that the decision names.

    A COMMIT record between the later copy and the op message shows the moment of the decision. A rollback shows only
    the op message, which a broker from 5.1.0 on writes only after it was held in memory; or the trace shows its moment.
    """
    late, unusual = _late_marks(found), _unusual(found)
    is_sure = late.is_at_once | (late.waited_ms > _hold_ms(found, late)) | late.is_after
    proven = ((late.commits_after > 0) & (late.commits_before == 0)) | (~late.has_commits & is_sure)
    may_be = proven | ((late.commits_before == 0) & ~late.is_before)
    return fits(unusual & found.any_owner(late.owner[may_be]), unusual & found.any_owner(late.owner[proven]))


def _op_written_late(found: Evidence) -> Support:
    """The decision came before the put-back, and its op message was written after it.

    A COMMIT record shows the moment of the decision; that of a rollback is known by the trace of its producer only.
    """
    late, unusual = _late_marks(found), _unusual(found)
    proven = (late.commits_before > 0) & ((late.commits_after == 0) | (late.held_ms <= _hold_ms(found, late)))
    proven |= late.is_before & ~late.is_at_once
    has_none = (late.commits_before == 0) & (late.commits_after == 0) & ~late.is_after
    may_be = proven | (has_none & (late.waited_ms <= _hold_ms(found, late)))
    return fits(unusual & found.any_owner(late.owner[may_be]), unusual & found.any_owner(late.owner[proven]))


def _op_waited_twice(found: Evidence) -> Support:
    """The same, and the op message came more than one interval after the COMMIT record, and not more than two; proven
    if the interval is known.
    """
    late, unusual = _late_marks(found), _unusual(found)
    wait_ms = found.numbers(lambda one: one.op_interval_ms, 0)[late.store]
    chosen = (late.held_ms > wait_ms + OP_WRITE_MS) & (late.held_ms <= 2 * wait_ms + OP_WRITE_MS)
    rows = unusual & found.any_owner(late.owner[chosen])
    return fits(rows, rows & found.of_store(lambda one: one.conf is not None))


@dataclass(frozen=True, slots=True)
class _CommitsAfterDiscard:
    """What the COMMIT records after a discard name, by transaction: a half copy, the discard copy, or a record that is
    not known (expired, or not shown).
    """

    half: Bools
    discard: Bools
    unknown: Bools


def _commits_after_discard(found: Evidence) -> _CommitsAfterDiscard:
    finals, discards = found.finals, found.discards
    first_discard = np.full(found.count, np.iinfo(np.int64).max)
    np.minimum.at(first_discard, discards.owner, discards.offset)
    is_late = finals.offset > first_discard[finals.owner]
    half, discard = (found.named_among(records, is_late) for records in (found.copies, discards))
    of_half, of_discard, of_other = (
        found.any_of(finals, is_late & chosen) for chosen in (half, discard, ~half & ~discard)
    )
    return _CommitsAfterDiscard(of_half, of_discard, of_other | ~(of_half | of_discard))


def _discarded_decided(found: Evidence) -> Support:
    """A decision after the discard that names a half copy; one that names the discard copy marks nothing.

    Where the named record is not known, an op message shows it; from 5.1.0 on it may have been lost in the broker's
    memory.
    """
    named, has_op = _commits_after_discard(found), ~found.flag("commit_without_op")
    rows = found.flag("commit_after_discard") & ~found.flag("resumed")
    return fits(
        rows & (named.half | (named.unknown & (has_op | ~_writes_at_once(found)))),
        rows & (named.half | (named.unknown & has_op)),
    )


def _discard_copy_decided(found: Evidence) -> Support:
    named, lacks_op = _commits_after_discard(found), found.flag("commit_without_op")
    rows = found.flag("commit_after_discard")
    return fits(
        rows & (named.discard | (named.unknown & lacks_op)),
        rows & (named.discard | (named.unknown & lacks_op & _writes_at_once(found))),
    )


def _writes_at_once(found: Evidence) -> Bools:
    """Whether the broker writes an op message when it takes the decision: before 5.1.0."""
    return found.of_store(lambda one: OP_LISTS.between(one.version_low, one.version_high) is False)


def _masked(found: Evidence) -> Support:
    return proves(found.flag("masked"))


def _resumed(found: Evidence) -> Support:
    return proves(found.flag("resumed"))


CAUSES = (
    Cause(
        "decided-twice", "one copy was decided more than once, and the broker executed each decision",
        affected=(Change("END_TRANSACTION does not look for an earlier decision", f"{_END}; #5574, #9909"),),
        rule=_same_copy_decided_twice,
        consequence="a second COMMIT is a second delivery; a COMMIT after a ROLLBACK delivers what was rolled back",
        act="rmqtx show ID --store STORE: the two decisions with their times; then look for them in the producer's "
        "log",
        change="make consumers idempotent by UNIQ_KEY; let only one process decide a transaction",
        shown_by=("common-4.3.0", "common-4.9.7", "common-5.3.3", "common-5.5.0", "killed-4.9.7", "prepared-3.2.6",
         "rocksdb-5.4.0", "statetable-3.1.4"),
        decides="the COMMIT records: rmqtx show ID --store STORE; one may name another record than the half message",
        rivals=("rocksdb-asks-again",),
    ),
    Cause(
        "decision-names-old-copy",
        "the decision names a copy that the check had already put back: the newer copy stayed open",
        affected=(Change(
            "a decision settles only the copy that it names", f"{_END}; #8158, #2694, #2360, #1725",
            since=HALF_TOPIC_DESIGN.since,
        ),),
        rule=_old_copy_decided,
        consequence="the broker checks the newer copy again, discards it after the last check, or delivers a second "
        "time",
        act="if the broker still checks it: rmqtx close ID -n HOST:PORT",
        change="raise transactionTimeOut above the longest local transaction, so that no check comes before the "
        "decision",
        shown_by=("common-4.3.0", "common-4.9.7", "common-5.1.4", "common-5.3.3", "common-5.5.0", "killed-4.9.7"),
        decides="the producer's log: whether it decided before or after the check put the newer copy back",
        rivals=("op-written-late", "cursor-went-back"), shows_in=(FILES, TRACE),
    ),
    Cause(
        "op-written-late", "the decision was still in the broker's memory when the check came",
        affected=(Change(OP_LISTS.what, f"{OP_LISTS.source}; #10199; seen on 5.1.4", since=OP_LISTS.since),),
        rule=_op_written_late,
        consequence="a producer that answers COMMIT again has the message delivered twice",
        act="if the broker still checks it: rmqtx close ID -n HOST:PORT",
        change="set transactionTimeOut above the longest local transaction and transactionOpBatchInterval together "
        f"(before 5.5.0: twice the interval); {OP_THREAD_NOTE}",
        shown_by=("dledger-5.1.4",),
        decides="the producer's log: whether it decided before or after the check put the newer copy back",
        rivals=("decision-names-old-copy",), shows_in=(FILES, TRACE),
    ),
    Cause(
        "op-waits-twice", "the op message waited in the broker's memory for two intervals, until the check came",
        affected=(OPS_WAIT_TWICE,),
        rule=_op_waited_twice,
        consequence="with default settings an op message is up to 6 s late, as long as transactionTimeOut: the check "
        "asks for a committed transaction, and a COMMIT answer delivers it twice",
        act="if the broker still checks it: rmqtx close ID -n HOST:PORT",
        change="set transactionOpBatchInterval to 1000, well below transactionTimeOut, and start the broker again; or "
        f"upgrade to 5.5.0 or later; {OP_THREAD_NOTE}",
        shown_by=("oplate-5.3.3",),
        decides="transactionOpBatchInterval: add --broker-conf FILE",
    ),
    Cause(
        "decided-after-discard", "the decision came after the broker had discarded the transaction, and was executed",
        affected=(Change(
            "END_TRANSACTION does not look for a discard", f"{_END}; seen on 4.9.7 to 5.5.0",
            since=HALF_TOPIC_DESIGN.since,
        ),),
        rule=_discarded_decided,
        consequence="consumers receive a message that an operator may already have settled by hand from the discard "
        "topic",
        act="before settling a discarded transaction by hand: rmqtx show ID --store STORE",
        change="raise transactionCheckMax or transactionCheckInterval if producers may be away for longer",
        shown_by=("common-4.9.7", "common-5.1.4", "common-5.3.3", "common-5.5.0", "killed-5.3.3"),
        decides="the COMMIT record: its prepared_transaction_offset is the commit-log offset that the decision names",
        rivals=("decision-names-discard-copy",),
    ),
    Cause(
        "decision-names-discard-copy", "the decision names the copy in the discard topic, and the broker committed it",
        affected=(Change(
            "END_TRANSACTION accepts records other than half messages", f"{_END}; seen on 4.9.7 to 5.5.0",
            since=HALF_TOPIC_DESIGN.since,
        ),),
        rule=_discard_copy_decided,
        consequence="the message is delivered; up to 5.3.4 the op message carries a number of the discard queue, "
        "and hides the half message that has this number in the half queue",
        act="rmqtx audit STORE --where 'flags = masked': the half messages that are hidden",
        change="settle discarded transactions with rmqtx commit, which names the half copy",
        shown_by=("masked-4.9.7", "masked-5.1.4", "masked-5.3.3", "masked-5.5.0"),
        decides="the COMMIT record: its prepared_transaction_offset is the commit-log offset that the decision names",
        rivals=("decided-after-discard",),
    ),
    Cause(
        "hidden-by-another-decision",
        "an op message of a decision on another record carries its queue offset: the check takes it as settled",
        affected=(Change(
            "the op message has the queue offset of any record that a decision names", f"{_END}; docs/corpus.md",
            since=HALF_TOPIC_DESIGN.since, until=DESTINATION_LEFT_OUT.since,
        ),),
        rule=_masked,
        consequence="the broker never checks it again and never discards it: without a decision it is lost",
        act="decide it by hand: rmqtx commit ID -n HOST:PORT, or rmqtx rollback ID -n HOST:PORT",
        change=f"do not decide records outside the half topic; upgrade to 5.4.0 or later; {SLAVE_NOTE}; "
        f"{OP_THREAD_NOTE}",
        shown_by=("masked-4.3.0", "masked-4.4.0", "masked-4.9.7", "masked-5.1.4", "masked-5.3.3", "timer-5.3.0"),
    ),
    Cause(
        "resumed-by-operator", "an operator had the broker check it again: its number of checks begins at 0",
        affected=(RESUME_REQUEST,),
        rule=_resumed,
        consequence="the broker checks it again, up to transactionCheckMax times; a decision that comes then is "
        "executed",
        act="rmqtx receipts shows the resumes by rmqtx, with user and reason",
        change="",
        shown_by=("common-4.9.7", "common-5.3.3", "killed-5.3.3", "rocksdb-5.4.0"),
    ),
)
