"""Causes in designs without half copies: the table in RocksDB (5.4.0 and later), prepared records (before 4.3)."""

from __future__ import annotations

from rmqtx.readers.model.releases import (
    HALF_TOPIC_DESIGN,
    PREPARED_NOT_CHECKED,
    ROCKSDB_TRANSACTIONS,
    STATE_TABLE,
    Change,
)
from rmqtx.verdicts.causes.cause import RECONCILE, Cause, Support, fits, proves
from rmqtx.verdicts.causes.evidence import Evidence
from rmqtx.verdicts.causes.second_decisions import answered_again, decided_again, single_copies
from rmqtx.verdicts.model.store_evidence import FILES, TRACE

_STATES = "store/transaction/TransactionStateService.java; seen on 3.1.4"
_TABLES = Change("every answer names a slot of the state table", _STATES, STATE_TABLE.since, PREPARED_NOT_CHECKED.since)


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


def _never_checked(found: Evidence) -> Support:
    return proves(found.reason("prepared_never_asked"))


def _refused_since_upgrade(found: Evidence) -> Support:
    return proves(found.reason("prepared_commit_refused"))


def _renumbered(found: Evidence) -> Support:
    return proves(found.flag("unanswerable"))


def _without_slot(found: Evidence) -> Support:
    return proves(found.reason("prepared_without_slot", "prepared_forgotten_after_start"))


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
    Cause(
        "prepared-never-checked", "brokers of 3.2 to 4.2 never ask the producer about a prepared record",
        affected=(Change(
            PREPARED_NOT_CHECKED.what, PREPARED_NOT_CHECKED.source, PREPARED_NOT_CHECKED.since, HALF_TOPIC_DESIGN.since
        ),),
        rule=_never_checked,
        consequence="a transaction whose producer died before its decision stays pending permanently",
        act="find the outcome in the application, then rmqtx commit ID -n HOST:PORT or rmqtx rollback ID",
        change="upgrade to 4.3.0 or later after all prepared records are decided",
        shown_by=(
            "prepared-3.2.6", "prepared-4.2.0", "prepared-killed-3.2.6", "prepared-killed-4.2.0",
            "upgraded-3.1.4-3.2.6",
        ),
    ),
    Cause(
        "prepared-before-upgrade", "the broker was upgraded to half topics while a prepared record was undecided",
        affected=(Change(HALF_TOPIC_DESIGN.what, HALF_TOPIC_DESIGN.source, HALF_TOPIC_DESIGN.since),),
        rule=_refused_since_upgrade,
        consequence="the broker neither checks it nor accepts a commit of it: it stays pending permanently",
        act="stop the broker, then rmqtx commit ID --store STORE --in-place --undo FILE",
        change="",
        shown_by=("upgraded-4.2.0-4.3.0", "upgraded-4.2.0-4.9.7"),
    ),
    Cause(
        "state-table-renumbered", "its slot of the state table has another number than its record",
        affected=(_TABLES,),
        rule=_renumbered,
        consequence="the broker refuses every answer of the producer, and asks again and again",
        act="rmqtx rebuild statetable STORE --to NEW shows the numbers of the next start; decide by hand: rmqtx "
        "commit ID -n HOST:PORT",
        change="stop brokers in order: a start after a crash rebuilds the table and numbers it again",
        shown_by=("statetable-killed-3.1.4", "statetable-lossy-3.1.4", "statetable-recovered-3.1.4"),
    ),
    Cause(
        "state-table-lacks-slot", "the state table has no slot for its prepared record",
        affected=(_TABLES,),
        rule=_without_slot,
        consequence="the broker never asks its producer: it stays pending permanently",
        act="rmqtx rebuild statetable STORE --to NEW, or decide by hand: rmqtx commit ID -n HOST:PORT",
        change="do not delete transaction/statetable or transaction/redolog",
        shown_by=("statetable-lossy-3.1.4", "statetable-slave-3.1.4"),
    ),
)
