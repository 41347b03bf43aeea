"""Causes in the broker's configuration and in what an operator does to its topics."""

from __future__ import annotations

import numpy as np

from rmqtx.readers.model.releases import HALF_TOPIC_DESIGN, OP_QUEUE_DELETED, Change
from rmqtx.verdicts.causes.cause import Cause, Support, all_hold, fits, need
from rmqtx.verdicts.causes.evidence import Evidence
from rmqtx.verdicts.causes.logged import transactions_named
from rmqtx.verdicts.model.store_evidence import BROKER_LOG, FILES, StoreEvidence
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
)
