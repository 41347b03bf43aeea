"""Causes in a broker's settings, and those that its logs show: which producers it asked, what it could not write.

Without the logs (--broker-logs) they could explain discarded transactions at most. What the lines of a log do not name
is shown by their times: a copy that the check puts back is asked about in the same round.
"""

from __future__ import annotations

import numpy as np

from rmqtx.readers.model.releases import CHECK_INFLATES, HALF_TOPIC_DESIGN, LATE_END_REFUSED, OP_QUEUE_DELETED, Change
from rmqtx.readers.traces import Decision
from rmqtx.verdicts.causes.cause import RECONCILE, Cause, Support, all_hold, fits, need, proves
from rmqtx.verdicts.causes.checks import checks_begin_again
from rmqtx.verdicts.causes.evidence import Evidence
from rmqtx.verdicts.causes.logged import (
    in_failed_rounds,
    last_asked,
    named,
    open_without_logs,
    transactions_named,
    undecided,
)
from rmqtx.verdicts.causes.traces import answered_every_check, traced
from rmqtx.verdicts.model.store_evidence import BROKER_LOG, FILES, TRACE, StoreEvidence
from rmqtx.verdicts.model.verdict_words import State

_POOL = (need("transientStorePoolEnable"), need("flushDiskType", "ASYNC_FLUSH"),
         need("brokerRole", "ASYNC_MASTER", "SYNC_MASTER"))


def _hidden_by_pool(found: Evidence) -> Support:
    """Discarded without a decision, or decided only after a check, on a broker that is known to have the pool.

    A refused decision leaves no record: without the configuration every transaction that was checked would fit. A line
    of store.log that names the place of a copy proves that a request could not read it.
    """
    def has_pool(one: StoreEvidence) -> bool:
        return all_hold(_POOL, one.conf) is True

    named = found.copy_of_mark
    first = np.flatnonzero((named >= 0) & (found.copies.checks[named] == 0)) if len(found.copies) else named[:0]
    is_undecided = found.count_of(found.marks) + found.count_of(found.finals) == 0
    was_checked = found.any_of(found.copies, found.copies.checks > 0)
    rows = was_checked & ((is_undecided & found.state(State.DISCARDED)) | (~is_undecided & ~found.any_owner(
        found.marks.owner[first])))
    rows &= found.half_topic & found.of_store(has_pool) & ~found.flag("discarded_unasked")
    proven = transactions_named(found, "not-in-memory")
    return fits(rows | proven, proven)


def _op_queue_deleted(found: Evidence) -> Support:
    """Op messages that are older than the first slot of an op queue that begins at 0, on transactions asked again."""
    marks, following = found.marks, found.copy_after_mark
    first_op = found.numbers(lambda one: one.first_op_offset, -1)
    is_lost = marks.offset < first_op[marks.store]
    is_again = np.zeros(len(marks), np.bool_)
    rows = np.flatnonzero(following >= 0)
    is_again[rows] = found.copies.offset[following[rows]] > marks.offset[rows]
    is_open = found.flag("open_after_decision")
    return fits(found.any_of(marks, is_lost & (is_again | is_open[marks.owner])))


_REJECTED = "round-failed RejectedExecutionException"


def _answered_unknown(found: Evidence) -> Support:
    """The producer answered UNKNOWN for the newest copy, by a log, or to each check, by its trace."""
    last = last_asked(found) & named(found, "answered-unknown")
    wrote = traced(found)
    by_trace = answered_every_check(found, wrote)
    proven = undecided(found) & found.any_of(found.copies, last)
    proven |= wrote.said(Decision.UNKNOWN) & by_trace
    return fits((open_without_logs(found) & ~by_trace) | proven, proven)


def _put_back_failed(found: Evidence) -> Support:
    return proves(transactions_named(found, "put-back-failed"))


def _refused_after_immunity(found: Evidence) -> Support:
    return proves(transactions_named(found, "commit-refused-immune", "rollback-refused-immune"))


def _pool_rejected(found: Evidence) -> Support:
    """Copies of a round that a rejected check ended; without logs, checks that are counted again would fit."""
    is_open = checks_begin_again(found) & found.of_store(lambda one: one.logs is None)
    proven = found.any_of(found.copies, in_failed_rounds(found, _REJECTED))
    return fits(is_open | proven, proven)


def _round_failed(found: Evidence) -> Support:
    rejected = in_failed_rounds(found, _REJECTED)
    return proves(found.any_of(found.copies, in_failed_rounds(found, "round-failed") & ~rejected))


