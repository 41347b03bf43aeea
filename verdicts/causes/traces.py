"""Causes that the message traces of producers show: what a producer decided, and the broker has no record of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.model.releases import HALF_TOPIC_DESIGN, Change
from rmqtx.readers.traces.trace_lines import Decision, TraceKind
from rmqtx.verdicts.causes.cause import Cause, Support, fits
from rmqtx.verdicts.causes.evidence import Evidence
from rmqtx.verdicts.causes.logged import asked, undecided
from rmqtx.verdicts.model.state import State
from rmqtx.verdicts.model.store_evidence import TRACE


@dataclass(frozen=True, slots=True)
class Traced:
    """What producers wrote, for each transaction.

    Shape: `last`: the last decision, None without one; `answers`: the number of answers to checks; `repeated_ms`: the
           time between the first and the last line with the last decision; `until`: the commit-log offset of the trace
           record with the first such line, -1 without one or in another store than the transaction's.
    """

    last: list[Decision | None]
    answers: Int64s
    repeated_ms: Int64s
    until: Int64s

    def said(self, *decisions: Decision) -> Bools:
        """Whether the last decision of each transaction is one of some."""
        return np.array([one in decisions for one in self.last], np.bool_)


def traced(found: Evidence) -> Traced:
    """Return what the traces show of undecided transactions; nothing of the others."""
    count = found.count
    last: list[Decision | None] = [None] * count
    answers, repeated_ms, until = np.zeros(count, np.int64), np.zeros(count, np.int64), np.full(count, -1)
    is_open = undecided(found)
    for row, lines in found.trace_lines.items():
        decided = sorted(
            (line for line in lines if line["kind"] == TraceKind.DECIDED), key=lambda line: int(line["time_ms"])
        )
        if not decided or not is_open[row]:
            continue
        decision = Decision(decided[-1]["decision"])
        same = [line for line in decided if line["decision"] == decision]
        last[row], answers[row] = decision, sum(line["is_check_answer"] for line in decided)
        repeated_ms[row] = same[-1]["time_ms"] - same[0]["time_ms"]
        if found.names[found.store[row]] == same[0]["store"]:
            until[row] = same[0]["commit_log_offset"]
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


CAUSES = (
    Cause(
        "decision-lost-on-the-way", "its producer decided, and the broker has no record of the decision",
        affected=(Change(
            "END_TRANSACTION is sent once, without an answer; the client writes its trace before",
            "client/impl/producer/DefaultMQProducerImpl.java; seen on 5.3.3",
            since=HALF_TOPIC_DESIGN.since,
        ),),
        rule=_lost_on_the_way, shows_in=(TRACE,),
        consequence="the message that its producer committed is not delivered, and the application counts it as sent",
        act="rmqtx show ID --store STORE: what it decided, and when; then rmqtx commit ID -n HOST:PORT, or rmqtx "
        "rollback ID -n HOST:PORT",
        change="look for what drops or refuses the requests: a proxy or firewall, a full thread pool of the broker, "
        "a broker that was a slave; rmqtx diagnose STORE --broker-logs DIR",
        shown_by=(), decides="a check or a decision after the one in the trace",
    ),
)
