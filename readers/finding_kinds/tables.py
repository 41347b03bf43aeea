"""Findings about state table, redo log and tables in databases."""

from __future__ import annotations

from rmqtx.readers.finding_kinds.kind import Kind, Severity

KINDS: dict[str, Kind] = {
    "database-unread": Kind(
        Severity.WARNING,
        "a RocksDB database that was not read",
        "facts that only the database contains are unknown: the number of checks of each transaction, and which "
        "transactions the broker has dropped; nothing is known of queues and cursors in RocksDB",
    ),
    "database-entry": Kind(
        Severity.WARNING,
        "an entry of a RocksDB database that is not in the format of a broker",
        "its content is unknown; the commit log is used",
    ),
    "table-entry-invalid": Kind(
        Severity.ERROR,
        "an entry of the state table or the redo log with impossible values",
        "it is skipped; the commit log is used, and a broker of 3.1 stops reading there",
        "rmqtx rebuild statetable writes the table again",
    ),
    "table-gap": Kind(
        Severity.ERROR,
        "the state table or the redo log lacks a file in the middle",
        "the content of this file is unknown; the commit log is used",
        "rmqtx rebuild statetable writes the table again",
    ),
    "table-slot-mismatch": Kind(
        Severity.ERROR,
        "a slot of the state table that contradicts its record",
        "the commit log is used; whether the broker checks the transaction depends on the slot",
        "rmqtx rebuild statetable writes the table again",
    ),
    "table-slot-expired": Kind(
        Severity.NOTE,
        "slots of the state table whose prepared records have left the log",
        "the slot is all that is left of them; a slot in state PREPARED can no longer be decided",
    ),
    "table-slot-stale": Kind(
        Severity.WARNING,
        "a slot in state PREPARED of a decided transaction",
        "the broker checks it without end; if it accepts the answer, a COMMIT is delivered once more",
        "rmqtx rebuild statetable writes the table again",
    ),
    "table-slot-unproved": Kind(
        Severity.WARNING,
        "a slot in state COMMIT or ROLLBACK, although no record in the log ended its transaction",
        "whether it was committed or rolled back is unknown: it is UNDECIDABLE; the broker does not check it, and a "
        "committed message may have been delivered",
        "look for the lost part of the log in a backup or on a slave",
    ),
    "table-slot-missing": Kind(
        Severity.ERROR,
        "a prepared record without a decision in the log that is not in the state table",
        "the broker never checks it",
        "rmqtx rebuild statetable writes the table again",
    ),
    "table-unanswerable": Kind(
        Severity.ERROR,
        "a prepared record without a decision in the log whose slot has another number than the record",
        "the broker checks it without end and refuses each answer: its table was rebuilt after a crash",
        "rmqtx rebuild statetable gives the record the slot with its own number",
    ),
    "table-missing": Kind(
        Severity.WARNING,
        "a redo log without a state table: the store of a slave, or the table was removed",
        "after a clean stop a broker does not rebuild the table when it starts: it checks no open transaction",
        "rmqtx rebuild statetable writes the table again",
    ),
    "table-lost": Kind(
        Severity.ERROR,
        "prepared records of 3.0 or 3.1 without the files from which the next start makes the state table",
        "on this store the broker would check no open transaction; in a copy they may only be missing in the copy",
        "copy transaction/ of the broker too",
    ),
    "redo-log-missing": Kind(
        Severity.WARNING,
        "a state table without a redo log",
        "a broker that starts after a crash rebuilds its table from the redo log: it would check no open transaction",
        "rmqtx rebuild redolog writes the redo log again",
    ),
    "table-leftover": Kind(
        Severity.NOTE,
        "a state table and a redo log that a later broker has left behind (from 3.2 on)",
        "no broker checks the open transactions in it; only the commit log shows what is decided",
    ),
    "table-remade": Kind(
        Severity.WARNING,
        "a state table that the next start of the broker deletes and rebuilds from the redo log",
        "the broker refuses answers for a transaction that gets another number, and never checks one that is left out",
        "rmqtx rebuild statetable writes a table with the numbers of the records",
    ),
    "redo-entry-mismatch": Kind(
        Severity.ERROR,
        "an entry of the redo log that contradicts its record",
        "a state table that is rebuilt after a crash lacks a transaction, or contains a decided one",
        "rmqtx rebuild redolog writes the redo log again",
    ),
    "redo-entry-missing": Kind(
        Severity.ERROR,
        "a prepared, COMMIT or ROLLBACK record that is not in the redo log",
        "a state table that is rebuilt after a crash lacks a transaction, or contains a decided one",
        "rmqtx rebuild redolog writes the redo log again",
    ),
    "table-number-taken": Kind(
        Severity.WARNING,
        "a prepared record whose slot number another record has: the table began again at 0 after a crash",
        "a number has one slot: the other record has it, and the broker does not check this one",
        "decide the transaction by its id: rmqtx commit ID or rmqtx rollback ID",
    ),
    "table-row-invalid": Kind(
        Severity.ERROR,
        "a row of the database table whose offset is not a number, or occurs twice",
        "its content is unknown; the commit log is used",
        "export the table again, or omit --transaction-table",
    ),
    "table-row-stale": Kind(
        Severity.WARNING,
        "a row of the database table of a transaction that is decided in the log",
        "the table is older than the decision, or the row was not removed: the transaction is not pending",
    ),
    "table-row-missing": Kind(
        Severity.NOTE,
        "prepared records without a decision in the log that are not in the database table",
        "the table is older than they are, or they were never inserted: they are pending",
    ),
    "table-row-expired": Kind(
        Severity.NOTE,
        "rows of the database table whose prepared records have left the log",
        "the message is gone and can no longer be committed",
    ),
    "table-row-unknown": Kind(
        Severity.WARNING,
        "a row of the database table with an offset at which no prepared record begins",
        "the table belongs to another broker, or to a log that was cut or created again since",
    ),
    "table-row-group": Kind(
        Severity.WARNING,
        "a row of the database table with another producer group than its record",
        "the commit log is used; the table may belong to another broker",
    ),
    "rocksdb-transactions": Kind(
        Severity.WARNING,
        "a live broker that keeps its open transactions in RocksDB (transRocksDBEnable)",
        "its table cannot be read over the network: a half message that the broker may have dropped after its checks "
        "is UNDECIDABLE",
        "stop the broker cleanly and read the files of its store; until then the state stays undecided",
    ),
    "prepared-unlisted": Kind(
        Severity.ERROR,
        "a live broker before 4.3: its prepared records are in no queue",
        "open transactions cannot be listed over the network; those with a known id, key or message id can be shown "
        "and decided",
        "rmqtx show ID -n HOST:PORT, or read the files of its store: rmqtx pending STORE",
    ),
    "prepared-unwalked": Kind(
        Severity.ERROR,
        "too much log after a prepared record (before 4.3) to read it from a live broker record by record",
        "its COMMIT or ROLLBACK record may be there: whether the transaction was decided is unknown",
        "read the store's files",
    ),
}