_CHECK = "broker/transaction/queue/TransactionalMessageServiceImpl.java"
_LOOK = "rmqtx show ID --store STORE --broker-logs DIR"
CAUSES = (
    Cause(
        "pool-hides-half",
        "the broker cannot read a half copy yet when the decision comes (transientStorePoolEnable), and refuses it",
        affected=(Change(
            "with transientStorePoolEnable a record is readable only after it was written from the pool to its file",
            "store/MappedFile.java, store/logfile/DefaultMappedFile.java getReadPosition; #2098, #6107; seen on 5.3.3",
            since=HALF_TOPIC_DESIGN.since,
        ),),
        rule=_hidden_by_pool,
        needs=_POOL, shows_in=(FILES, BROKER_LOG),
        consequence="a quick decision is lost, and the answer to a check too, because it names the copy just put back; "
        "after transactionCheckMax checks the transaction is discarded although its producer answered COMMIT",
        act="look in the producer's log for its answers; then rmqtx commit ID -n HOST:PORT, or rmqtx rollback ID",
        change="set transientStorePoolEnable=false, or lower commitIntervalCommitLog (200 ms)",
        shown_by=("pool-5.3.3",),
        decides="store.log: \"request pos invalid\" at the place of a copy (--broker-logs DIR); or the producer's log",
        rivals=("no-decision-in-time",),
    ),
    Cause(
        "op-queue-deleted", "the op queue was deleted, and the check asks again for what was decided before",
        affected=(OP_QUEUE_DELETED,),
        rule=_op_queue_deleted,
        consequence="all decided transactions from the half cursor on are put back and asked again, and delivered "
        "twice if the producer answers COMMIT",
        act="if the broker still checks it: rmqtx close ID -n HOST:PORT",
        change="upgrade to 4.9.0 or later; before that do not delete topics while transactions are open",
        shown_by=(),
        decides="the log of the broker: whether a topic was deleted then, or the files of the queue by hand",
        rivals=("op-cursor-jumped", "cursor-went-back"),
    ),
    Cause(
        "producer-answered-unknown", "a producer answered its last check with UNKNOWN",
        affected=(Change(
            "UNKNOWN decides nothing, and is logged", "broker/processor/EndTransactionProcessor.java; seen on 4.3.0 to "
            "5.5.0", since=HALF_TOPIC_DESIGN.since,
        ),),
        rule=_answered_unknown, shows_in=(BROKER_LOG, TRACE),
        consequence="the application has no outcome for it, or its checkLocalTransaction cannot find it",
        act=f"{RECONCILE} compares with the application",
        change="correct checkLocalTransaction: it must find the outcome of every local transaction",
        shown_by=(), decides="transaction.log of the time of its last check",
    ),
    Cause(
        "put-back-failed", "the check could not write the half message back",
        affected=(Change(
            "the round tries the same message again until its time is over", f"{_CHECK}; seen on 4.9.7 to 5.5.0",
            since=HALF_TOPIC_DESIGN.since,
        ),),
        rule=_put_back_failed, shows_in=(BROKER_LOG,),
        consequence="its producer is not asked; while the write fails, the half messages behind it are not checked",
        act="store.log names the reason beside it (properties too long, disk full, replicas); decide it by hand: "
        "rmqtx rollback ID -n HOST:PORT, or rmqtx commit ID -n HOST:PORT",
        change="keep the properties of transactional messages below 32 000 characters: each check adds some",
        shown_by=(),
    ),
    Cause(
        "refused-after-immunity", "the broker refused its decision, which came after the immunity time",
        affected=(LATE_END_REFUSED,),
        rule=_refused_after_immunity, shows_in=(BROKER_LOG,),
        consequence="the producer does not see the refusal; only an answer to a check decides it",
        act=_LOOK,
        change="raise CHECK_IMMUNITY_TIME_IN_SECONDS above the longest local transaction, or leave it out",
        shown_by=(),
    ),
    Cause(
        "check-pool-rejected", "the pool of the check was full: an exception ended the round after it was put back",
        affected=(Change(
            "a full queue of 2000 checks ends the round", f"{_CHECK}; #1519, #1544; seen on 4.5.0",
            since=HALF_TOPIC_DESIGN.since, until=CHECK_INFLATES.until,
        ),),
        rule=_pool_rejected, shows_in=(BROKER_LOG,),
        consequence="the cursors stay: the same half messages are put back again in each round; the half topic grows",
        act="decide those that are open: rmqtx plan STORE",
        change="upgrade to 4.6.0 or later; before that raise transactionTimeOut, so that fewer are checked at once",
        shown_by=(), rivals=("cursor-went-back",),
    ),
    Cause(
        "round-ended-by-exception", "an exception ended the round of the check after it was put back",
        affected=(Change(
            "an exception ends the round before the cursors are written", f"{_CHECK}; seen on 4.3.0 and 4.5.0",
            since=HALF_TOPIC_DESIGN.since,
        ),),
        rule=_round_failed, shows_in=(BROKER_LOG,),
        consequence="the cursors stay: it is put back and checked again in each round",
        act="rmqtx pending STORE: the place where the check is stopped; transaction.log has the exception",
        change="upgrade: most of these exceptions end no round in newer releases",
        shown_by=(),
    ),
)
