"""Causes between the application and the broker: a proxy of 5.x, which the producers are connected to.

A store shows little of a proxy: the ids of gRPC clients, whose producer group is the name of the topic. A decision that
the proxy refused left no record, so these rules fit, and only the trace of a producer proves one. A live broker lists
which clients it asks.
"""

from __future__ import annotations

import numpy as np

from rmqtx.readers.model.columns import Bools
from rmqtx.readers.model.releases import PROXIES, Change
from rmqtx.readers.model.tables import NOBODY, PRODUCER, PROXY
from rmqtx.readers.store.broker_conf import EXPIRE_MS_DEFAULT
from rmqtx.readers.traces import Decision
from rmqtx.verdicts.causes.cause import NONE, RECONCILE, Cause, Support, fits
from rmqtx.verdicts.causes.clients import without_producer
from rmqtx.verdicts.causes.evidence import Evidence
from rmqtx.verdicts.causes.traces import DECIDED, said_any
from rmqtx.verdicts.model.store_evidence import BROKER_LOG, FILES, TRACE, WIRE
from rmqtx.verdicts.model.verdict_words import State

#: A shorter time without the place loses few decisions: checks come every 30 s, and some milliseconds later.
_GAP_MS_MIN = 1_000
#: Checks after which a producer that is connected has usually answered.
_CHECKS_MIN = 2


def _decided_after_check(found: Evidence) -> Bools:
    """Transactions whose decisions all name copies that a check put back.

    While the op message is in the broker's memory, only a COMMIT record after the first such copy shows that.
    """
    copies, finals = found.copies, found.finals
    named = found.copy_of_mark[found.copy_of_mark >= 0]
    is_back = copies.checks[named] > 0
    shown = found.any_owner(copies.owner[named[is_back]]) & ~found.any_owner(copies.owner[named[~is_back]])
    first_back = np.full(found.count, np.iinfo(np.int64).max)
    np.minimum.at(first_back, copies.owner[copies.checks > 0], copies.offset[copies.checks > 0])
    is_direct = found.any_of(finals, finals.offset < first_back[finals.owner])
    is_unmarked: Bools = (found.count_of(found.marks) == 0) & (found.count_of(finals) > 0)
    return shown | (is_unmarked & ~is_direct)


def _was_forgotten(found: Evidence) -> Bools:
    """Transactions whose place the proxy did not have for a time: the next copy came later than the proxy keeps it."""
    copies = found.copies
    rows = np.flatnonzero(found.next_copy >= 0) if len(copies) else np.empty(0, np.int64)
    passed_ms = copies.time_ms[found.next_copy[rows]] - copies.time_ms[rows]
    keeps_ms = found.numbers(lambda one: one.proxy_keeps_ms, EXPIRE_MS_DEFAULT)[copies.store[rows]]
    return found.any_owner(copies.owner[rows[passed_ms >= keeps_ms + _GAP_MS_MIN]])


def _end_forgotten(found: Evidence) -> Support:
    """From a gRPC client, its place was forgotten for a time, and no decision but an answer to a check followed."""
    has_no_decision = (found.count_of(found.marks) + found.count_of(found.finals) == 0) & (
        found.state(State.PENDING, State.DISCARDED)
    )
    undecided = has_no_decision | _decided_after_check(found)
    return fits(found.is_grpc & undecided & _was_forgotten(found))


def _remoting_end_lost(found: Evidence) -> Support:
    """Behind a proxy, by the broker's list or by --proxy-conf; and decided by the answer to a check only.

    The trace of the producer proves it: it has a first decision, and the broker got only the answer to a check. A
    first decision that is UNKNOWN excludes it.
    """
    behind = found.asked_through(PROXY) | (
        found.of_store(lambda one: one.proxy_keeps_ms is not None) & ~found.asked_through(PRODUCER, NOBODY)
    )
    rows = behind & ~found.is_grpc & found.half_topic & _decided_after_check(found)
    rows &= ~said_any(found, Decision.UNKNOWN, is_answer=False)
    return fits(rows, rows & said_any(found, *DECIDED, is_answer=False) & said_any(found, *DECIDED, is_answer=True))


def _vouched_for(found: Evidence) -> Support:
    """Pending after several checks, with only a proxy to check."""
    copies = found.copies
    was_checked = found.any_owner(copies.owner[copies.checks >= _CHECKS_MIN])
    return fits(found.asked_through(PROXY) & found.state(State.PENDING) & was_checked)


