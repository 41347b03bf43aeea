"""Causes that the message traces of producers show: what a producer decided, and the broker has no record of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.model.releases import HALF_TOPIC_DESIGN, Change
from rmqtx.readers.traces import Decision
from rmqtx.verdicts.causes.cause import RECONCILE, Cause, Support, fits, proves
from rmqtx.verdicts.causes.evidence import Evidence
from rmqtx.verdicts.causes.logged import asked, undecided
from rmqtx.verdicts.model.store_evidence import TRACE
from rmqtx.verdicts.model.verdict_words import LOST_ON_THE_WAY, State

#: What decides a transaction.
DECIDED = (Decision.COMMIT, Decision.ROLLBACK)


@dataclass(frozen=True, slots=True)
class Traced:
    """What producers wrote, for each transaction.

    Shape: `last`: the last decision, empty without one; `answers`: the number of answers to checks; `repeated_ms`: the
           time between the first and the last line with the last decision; `until`: the commit-log offset of the trace
           record with the first such line, -1 without one or in another store than the transaction's.
    """

    last: list[str]
    answers: Int64s
    repeated_ms: Int64s
    until: Int64s

    def said(self, *decisions: Decision) -> Bools:
        """Whether the last decision of each transaction is one of some."""
        return np.array([one in decisions for one in self.last], np.bool_)


def traced(found: Evidence) -> Traced:
    """Return what the traces show of undecided transactions; nothing of the others."""
    count, said = found.count, found.said
    last, until = [""] * count, np.full(count, -1)
    answers, repeated_ms = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for row in np.flatnonzero(undecided(found) & found.any_owner(said.owner)).tolist():
        first, end = np.searchsorted(said.owner, [row, row + 1]).tolist()
        last[row], answers[row] = str(said.decision[end - 1]), int(said.is_answer[first:end].sum())
        same = first + np.flatnonzero(said.decision[first:end] == said.decision[end - 1])
        repeated_ms[row] = said.time_ms[same[-1]] - said.time_ms[same[0]]
        if found.names[found.store[row]] == said.store[same[0]]:
            until[row] = said.offset[same[0]]
    return Traced(last, answers, repeated_ms, until)


def asked_after(found: Evidence, one: Traced) -> Bools:
    """Return the transactions that the check put back after the first line with their last decision was stored."""
    copies = found.copies
    until = one.until[copies.owner]
    return found.any_of(copies, asked(found) & (until >= 0) & (copies.offset > until))


def answered_every_check(found: Evidence, one: Traced) -> Bools:
    """Return the transactions whose producer answered each check."""
    checks = np.bincount(found.copies.owner[asked(found)], minlength=found.count)
    answered: Bools = (checks > 0) & (one.answers >= checks)
    return answered


def rolled_back_once_ms(found: Evidence) -> tuple[Int64s, Int64s]:
    """Return between which times, by the clock of its broker, each producer rolled back, if it decided once.

    Shape: the lowest and the highest number where that is unknown, or where the producer decided several times.
    """
    said = found.said
    earliest, latest = np.full(found.count, np.iinfo(np.int64).min), np.full(found.count, np.iinfo(np.int64).max)
    rows = np.flatnonzero(said.decision != Decision.UNKNOWN)
    counts = np.bincount(said.owner[rows], minlength=found.count)
    rows = rows[(counts[said.owner[rows]] == 1) & (said.decision[rows] == Decision.ROLLBACK)]
    earliest[said.owner[rows]], latest[said.owner[rows]] = said.earliest_ms[rows], said.latest_ms[rows]
    return earliest, latest


def said_any(found: Evidence, *decisions: Decision, is_answer: bool | None = None) -> Bools:
    """Return the transactions of which a trace has one of some decisions; `is_answer`: to a check, or not."""
    said = found.said
    chosen = np.isin(said.decision, decisions)
    if is_answer is not None:
        chosen &= said.is_answer == is_answer
    return found.any_owner(said.owner[chosen])


def _lost_on_the_way(found: Evidence) -> Support:
    """The trace of the producer has a decision, and the broker has no record of it.

    A COMMIT record is written when the request arrives; so the request did not, if the transaction was discarded or
    the check put it back after the trace was stored. An op message of a rollback can be lost later; only a rollback
    that the producer sent again, after the broker held op messages, did not arrive.
    """
    wrote = traced(found)
    was_over = found.state(State.DISCARDED) | asked_after(found, wrote)
    committed, rolled_back = wrote.said(Decision.COMMIT), wrote.said(Decision.ROLLBACK)
    hold_ms = found.numbers(lambda one: one.op_hold_ms, 0)[found.store]
    proven = was_over & (committed | (rolled_back & (wrote.repeated_ms > hold_ms)))
    return fits(committed | rolled_back, proven)


def _late(found: Evidence) -> Support:
    """By the clocks, the first decision came after the discard; without the line of the half message it only fits."""
    said, discards = found.said, found.discards
    discarded_ms = np.full(found.count, np.iinfo(np.int64).max)
    np.minimum.at(discarded_ms, discards.owner, discards.time_ms)
    decided = np.flatnonzero(said.decision != Decision.UNKNOWN)
    first = decided[np.unique(said.owner[decided], return_index=True)[1]]
    over_ms = discarded_ms[said.owner[first]]
    may_be, proven = said.latest_ms[first] > over_ms, said.earliest_ms[first] > over_ms
    is_known = ~found.flag("resumed")
    return fits(is_known & found.any_owner(said.owner[first[may_be]]), is_known & found.any_owner(
        said.owner[first[proven]]))


def _otherwise(found: Evidence) -> Support:
    """The broker recorded one outcome; the trace has the other one, and not that of the broker."""
    committed, rolled_back = (said_any(found, one) for one in (Decision.COMMIT, Decision.ROLLBACK))
    is_one = ~found.flag("conflict") & ~found.flag("commit_after_rollback")
    return proves(is_one & (
        (found.state(State.COMMITTED) & rolled_back & ~committed)
        | (found.state(State.ROLLED_BACK) & committed & ~rolled_back)
    ))


_CLIENT = "client/impl/producer/DefaultMQProducerImpl.java; seen on 5.3.3"
_END = "broker/processor/EndTransactionProcessor.java; seen on 5.3.3"
_SHOW = "rmqtx show ID --store STORE: what it decided, and when"

CAUSES = (
    Cause(
        LOST_ON_THE_WAY, "its producer decided, and the broker has no record of the decision",
        affected=(Change(
            "END_TRANSACTION is sent once, without an answer; the client writes its trace before", _CLIENT,
            since=HALF_TOPIC_DESIGN.since,
        ),),
        rule=_lost_on_the_way, shows_in=(TRACE,),
        consequence="the message that its producer committed is not delivered, and the application counts it as sent",
        act=f"{_SHOW}; then rmqtx commit ID -n HOST:PORT, or rmqtx rollback ID -n HOST:PORT",
        change="look for what drops or refuses the requests: a proxy or firewall, a full thread pool of the broker, "
        "a broker that was a slave; rmqtx diagnose STORE --broker-logs DIR",
        shown_by=(), decides="a check or a decision after the one in the trace",
    ),
    Cause(
        "answered-late", "its producer decided only after the broker had discarded it",
        affected=(Change(
            "a transaction is discarded after transactionCheckMax checks; a later decision is accepted, if it arrives",
            _END, since=HALF_TOPIC_DESIGN.since,
        ),),
        rule=_late, shows_in=(TRACE,),
        consequence="an operator may already have settled it by hand from the discard topic; consumers receive a "
        "commit late",
        act=_SHOW,
        change="raise transactionCheckMax or transactionCheckInterval above the longest local transaction",
        shown_by=(), decides="the producer's log: when it decided, by the clock of the broker",
    ),
    Cause(
        "answered-otherwise", "the broker recorded another outcome than its producer decided, by its trace",
        affected=(Change(
            "any client can decide a transaction: the broker does not compare it with the one that sent it", _END,
            since=HALF_TOPIC_DESIGN.since,
        ),),
        rule=_otherwise, shows_in=(TRACE,),
        consequence="the application and the consumers disagree: what it committed was not delivered, or what it "
        "rolled back was",
        act=f"{_SHOW}, and which act or application decided it: rmqtx receipts, operators, other applications of the "
        f"group; {RECONCILE}",
        change="give each application a producer group of its own; decide by hand only what the application confirms",
        shown_by=(),
    ),
)
