"""Causes in brokers that keep transactions in RocksDB (5.4.0 and later): a table of open half messages, no copies."""

from __future__ import annotations

from rmqtx.readers.model.releases import ROCKSDB_TRANSACTIONS, Change
from rmqtx.verdicts.causes.cause import RECONCILE, Cause, Support, fits, proves
from rmqtx.verdicts.causes.evidence import Evidence
from rmqtx.verdicts.causes.second_decisions import answered_again, decided_again, single_copies
from rmqtx.verdicts.model.store_evidence import FILES, TRACE


def _asked_again(found: Evidence) -> Support:
    """Two decisions on a half message in RocksDB, which has one copy however often the broker asks.

    The trace of the producer shows whether one of them is the answer to a check.
    """
    rows = decided_again(found) & single_copies(found) & (found.count_of(found.marks) > 1)
    return fits(rows, rows & answered_again(found))


def _dropped(found: Evidence) -> Support:
    return proves(found.reason("rocksdb_dropped"))


def _behind_old_table(found: Evidence) -> Support:
    """Open half messages of a killed broker that are later than the last one in its table."""
    was_killed = found.of_store(lambda one: one.was_killed)
    return proves(found.reason("rocksdb_behind_table", "rocksdb_table_empty") & was_killed)


def _dropped_by_slave(found: Evidence) -> Support:
    return proves(found.reason("rocksdb_of_slave"))


CAUSES = (
    Cause(
        "rocksdb-asks-again", "the broker asked again for a half message whose decision it had not indexed yet",
        affected=(Change(
            "the check of RocksDB asks until the op message is in the table", "RIP-82; seen on 5.4.0 and 5.5.0",
            since=ROCKSDB_TRANSACTIONS.since,
        ),),
        rule=_asked_again,
        consequence="a producer that answers COMMIT each time has the message delivered each time",
        act="rmqtx show ID --store STORE: the decisions with their times",
        change="raise transactionCheckInterval; make consumers idempotent by UNIQ_KEY",
        shown_by=("rocksdb-5.4.0", "rocksdb-both-5.5.0"),
        decides="the producer's log: whether it decided twice by itself, or answered a check after its decision",
        rivals=("decided-twice",), shows_in=(FILES, TRACE),
    ),
    Cause(
        "rocksdb-drops-without-copy", "the broker dropped it from RocksDB after its last check and wrote no copy",
        affected=(Change(
            "the check of RocksDB deletes the key", "RIP-82; seen on 5.4.0 and 5.5.0", ROCKSDB_TRANSACTIONS.since
        ),),
        rule=_dropped,
        consequence="the discard topic does not show it, only a line of transaction.log does; "
        "config/transactionMetrics still counts it as open",
        act="while the log has it: rmqtx commit ID -n HOST:PORT, or rmqtx rollback ID -n HOST:PORT",
        change="compare daily: rmqtx audit STORE --where 'reason_code = rocksdb_dropped'",
        shown_by=("rocksdb-5.4.0", "rocksdb-5.5.0", "rocksdb-both-5.5.0", "rocksdb-killed-5.5.0"),
    ),
    Cause(
        "rocksdb-table-old-after-kill",
        "the broker was killed, and its table on disk ends before the half message: its number of checks is lost",
        affected=(Change(
            "the table is complete on disk only after a clean stop; a start adds later half messages with 0 checks",
            "RIP-82; seen on 5.4.0 and 5.5.0", since=ROCKSDB_TRANSACTIONS.since,
        ),),
        rule=_behind_old_table,
        consequence="the next start checks it from the beginning, also if the broker had already dropped it; it reads "
        "back 10 files of the commit log at most (commitLogRecoverMaxNum), and never checks what is older",
        act=f"{RECONCILE} compares with the application before the "
        "broker starts; afterwards: rmqtx rollback ID -n HOST:PORT",
        change="stop brokers in order (mqshutdown)",
        shown_by=("rocksdb-killed-5.4.0", "rocksdb-killed-5.5.0"),
    ),
    Cause(
        "rocksdb-slave-drops", "a slave runs a check of its own on its table, and dropped it without asking a producer",
        affected=(Change(
            "the check of RocksDB runs on slaves too", "RIP-82; seen on 5.5.0", since=ROCKSDB_TRANSACTIONS.since,
        ),),
        rule=_dropped_by_slave,
        consequence="if the slave becomes the master, nothing checks it again, although the old master still had it",
        act="rmqtx pending STORE of the master's store shows what is open; after a failover: rmqtx resume ID -n "
        "HOST:PORT",
        change="give slaves the transactionCheckMax of their master",
        shown_by=(),
    ),
)