def _producer_forgotten(found: Evidence) -> Support:
    """No producer is connected to the broker, and a proxy has used it: clients may still be connected to the proxy."""
    behind = found.is_grpc | found.of_store(lambda one: one.has_proxy or one.proxy_keeps_ms is not None)
    return fits((without_producer(found) > NONE) & behind)


CAUSES = (
    Cause(
        "proxy-forgot-half",
        "the decision may have reached the proxy when it no longer had the place of the half message",
        affected=(Change(
            "a proxy keeps the place of a half message for transactionDataExpireMillis",
            "proxy/service/transaction/TransactionDataManager.java; #9431; seen on 5.3.3 and 5.5.0",
            since=PROXIES.since,
        ),),
        rule=_end_forgotten,
        consequence="the proxy refuses the decision and the broker does not get it: the transaction is decided by the "
        "answer to a check, or discarded",
        act="look for exceptions of commit or rollback in the application's log; undecided ones: "
        + RECONCILE,
        change="set transactionDataExpireMillis of rmq-proxy.json above the longest local transaction, and answer "
        "checks from the application's own data",
        shown_by=("proxy-5.3.3",),
        decides="the application's log: whether commit or rollback failed more than 30 s after the send",
    ),
    Cause(
        "proxy-loses-remoting-decision",
        "the proxy does not pass on the first decision of a remoting client: only answers to checks arrive",
        affected=(Change(
            "a proxy does not keep the place of a half message that a remoting client sends",
            "proxy/remoting/activity/SendMessageActivity.java; #8313, #10797; seen on 5.3.3 and 5.5.0",
            since=PROXIES.since,
        ),),
        rule=_remoting_end_lost,
        consequence="each message is delivered only after its first check; the client reports success at once",
        act="rmqtx show ID --store STORE: compare the time of the COMMIT record with the application's log",
        change="connect producers of transactions to the brokers, or use the gRPC client; or lower transactionTimeOut "
        "and transactionCheckInterval, so that the first check comes sooner",
        shown_by=(),
        decides="the application's log: whether it committed at first, or answered UNKNOWN",
        shows_in=(FILES, WIRE, TRACE),
    ),
    Cause(
        "proxy-vouches-for-the-dead",
        "only a proxy is registered as the producer, and no decision follows the checks",
        affected=(Change(
            "a proxy registers as the producer of its clients' groups",
            "proxy/service/transaction/ClusterTransactionService.java; #5862; seen on 5.3.3 and 5.5.0",
            since=PROXIES.since,
        ),),
        rule=_vouched_for,
        consequence="the broker counts checks that reach no application, and discards the transaction after the last",
        act="start the application; or stop it, wait until the broker no longer lists the proxy, and decide by hand: "
        "rmqtx commit ID -n HOST:PORT, or rmqtx rollback ID -n HOST:PORT",
        change="upgrade proxies of 5.0.0: they stay registered permanently, those of 5.5.0 for 4 minutes",
        shown_by=(),
        decides="the application's log: whether it got the checks and answered UNKNOWN",
        shows_in=(WIRE,),
    ),
    Cause(
        "proxy-forgot-producer",
        "no producer was connected to the broker; the application may run, connected to a proxy that forgot its group",
        affected=(Change(
            "a proxy of 5.1.0 to 5.5.1 drops a producer group of which it has no heartbeat yet, and registers it again "
            "only with the next transaction",
            "proxy/service/transaction/ClusterTransactionService.java scanProducerHeartBeat; #8316, #11170 (open); "
            "seen on 5.3.3",
            since=PROXIES.since,
        ),),
        rule=_producer_forgotten,
        consequence="the broker counts checks that reach no application, and discards the transaction after the last; "
        "the application is connected, sends heartbeats, and is not asked",
        act="look for the group in the log of the proxy, and in the application; if the application runs, let it send "
        "one more transaction through the proxy. Or stand in: rmqtx answer",
        change="let producers send their first transaction half a minute after their start, or connect producers of "
        "transactions to the brokers",
        shown_by=(),
        decides="whether the application runs, and the proxy's list of its producers",
        shows_in=(WIRE, BROKER_LOG),
        rivals=("producer-not-connected",),
    ),
)
