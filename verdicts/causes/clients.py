"""Causes in what clients send: clocks that are ahead, delays on half messages, messages to the half topic itself."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Bools, int64s
from rmqtx.readers.model.releases import DELAYED_HALVES_DROPPED, HALF_TOPIC_DESIGN, HALF_TOPIC_OPEN, TIMERS, Change
from rmqtx.verdicts.causes.cause import RECONCILE, Cause, Support, fits, proves
from rmqtx.verdicts.causes.evidence import Evidence
from rmqtx.verdicts.causes.logged import last_met_no_producer, open_without_logs
from rmqtx.verdicts.causes.traces import answered_every_check, traced
from rmqtx.verdicts.model.store_evidence import BROKER_LOG, WIRE
from rmqtx.verdicts.model.verdict_words import State

_CHECK = "broker/transaction/queue/TransactionalMessageServiceImpl.java"


def _clock_ahead(found: Evidence) -> Support:
    """A copy that the check put back before the half message was born, by the producer's clock.

    Without an immunity time the check puts a half message back only if it is older than transactionTimeOut, or if its
    age is negative.
    """
    born = int64s(found.rows["born_time_ms"].combine_chunks(), -1)
    copies = found.copies
    is_early = (copies.checks > 0) & (copies.time_ms >= 0) & (copies.time_ms < born[copies.owner])
    return proves(found.any_of(copies, is_early) & ~found.flag("discarded_unasked"))


def _immunity_used_up(found: Evidence) -> Support:
    return proves(found.flag("discarded_unasked"))


def _sent_to_half_topic(found: Evidence) -> Support:
    """A half copy without producer group or real topic; a resume makes one of any record, a delay loses the topic."""
    columns = (found.rows[name].combine_chunks() for name in ("producer_group", "topic"))
    lacks = np.logical_or.reduce([np.asarray(pc.is_null(column)) for column in columns])
    rows = lacks & (found.count_of(found.copies) > 0) & found.half_topic
    return proves(rows & ~found.flag("delayed_half") & ~found.flag("resumed") & ~found.state(State.UNDECIDABLE))


def _diverted(found: Evidence) -> Support:
    return proves(found.flag("delayed_half"))


def _dropped_by_schedule(found: Evidence) -> Support:
    """Diverted and never in the half queue; one that waits may also have a timer, which returns it."""
    rows = found.flag("delayed_half") & (found.count_of(found.copies) == 0)
    return fits(rows, rows & found.state(State.LOST))


def _returned_by_timer(found: Evidence) -> Support:
    rows = found.flag("delayed_half")
    has_copy = found.count_of(found.copies) > 0
    return fits(rows & (has_copy | found.state(State.PENDING)), rows & has_copy)


def without_producer(found: Evidence) -> Support:
    """None is connected to the running broker, or its log shows that none was when the newest copy was checked."""
    proven = found.state(State.PENDING) & found.was_checked & found.has_no_producer
    proven |= last_met_no_producer(found)
    return fits((open_without_logs(found) & ~answered_every_check(found, traced(found))) | proven, proven)


def _decided_at_check(found: Evidence) -> Support:
    """Every op message names a copy that the check put back."""
    return fits(found.has_marks & ~found.is_direct & found.half_topic)


def _decided_directly(found: Evidence) -> Bools:
    """An op message names the original, or a COMMIT record has no op message that shows what its decision named."""
    return found.has_finals & ~found.has_marks | found.is_direct


#: Sources: client/impl/producer/DefaultMQProducerImpl.java sendMessageInTransaction of 4.6.0, 5.4.0 and 5.5.0; #1543,
#: #9923.
_DELAYS_REFUSED = (
    "the Java client 5.5.0 refuses delays and timers in transactions (\"Transactional messages do not support delayed "
    "delivery\"), those of 4.6.0 to 5.4.0 clear only the delay level; clients in other languages may pass both on"
)

CAUSES = (
    Cause(
        "decided-only-at-checks", "every decision of its producer group came at a check, and none directly",
        affected=(Change(
            "a client may not send the result of the local transaction: Java 4.3.1 ignores what executeLocalTransaction"
            " returns, and behind the remoting port of a 5.x proxy the decision fails",
            "client/impl/producer/DefaultMQProducerImpl.java, #447; proxy TransactionActivity.java, #8313; seen with "
            "the client 4.3.1",
            since=HALF_TOPIC_DESIGN.since,
        ),),
        rule=_decided_at_check,
        contradicted=_decided_directly,
        consequence="each message is delivered after transactionTimeOut at the earliest, and each transaction costs at "
        "least one check; those that are not answered in time are discarded",
        act="rmqtx producers -n HOST:PORT --group GROUP: version and language of the clients",
        change="Java client 4.3.2 or later; connect remoting clients to the brokers, not to a proxy",
        shown_by=("ignored-4.3.1", "parallel-5.3.3", "proxy-5.3.3"),
        decides="the version of the clients, and whether their local transactions return UNKNOWN",
    ),
    Cause(
        "producer-not-connected",
        "no producer of its group was connected to the broker, so no process received its last check",
        affected=(Change(
            "a check goes to a connected producer of the group; without one it is counted too",
            "broker/transaction/AbstractTransactionalMessageCheckListener.java sendCheckMessage; #386, #475; seen "
            "on 4.3.0 to 5.5.0",
            since=HALF_TOPIC_DESIGN.since,
        ),),
        rule=without_producer,
        shows_in=(WIRE, BROKER_LOG),
        consequence="the check counts up, and the broker discards it after transactionCheckMax checks",
        act="start a producer of the group; a Java client that runs may have no route to the broker before its first "
        "send: let it send one message; behind a proxy see proxy-forgot-producer. Or stand in: rmqtx answer",
        change="Java clients from 5.2.0 on connect at their start if their constructor gets the topics",
        shown_by=(), decides="transaction.log of the time of its last check",
        rivals=("proxy-forgot-producer",),
    ),
    Cause(
        "producer-clock-ahead",
        "the producer's clock is ahead: each round of the check puts the half message back and asks at once",
        affected=(Change(
            "a half message of negative age is checked in each round", f"{_CHECK}; #8003, #9640; seen on 5.3.3",
            since=HALF_TOPIC_DESIGN.since,
        ),),
        rule=_clock_ahead,
        consequence="it is checked while its local transaction still runs, a decision then names an old copy, and it "
        "is discarded after transactionCheckMax rounds",
        act="rmqtx audit STORE --where 'flags = clock_skew': the groups that are more than 5 s ahead; rmqtx show ID "
        "--store STORE: the host that sent it",
        change="synchronise the clocks of the producers' hosts with those of the brokers",
        shown_by=("ahead-5.3.3",),
    ),
    Cause(
        "immunity-longer-than-checks",
        "all its checks came within the immunity time of its producer: the broker counted them and did not ask",
        affected=(Change(
            "a check is counted before the immunity time is compared", f"{_CHECK}; #8311; seen on 5.3.3",
            since=HALF_TOPIC_DESIGN.since,
        ),),
        rule=_immunity_used_up,
        consequence="it was discarded although its producer could have answered: the message is not delivered",
        act=f"{RECONCILE} compares with the application; then rmqtx "
        "commit ID -n HOST:PORT, or, while it is younger than fileReservedTime, rmqtx resume ID -n HOST:PORT",
        change="keep CHECK_IMMUNITY_TIME_IN_SECONDS below transactionCheckMax x transactionCheckInterval",
        shown_by=("ahead-5.3.3", "lmq-switched-5.3.3"),
    ),
    Cause(
        "sent-to-half-topic", "a client sent a message to the half topic itself: it has no group or no real topic",
        affected=(HALF_TOPIC_OPEN,),
        rule=_sent_to_half_topic,
        consequence="the check cannot ask a producer, and discards it; a commit of it would have no destination",
        act="rmqtx show ID --store STORE: born host and properties; then let the broker discard it",
        change="upgrade to 4.7.1 or later, which refuse messages to system topics",
        shown_by=(),
    ),
    Cause(
        "delay-diverts-half", "a delay level on the half message sent the half itself into the delay topic",
        affected=(Change(
            "brokers divert every message with a delay level, half messages too, and return it to the half topic",
            "store/CommitLog.java; #1540, #1722; seen on 4.3.0 and 4.4.0", since=HALF_TOPIC_DESIGN.since,
            until=DELAYED_HALVES_DROPPED.since,
        ),),
        rule=_diverted,
        consequence="REAL_TOPIC names the half topic: the real topic is lost, and a commit writes into the half "
        "topic; each check diverts it again",
        act="rmqtx show ID --store STORE; send the message again from the application, then rmqtx rollback ID -n "
        "HOST:PORT",
        change=f"do not set delays on transactional messages; {_DELAYS_REFUSED}",
        shown_by=("delayed-4.3.0", "delayed-4.4.0"),
    ),
    Cause(
        "schedule-drops-half", "a delay level on the half message: the broker diverted it, and dropped it when due",
        affected=(Change(
            DELAYED_HALVES_DROPPED.what, f"{DELAYED_HALVES_DROPPED.source}, #1722; seen on 5.5.0",
            since=DELAYED_HALVES_DROPPED.since,
        ),),
        rule=_dropped_by_schedule,
        consequence="the half message is never in the half topic: no check, no delivery, no discard copy; only a line "
        "with [BUG] in the broker's log",
        act="send the message again from the application",
        change=f"do not set delay levels on transactional messages; {_DELAYS_REFUSED}",
        shown_by=("delayed-5.5.0",),
        decides="whether it has a delay level or a timer: a timer returns it; rmqtx show ID --store STORE",
        rivals=("timer-diverts-half",),
    ),
    Cause(
        "timer-diverts-half", "a timer on the half message sent the half itself through the timer wheel",
        affected=(Change(
            "brokers divert every message with a timer, half messages too",
            "broker/util/HookUtils.java handleScheduleMessage; seen on 5.1.4 to 5.5.0", since=TIMERS.since,
        ),),
        rule=_returned_by_timer,
        consequence="REAL_TOPIC names the half topic: the real topic is lost, a commit writes another half message "
        "into the half topic, and each check diverts it again",
        act="rmqtx show ID --store STORE; send the message again from the application, then rmqtx rollback ID -n "
        "HOST:PORT",
        change="do not set TIMER_DELAY_SEC, TIMER_DELAY_MS or TIMER_DELIVER_MS on transactional messages; "
        f"{_DELAYS_REFUSED}",
        shown_by=("delayed-5.1.4", "delayed-5.3.3", "delayed-5.5.0", "timer-5.3.0"),
        decides="whether it has a delay level or a timer: only a timer returns it; rmqtx show ID --store STORE",
        rivals=("schedule-drops-half",),
    ),
)
