"""Causes in the check of the half queue: rounds that stop, spoiled or missing copies, cursors that move."""

from __future__ import annotations

import numpy as np

from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.model.releases import (
    CHECK_INFLATES,
    DISCARD_COPY,
    END_IS_ILLEGAL,
    HALF_TOPIC_DESIGN,
    UNREADABLE_IS_NO_LIST,
    UNREADABLE_IS_NULL,
    Change,
)
from rmqtx.readers.traces import Decision
from rmqtx.verdicts.causes.cause import RECONCILE, Cause, Support, fits, proves
from rmqtx.verdicts.causes.evidence import Evidence
from rmqtx.verdicts.causes.logged import in_failed_rounds, transactions_named
from rmqtx.verdicts.causes.traces import answered_every_check, traced
from rmqtx.verdicts.model.store_evidence import StoreEvidence
from rmqtx.verdicts.model.verdict_words import State

_CHECK = "broker/transaction/queue/TransactionalMessageServiceImpl.java"
#: A round ends after this time (MAX_PROCESS_TIME_LIMIT).
_ROUND_MS_MAX = 60_000
#: No broker starts, or takes over, and checks again in less.
_SAME_ROUND_MS = 1_000
_BRIDGE = "broker/transaction/queue/TransactionalMessageBridge.java"


def _is_stopped(found: Evidence) -> Bools:
    """Transactions in stores whose check is stopped."""
    return found.of_store(lambda one: one.stop is not None)


def _stopped_at_unreadable_half(found: Evidence) -> Support:
    """The check is stopped at a half message that cannot be read; fits where the place of the stop is not known.

    Transactions behind it are never checked, those before it in every round, decided or not.
    """

    def is_at_half(one: StoreEvidence) -> bool:
        stop = one.stop
        return stop is not None and not (stop.is_op or stop.is_readable or stop.lacks_room)

    behind = found.flag("never_asked") & found.half_topic
    rows = behind | found.state(State.PENDING) | found.flag("open_after_decision")
    return fits(behind & ~_is_stopped(found), rows & found.of_store(is_at_half))


def _spoiled_by_check(found: Evidence) -> Support:
    """A copy that cannot be read; where a resume wrote one too, it may be that."""
    rows = found.flag("bad_body") & (found.count_of(found.copies) > 1)
    return fits(rows, rows & ~found.flag("resumed"))


def _discarded_without_copy(found: Evidence) -> Support:
    return proves(found.reason("dropped_without_copy"))


def _no_decision(found: Evidence) -> Support:
    """Discarded after its checks; where a decision may have been lost with a broker's memory it only fits, unless the
    trace of its producer has an answer to each check, and the last one is UNKNOWN.
    """
    rows = found.state(State.DISCARDED) & ~found.flag("delayed_half") & ~found.flag("bad_body")
    rows &= ~found.flag("discarded_unasked") & ~transactions_named(found, "not-in-memory")
    rows &= found.count_of(found.marks) + found.count_of(found.finals) == 0
    wrote = traced(found)
    had_none = wrote.said(Decision.UNKNOWN) & answered_every_check(found, wrote)
    return fits(rows, rows & (~found.flag("may_be_decided") | had_none))


def checks_begin_again(found: Evidence) -> Bools:
    """Transactions with two half copies after the same number of checks: a second chain began at an earlier copy."""
    copies = found.copies
    rows = np.flatnonzero((found.next_copy >= 0) & (copies.checks > 0)) if len(copies) else np.empty(0, np.int64)
    again = rows[copies.checks[found.next_copy[rows]] <= copies.checks[rows]]
    return found.any_owner(copies.owner[again]) & ~found.flag("resumed") & ~found.flag("delayed_half")


def _was_settled_before(found: Evidence) -> Int64s:
    """The longest time from an op message to a put-back of the copy that it names; -1 where no copy came after an op.

    Nor where it came within _SAME_ROUND_MS and did no harm: then the round had read the op messages before.
    Units: milliseconds.
    """
    copies, marks, following = found.copies, found.marks, found.copy_after_mark
    rows = np.flatnonzero((following >= 0) & ~found.names_other_slot)
    rows = rows[copies.offset[following[rows]] > marks.offset[rows]]
    waited_ms = copies.time_ms[following[rows]] - marks.time_ms[rows]
    is_harmed = found.flag("duplicate_commit") | found.flag("discarded_though_decided") | found.flag("conflict")
    is_later = (waited_ms >= _SAME_ROUND_MS) | is_harmed[marks.owner[rows]]
    longest = np.full(found.count, -1, np.int64)
    np.maximum.at(longest, marks.owner[rows[is_later]], waited_ms[is_later])
    return longest


def _is_settled_and_open(found: Evidence) -> Bools:
    """Transactions whose newest copy has an op message, or that are discarded, and that the check still reaches."""
    marked = found.copy_of_mark[(found.copy_of_mark >= 0) & ~found.names_other_slot]
    newest = marked[found.next_copy[marked] < 0] if len(found.copies) else marked
    is_settled = found.any_owner(found.copies.owner[newest]) | found.state(State.DISCARDED)
    return found.flag("open_after_decision") & found.half_topic & is_settled


def _cursor_went_back(found: Evidence) -> Support:
    """A copy after the discard that no resume wrote, a settled copy that the check still reaches, or checks that are
    counted again prove it.

    A copy after the op message of its predecessor only fits within the time that a round may take: the round may have
    read the ops before.
    """
    settled_ms = _was_settled_before(found)
    runs = ~_is_stopped(found) & ~found.any_of(found.copies, in_failed_rounds(found, "round-failed"))
    again = found.flag("checked_again_after_restart") | _is_settled_and_open(found) | checks_begin_again(found)
    proven = again | (settled_ms > _ROUND_MS_MAX)
    return fits(runs & (proven | (settled_ms >= 0)), runs & proven & ~found.flag("clock_skew"))


def _op_cursor_jumped(found: Evidence) -> Support:
    """The same, except a copy after a discard: an op that is not read again leaves its half message unsettled."""
    is_open = _is_settled_and_open(found) & ~found.state(State.DISCARDED)
    return fits((is_open | (_was_settled_before(found) >= 0)) & ~_is_stopped(found))


CAUSES = (
    Cause(
        "half-unreadable-exception",
        "the check ends each round with an exception at a half message that it cannot read",
        affected=(UNREADABLE_IS_NULL, UNREADABLE_IS_NO_LIST),
        rule=_stopped_at_unreadable_half,
        consequence="transactions behind it are never checked and never discarded; those before it are checked in "
        "each round, and each COMMIT answer delivers again; the half queue grows with each round",
        act="rmqtx pending STORE: the place and the commands; decide those behind it: rmqtx plan",
        change="upgrade to 4.9.5 or 5.1.0 or later, whose check passes an unreadable message",
        shown_by=("poison-4.3.0", "poison-4.4.0", "poison-4.5.0"),
        decides="the place where the check is stopped: rmqtx pending STORE",
    ),
    Cause(
        "check-spoils-compressed",
        "the check put a compressed message back with a decompressed body and the flag for compression",
        affected=(Change(
            CHECK_INFLATES.what, f"{_BRIDGE}; #1569", since=HALF_TOPIC_DESIGN.since, until=CHECK_INFLATES.until,
        ),),
        rule=_spoiled_by_check,
        consequence="consumers cannot read the message, whichever copy is committed later; the check cannot read "
        "the copy either",
        act="rmqtx show ID --store STORE: the first copy still has the readable body; send it again from the "
        "application",
        change="upgrade to 4.6.0 or later, or set compressMsgBodyOverHowmuch of the producers above the largest "
        "message",
        shown_by=("poison-4.3.0", "poison-4.4.0", "poison-4.5.0"),
        decides="which copy cannot be read: rmqtx show ID --store STORE",
        rivals=("resume-spoils-compressed",),
    ),
    Cause(
        "discarded-without-copy", "the broker discarded it and wrote nothing but a line in its log",
        affected=(Change(
            "resolveDiscardMsg only logs", "broker/transaction/AbstractTransactionalMessageCheckListener.java; #598",
            since=HALF_TOPIC_DESIGN.since, until=DISCARD_COPY.since,
        ),),
        rule=_discarded_without_copy,
        consequence="the discard topic has no copy: the message exists only in the log, until its file expires",
        act="while the log has it: rmqtx commit ID -n HOST:PORT, or rmqtx rollback ID -n HOST:PORT",
        change="upgrade to 4.5.2 or later, which copy what they discard",
        shown_by=("common-4.3.0", "common-4.4.0", "fifteen-4.3.0", "fifteen-4.4.0", "killed-4.3.0"),
    ),
    Cause(
        "no-decision-in-time", "no decision is on record until its last check",
        affected=(Change(
            "after transactionCheckMax checks the broker discards", _CHECK, since=HALF_TOPIC_DESIGN.since,
        ),),
        rule=_no_decision,
        consequence="the message is not delivered; the application's own data may say that it was committed",
        act=f"{RECONCILE} compares with the application; then rmqtx "
        "commit ID -n HOST:PORT, or, while it is younger than fileReservedTime, rmqtx resume ID -n HOST:PORT",
        change="the producer was away, answered UNKNOWN, or its decisions were refused or, from 5.1.0 on, lost with op "
        "messages: look in its log, and add --broker-conf FILE here; raise transactionCheckMax to win time",
        shown_by=("common-4.9.7", "fifteen-5.3.3", "fifteen-4.3.0", "rocksdb-5.4.0", "rollbackslost-5.3.3"),
        decides="the producer's log: whether it rolled back in the last seconds before the broker was killed",
        rivals=("pool-hides-half",),
    ),
    Cause(
        "cursor-went-back", "the check began again at an older cursor, and checked what was already settled",
        affected=(Change(
            "cursors are written every few seconds, and by a slave later than by its master",
            "broker/offset/ConsumerOffsetManager.java; seen after kills, failovers and changes by hand",
            since=HALF_TOPIC_DESIGN.since,
        ),),
        rule=_cursor_went_back,
        consequence="settled transactions are checked again, discarded again, and delivered again if a producer "
        "answers COMMIT",
        act="before the broker starts: rmqtx simulate STORE; rmqtx cursor set --half N --store STORE --to COPY",
        change="stop brokers in order (mqshutdown); do not copy config/consumerOffset.json between brokers",
        shown_by=("cursorback-4.9.7", "cursorback-5.3.3", "cursoredited-4.3.0", "cursoredited-5.5.0", "failover-4.9.7",
         "failover-5.3.3", "lmq-switched-5.3.3", "parallel-5.3.3"),
        decides="the broker's log: whether it started, or a slave took over, before the check came again",
        rivals=("op-cursor-jumped", "acting-slave-sent-copies", "check-pool-rejected"),
    ),
    Cause(
        "op-cursor-jumped", "the check moved its op cursor to the end of the op queue and left ops unread",
        affected=(Change(
            END_IS_ILLEGAL.what, f"{_CHECK}; #549, #1517, #1518; seen on 4.5.0", since=HALF_TOPIC_DESIGN.since,
            until=END_IS_ILLEGAL.until,
        ),),
        rule=_op_cursor_jumped,
        consequence="decided transactions are put back and checked again, and delivered twice if the producer "
        "answers COMMIT",
        act="if the broker still checks it: rmqtx close ID -n HOST:PORT",
        change="upgrade to 4.6.0 or later",
        shown_by=("opjumped-4.5.0",),
        decides="the broker's log: whether it started again before the check came, which moves the cursors back",
        rivals=("cursor-went-back",),
    ),
)
