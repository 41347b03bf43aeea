"""The register of finding codes, and the rows of the table `findings`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of finding: its severity, what was found, the effect on transactions, and what to do.

    `hides_records`: the place of the finding may contain records that were not read, or were read under a wrong name.
    """

    severity: str
    title: str
    meaning: str
    advice: str = ""
    hides_records: bool = False


#: Codes never change.
KINDS: dict[str, Kind] = {
    "record-damaged": Kind(
        "error",
        "damaged bytes in the commit log, not part of any sound record",
        "the record that stood there is lost as evidence; transactions whose state may depend on it are UNDECIDABLE",
        "compare with the same range on a slave",
        hides_records=True,
    ),
    "record-body-crc": Kind(
        "error",
        "a record whose body does not match its CRC",
        "the body may differ from what the producer sent; a broker whose recovery reads this record cuts the log "
        "before it",
        "compare with the same record on a slave",
    ),
    "record-header": Kind(
        "error",
        "impossible value in a record header",
        "no checksum covers the header: its other values may be wrong too",
        "compare with the same record on a slave",
        hides_records=True,
    ),
    "record-properties": Kind(
        "warning",
        "a record with properties that cannot be parsed completely",
        "the unreadable properties may include the id, group or keys of the transaction",
        hides_records=True,
    ),
    "record-property-crc": Kind(
        "error",
        "a record whose property CRC does not match its bytes",
        "something in the record differs from what the broker wrote; a broker with forceVerifyPropCRC=true cuts the "
        "log before it",
        "compare with the same record on a slave",
        hides_records=True,
    ),
    "body-stream": Kind(
        "note",
        "a body that is marked as compressed and is not a complete compressed stream",
        "its CRC is right, so the broker stored it like this: no consumer can read it; brokers before 4.6.0 put "
        "compressed halves back like this, and their check stops there",
    ),
    "store-time-backwards": Kind(
        "note",
        "a record with an earlier store time than the record before it",
        "a step of some milliseconds is normal (4.4.0); a larger step shows that the clock was set back or that the "
        "time is damaged: ages, --at and searches by time use this time",
    ),
    "segment-gap": Kind(
        "error",
        "a range of the commit log has no file",
        "all evidence in it is missing; transactions that may have evidence there are UNDECIDABLE",
        "find the missing file in a backup or on a slave",
        hides_records=True,
    ),
    "log-missing": Kind(
        "error",
        "queues, tables or other files beside the commit log refer to records that are not in it",
        "these records are missing as evidence: transactions that one of them may have decided are UNDECIDABLE, and "
        "transactions that begin there are not listed",
        "find the missing files of the commit log in a backup or on a slave",
        hides_records=True,
    ),
    "segment-overlap": Kind(
        "error",
        "two files cover the same range",
        "the file that begins earlier is used, the other file is skipped",
        "find out from a backup or a slave which of the two files belongs to this log; move the other one out of the "
        "directory before the broker starts",
        hides_records=True,
    ),
    "segment-size": Kind(
        "error",
        "a file with another length than its neighbours",
        "its content is read as far as possible; brokers from 4.5.1 on refuse to start with this file",
        "replace the file from a backup or a slave before the broker starts",
        hides_records=True,
    ),
    "stray-file": Kind(
        "warning",
        "a file that does not belong in this directory",
        "it is skipped; brokers from 4.5.1 on refuse to start while it is there",
        "move the file out of the directory before the broker starts",
    ),
    "link-out": Kind(
        "warning",
        "a link in the store that leads out of it",
        "if a broker's file has this name, the target of the link is read; commands that copy or change the store "
        "refuse it",
        "if the store came from elsewhere, examine the target of the link first",
    ),
    "unreadable-file": Kind(
        "error",
        "a file that cannot be opened or read",
        "all evidence in it is missing",
        "run the command as the broker's user; if the file stays unreadable, find it in a backup or on a slave",
        hides_records=True,
    ),
    "database-unread": Kind(
        "warning",
        "a RocksDB database that was not read",
        "facts that only the database contains are unknown: the number of checks of each transaction, and which "
        "transactions the broker has dropped; nothing is known of queues and cursors in RocksDB",
    ),
    "database-entry": Kind(
        "warning",
        "an entry of a RocksDB database that is not in the format of a broker",
        "its content is unknown; the commit log is used",
    ),
    "cursors-twice": Kind(
        "note",
        "cursors that are stored both in a file and in RocksDB",
        "those with the higher version are used, as a broker with cursors in RocksDB does; other brokers read the file",
    ),
    "cursors-contradict": Kind(
        "warning",
        "two cursor files, and the older one has the higher cursors",
        "enableLmq was switched, or the store was copied without its file times: the file written last is used, and "
        "half messages that are still ahead of its check cursor may have been checked long ago",
        "find out which file the broker uses: with enableLmq=true it is config/lmqConsumerOffset.json",
    ),
    "cursors-not-loaded": Kind(
        "warning",
        "cursors that the broker does not read when it starts",
        "after the next start the check begins again with the first half message: copies of decided transactions are "
        "put back and checked, may be committed a second time, and are discarded in the end",
        "rmqtx simulate lists these copies; brokers 4.9.4 and later read config/lmqConsumerOffset.json; if enableLmq "
        "was switched, copy the cursors to the other file name: the check then continues where it was",
    ),
    "epochs-damaged": Kind(
        "warning",
        "an epoch file whose lines, count and checksum do not match",
        "no effect on transactions: the file lists where the log of a replica is cut, not what is in it; the broker "
        "of the replica may refuse to start",
        "compare with another replica of the group",
    ),
    "entry-header": Kind(
        "warning",
        "a DLedger entry whose header contradicts the record in it",
        "no effect on transactions: the record's own offset proves its place; a broker may refuse to start",
        "compare with another member of the group",
    ),
    "blank-length": Kind(
        "warning",
        "a blank record that does not end with its file",
        "the rest of the file is read as records",
    ),
    "tail-torn": Kind(
        "note",
        "the log ends in an incomplete record",
        "the broker never confirmed this record to a client; recovery cuts the log before it",
    ),
    "tail-foreign": Kind(
        "warning",
        "foreign bytes after the end of the log",
        "no effect on transactions: recovery ends before these bytes and later writes overwrite them",
    ),
    "queue-missing": Kind(
        "warning",
        "a consume queue that should exist has no files",
        "the commit log is scanned instead",
    ),
    "queue-gap": Kind(
        "error",
        "a consume queue lacks a file in the middle",
        "the commit log is scanned instead",
        "rmqtx rebuild queues writes the queues again, in a copy of the store",
    ),
    "slot-invalid": Kind(
        "error",
        "a consume-queue slot with impossible values",
        "the commit log is searched for the record",
        "rmqtx rebuild queues writes the queues again, in a copy of the store",
    ),
    "slot-expired": Kind(
        "note",
        "consume-queue slots that point before the beginning of the commit log",
        "their records expired; queues are deleted in whole files, so every long-lived store has some of these slots",
    ),
    "slot-dangling": Kind(
        "warning",
        "a consume-queue slot that points outside the commit log",
        "its record was cut off or is in a missing file; the slot is no longer evidence",
    ),
    "slot-mismatch": Kind(
        "error",
        "a consume-queue slot whose record has another topic, queue or queue offset",
        "the commit log is used",
        "rmqtx rebuild queues writes the queues again, in a copy of the store",
        hides_records=True,
    ),
    "slot-missing": Kind(
        "error",
        "a record of the commit log that has no slot in its consume queue",
        "no consumer receives it; a half message is never checked, an op message is never read",
        "with a broker 3.2 or later (not with an earlier one), create an empty file `abort` before the start, first in "
        "a copy of the store: the broker then dispatches the log again from its checkpoint",
    ),
    "slot-pending": Kind(
        "note",
        "the newest records of the log are not in their consume queues yet",
        "the broker dispatches them while it runs, or at its next start",
    ),
    "queue-number-missing": Kind(
        "warning",
        "queue offsets without a record in the log",
        "these records are lost; in a rebuilt queue fillers take their places, so all other records keep the offsets "
        "that cursors and op messages refer to",
    ),
    "queue-number-taken": Kind(
        "warning",
        "a record whose queue offset cannot be used in its consume queue",
        "a rebuilt queue does not contain it: another record has this offset, or the record's header is damaged",
    ),
    "copies-contradict": Kind(
        "error",
        "two different records for the same place in the log",
        "the record with a sound body was used; if both are sound, the record from the longer run of records; the "
        "other record does not count for its transaction",
        "compare both records: rmqtx decode commitlog",
        hides_records=True,
    ),
    "record-left-out": Kind(
        "error",
        "a record that was found and is not in the new store",
        "it does not count there as evidence for its transaction; the file in which it was found is unchanged",
        "find the record in a backup or on a slave, and give that file to rmqtx salvage too",
    ),
    "queues-unchecked": Kind(
        "note",
        "consume queues in RocksDB that were not verified",
        "only a complete verification of the whole log compares them: faults in them were not searched for",
    ),
    "index-mismatch": Kind(
        "warning",
        "an index entry whose record is missing or does not have its key",
        "a search by key reads a wrong record; the record that the entry should point to may not be found",
    ),
    "index-missing": Kind(
        "warning",
        "a record with a key that is not in the index, although the index covers its place",
        "a search by key does not find it: rmqtx show may miss this copy, rmqtx audit does not",
    ),
    "index-damaged": Kind(
        "warning",
        "an index file that contradicts its header",
        "the log is scanned for keys instead",
    ),
    "checkpoint-damaged": Kind(
        "warning",
        "a checkpoint with a wrong length or impossible values",
        "only the times in it are unknown",
    ),
    "checkpoint-ahead": Kind(
        "warning",
        "the checkpoint refers to a later record than the log contains",
        "the last records of the log may be lost, and decisions with them",
        "look for the last files of the log in a backup or on a slave",
    ),
    "config-missing": Kind(
        "warning",
        "a configuration file of the broker is missing",
        "cursors are unknown: transactions whose state depends only on them are UNDECIDABLE",
        "add the store's config/consumerOffset.json (with enableLmq=true: config/lmqConsumerOffset.json)",
    ),
    "config-backup": Kind(
        "warning",
        "a configuration file cannot be read and its .bak was used",
        "cursors may be up to one persist interval (5 s) older than the broker's",
    ),
    "config-damaged": Kind(
        "error",
        "a configuration file and its .bak cannot be parsed",
        "their content is unknown",
        "restore the file from a backup",
    ),
    "cursor-beyond-end": Kind(
        "error",
        "the check cursor lies beyond the end of its queue",
        "the broker will reset it; half messages in between are never checked (the queue was deleted, or the log was "
        "cut)",
        "find out whether the end of the log was lost: look in a backup or on a slave; rmqtx cursor set sets the "
        "cursor",
    ),
    "cursor-before-begin": Kind(
        "error",
        "the check cursor lies before the first half message that is left",
        "half messages expired before the check reached them",
        "find the expired half messages in a backup; without them only the application shows the outcome of their "
        "transactions",
    ),
    "group-cursor-beyond-end": Kind(
        "warning",
        "a consumer group's cursor beyond the end of its queue",
        "the queue was cut or rebuilt: the group skips messages up to the cursor, or its client starts over",
    ),
    "group-cursor-before-begin": Kind(
        "note",
        "a consumer group's cursor before the first slot that is left",
        "messages expired before the group read them, or the group has not run since they expired",
    ),
    "op-beyond-end": Kind(
        "warning",
        "an op mark for an offset beyond the end of the half queue",
        "the half message that it ended is lost; the next half message with this offset counts as ended before its "
        "first check",
    ),
    "end-names-nothing": Kind(
        "error",
        "a COMMIT, ROLLBACK or op record whose reference leads to no half message of its transaction",
        "the reference is damaged (no checksum covers it): the record is not listed as a transaction, and what it may "
        "have ended is UNDECIDABLE",
        "compare with the same record on a slave",
        hides_records=True,
    ),
    "words-contradict": Kind(
        "error",
        "an id, group, topic or name that another part of the record, another record of the transaction or the index "
        "contradicts",
        "no checksum covers ids, groups, topics and names: one of the two is damaged; if more records of the "
        "transaction exist, the id that most of them have is used",
        "compare with the same records on a slave",
        hides_records=True,
    ),
    "half-unreadable": Kind(
        "error",
        "a half message, or a discard copy of one, whose properties cannot be read",
        "its transaction may be unknown: a transaction whose newest copy it may be is UNDECIDABLE",
        "compare with the same record on a slave",
        hides_records=True,
    ),
    "op-unreadable": Kind(
        "error",
        "an op message whose body is not a list of numbers, or whose CRC is wrong",
        "which transactions it ended is unknown; the check skips it or stops at it",
        "compare with the same record on a slave",
    ),
    "half-changed": Kind(
        "warning",
        "rmqtx is changing the store, or was interrupted during a change",
        "the store may contain half of the change: neither the state before nor the state after it",
        "the file named here contains the path of the undo file: rmqtx undo UNDO_FILE restores the store, with "
        "--resume it completes the change",
    ),
    "check-stopped": Kind(
        "error",
        "a message at which every round of the broker's check ends",
        "earlier half messages are put back and checked again in each round, and each COMMIT answer delivers the "
        "message again; later half messages are never checked",
        "rmqtx pending STORE prints the commands that let the check continue",
    ),
    "undecidable": Kind(
        "error",
        "transactions whose state cannot be determined from this store",
        "they are not listed as pending, but may be pending",
        "rmqtx audit lists each transaction with its reason",
    ),
    "older-design": Kind(
        "note",
        "prepared or rollback records of RocketMQ before 4.3 in the log",
        "brokers from 3.2 on do not check the open ones, and brokers from 4.3 on do not commit them",
        "rmqtx pending lists the open ones",
    ),
    "start-refused": Kind(
        "error",
        "the broker would exit at its start because of this file",
        "no transaction is checked, committed or delivered until this is repaired",
        "move files that do not belong here out of the directory; replace truncated files from a backup or a slave, "
        "and damaged configuration files from a backup",
    ),
    "start-endless": Kind(
        "error",
        "a range without a file, at which the broker would hang at its start",
        "the broker would open no port: no transaction is checked, committed or delivered",
        "restore the missing file from a backup or a slave",
    ),
    "start-cuts-log": Kind(
        "error",
        "records that the next start of the broker would cut off",
        "the broker ends the log before these records and overwrites them",
        "copy the store before the broker starts; rmqtx audit reads the records after the damage",
    ),
    "start-deletes-segment": Kind(
        "error",
        "a file of the commit log with records that the next start of the broker would delete",
        "all records in it would be lost permanently",
        "copy the store before the broker starts; rmqtx audit reads the records in the file",
    ),
    "start-leaves-out": Kind(
        "error",
        "a file of the commit log with records that the next start of the broker would not load",
        "the broker ends the log before this file, and overwrites the file when the log reaches it",
        "move files that do not belong here out of the directory; replace a file of another length from a backup or a "
        "slave",
    ),
    "start-deletes-queues": Kind(
        "error",
        "consume queues that the next start of the broker would delete, because there is no commit log",
        "the places of all records would be lost",
        "find the commit log in a backup or on a slave",
    ),
    "start-deletes-index": Kind(
        "note",
        "an index file that the next start of the broker would delete and rebuild only in part",
        "a search would no longer find older keys; the check of transactions does not use the index",
    ),
    "start-cuts-queue": Kind(
        "warning",
        "consume-queue slots that the next start of the broker would cut off",
        "those that are not dispatched again afterwards are reported as start-skips",
        "with a broker 3.2 or later (not with an earlier one), create an empty file `abort` before the start, first in "
        "a copy of the store: the broker then dispatches the log again from its checkpoint",
    ),
    "start-skips": Kind(
        "error",
        "records that would still have no slot in their consume queue after the next start of the broker",
        "no consumer receives them; half messages among them are never checked, op messages are never read",
        "with a broker 3.2 or later (not with an earlier one), create an empty file `abort` before the start, first in "
        "a copy of the store: the broker then dispatches the log again from its checkpoint",
    ),
    "start-shifts": Kind(
        "error",
        "records that the next start of the broker would dispatch to another queue offset than their own",
        "op messages refer to half messages by queue offset: after the shift, an op message settles another half "
        "message",
        "do not start the broker on this store: rmqtx rebuild queues writes the queues again, in a copy of it",
    ),
    "start-enters": Kind(
        "note",
        "records without a consume-queue slot that the next start of the broker would dispatch",
        "nothing is lost at the start",
    ),
    "start-unforeseen": Kind(
        "note",
        "a store whose next start cannot be predicted",
        "what a broker would cut, skip or delete is unknown",
    ),
    "table-entry-invalid": Kind(
        "error",
        "an entry of the state table or the redo log with impossible values",
        "it is skipped; the commit log is used, and a broker of 3.1 stops reading there",
        "rmqtx rebuild statetable writes the table again",
    ),
    "table-gap": Kind(
        "error",
        "the state table or the redo log lacks a file in the middle",
        "the content of this file is unknown; the commit log is used",
        "rmqtx rebuild statetable writes the table again",
    ),
    "table-slot-mismatch": Kind(
        "error",
        "a slot of the state table that contradicts its record",
        "the commit log is used; whether the broker checks the transaction depends on the slot",
        "rmqtx rebuild statetable writes the table again",
    ),
    "table-slot-expired": Kind(
        "note",
        "slots of the state table whose prepared records have left the log",
        "the slot is all that is left of them; a slot in state PREPARED can no longer be decided",
    ),
    "table-slot-stale": Kind(
        "warning",
        "a slot in state PREPARED of a decided transaction",
        "the broker checks it without end; if it accepts the answer, a COMMIT is delivered once more",
        "rmqtx rebuild statetable writes the table again",
    ),
    "table-slot-unproved": Kind(
        "warning",
        "a slot in state COMMIT or ROLLBACK, although no record in the log ended its transaction",
        "by the log it is pending; the broker does not check it, and a committed message may have been delivered",
        "look for the lost part of the log in a backup or on a slave",
    ),
    "table-slot-missing": Kind(
        "error",
        "an open prepared record that is not in the state table",
        "the broker never checks it",
        "rmqtx rebuild statetable writes the table again",
    ),
    "table-unanswerable": Kind(
        "error",
        "an open prepared record whose slot has another number than the record",
        "the broker checks it without end and refuses each answer: its table was rebuilt after a crash",
        "rmqtx rebuild statetable gives the record the slot with its own number",
    ),
    "table-missing": Kind(
        "warning",
        "a redo log without a state table: the store of a slave, or the table was removed",
        "after a clean stop a broker does not rebuild the table when it starts: it checks no open transaction",
        "rmqtx rebuild statetable writes the table again",
    ),
    "redo-log-missing": Kind(
        "warning",
        "a state table without a redo log",
        "a broker that starts after a crash rebuilds its table from the redo log: it would check no open transaction",
        "rmqtx rebuild redolog writes the redo log again",
    ),
    "table-leftover": Kind(
        "note",
        "a state table and a redo log that a later broker has left behind (from 3.2 on)",
        "no broker checks the open transactions in it; only the commit log shows what is decided",
    ),
    "table-remade": Kind(
        "warning",
        "a state table that the next start of the broker deletes and rebuilds from the redo log",
        "the broker refuses answers for a transaction that gets another number, and never checks one that is left out",
        "rmqtx rebuild statetable writes a table with the numbers of the records",
    ),
    "redo-entry-mismatch": Kind(
        "error",
        "an entry of the redo log that contradicts its record",
        "a state table that is rebuilt after a crash lacks a transaction, or contains a decided one",
        "rmqtx rebuild redolog writes the redo log again",
    ),
    "redo-entry-missing": Kind(
        "error",
        "a prepared, COMMIT or ROLLBACK record that is not in the redo log",
        "a state table that is rebuilt after a crash lacks a transaction, or contains a decided one",
        "rmqtx rebuild redolog writes the redo log again",
    ),
    "table-number-taken": Kind(
        "warning",
        "a prepared record whose slot number another record has: the table began again at 0 after a crash",
        "a number has one slot: the other record has it, and the broker does not check this one",
        "decide the transaction by its id: rmqtx commit ID or rmqtx rollback ID",
    ),
    "table-row-invalid": Kind(
        "error",
        "a row of the database table whose offset is not a number, or occurs twice",
        "its content is unknown; the commit log is used",
        "export the table again, or omit --transaction-table",
    ),
    "table-row-stale": Kind(
        "warning",
        "a row of the database table of a transaction that is decided in the log",
        "the table is older than the decision, or the row was not removed: the transaction is not pending",
    ),
    "table-row-missing": Kind(
        "note",
        "open prepared records that are not in the database table",
        "the table is older than they are, or they were never inserted: they are pending",
    ),
    "table-row-expired": Kind(
        "note",
        "rows of the database table whose prepared records have left the log",
        "the message is gone and can no longer be committed",
    ),
    "table-row-unknown": Kind(
        "warning",
        "a row of the database table with an offset at which no prepared record begins",
        "the table belongs to another broker, or to a log that was cut or created again since",
    ),
    "table-row-group": Kind(
        "warning",
        "a row of the database table with another producer group than its record",
        "the commit log is used; the table may belong to another broker",
    ),
    "dispatch-behind": Kind(
        "warning",
        "a live broker whose queues and index lag behind its log",
        "its newest records are not in them yet: a decision of the last moments may be missing",
        "run the command again in a moment",
    ),
    "rocksdb-transactions": Kind(
        "warning",
        "a live broker that keeps its open transactions in RocksDB (transRocksDBEnable)",
        "its table cannot be read over the network: a half message that the broker may have dropped after its checks "
        "is UNDECIDABLE",
        "stop the broker cleanly and read the files of its store; until then the state stays undecided",
    ),
    "prepared-unlisted": Kind(
        "error",
        "a live broker before 4.3: its prepared records are in no queue",
        "open transactions cannot be listed over the network; those with a known id, key or message id can be shown "
        "and decided",
        "rmqtx show ID -n HOST:PORT, or read the files of its store: rmqtx pending STORE",
    ),
    "prepared-unwalked": Kind(
        "error",
        "too much log after a prepared record (before 4.3) to read it from a live broker record by record",
        "its COMMIT or ROLLBACK record may be there: whether the transaction was decided is unknown",
        "read the store's files",
    ),
    "index-off": Kind(
        "warning",
        "a live broker without an index (messageIndexEnable=false)",
        "queues are read instead of the index: this takes longer, and `show` finds half copies only",
    ),
    "key-incomplete": Kind(
        "warning",
        "a live broker returns only a part of the records with one key and the same time",
        "further records with this key are unknown",
        "search by transaction id, or read the store's files",
    ),
    "index-unproven": Kind(
        "warning",
        "a live broker has too many records from before its last start to read them all",
        "if the broker was killed, its index may lack some of them: they may not be found",
        "read the store's files",
    ),
    "ops-unreadable": Kind(
        "error",
        "a live broker that does not serve its op queue (4.3.0)",
        "rolled back and open transactions cannot be distinguished: they are UNDECIDABLE",
        "read the store's files",
    ),
    "entries-unread": Kind(
        "error",
        "queue slots whose records a live broker does not return",
        "the records were deleted or are damaged: they are missing as evidence",
        "run the command again; if the result is the same, read the store's files",
    ),
    "copies-missing": Kind(
        "warning",
        "earlier half copies of a transaction that the broker's index does not return",
        "its evidence is incomplete: an op mark on one of them is not seen",
        "run the command again in a moment; if the result is the same, read the store's files",
    ),
    "foreign-unsearched": Kind(
        "note",
        "could not search for decisions on records outside the half topic",
        "an op mark that belongs to another record would count as a rollback",
    ),
    "receipt-torn": Kind(
        "warning",
        "an incomplete line in the journal of receipts",
        "a crash interrupted the write: nothing was sent if the line is the beginning of an act; an act whose "
        "outcome is incomplete is listed as unknown",
        "rmqtx receipts --outcome unknown --recheck",
    ),
    "receipt-unreadable": Kind(
        "warning",
        "a line in the journal of receipts that is not a receipt of this version",
        "the act that it records is unknown; the other lines count",
    ),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One row of `findings`. Units: bytes. `meaning` and `advice` override the texts of the kind."""

    store: str
    code: str
    file: str | None = None
    position_bytes: int | None = None
    length_bytes: int | None = None
    commit_log_offset: int | None = None
    expected: str | None = None
    actual: str | None = None
    meaning: str | None = None
    advice: str | None = None

    @property
    def kind(self) -> Kind:
        """Return the entry of the register for this code."""
        return KINDS[self.code]

    def line(self) -> str:
        """Return the finding as one line of text."""
        where = self.file or self.store
        if self.position_bytes is not None:
            where += f" at byte {self.position_bytes}"
            if self.length_bytes is not None:
                where += f", {self.length_bytes} bytes"
        detail = ""
        values = (("expected", self.expected), ("found", self.actual))
        shown = [f"{word} {value}" for word, value in values if value is not None]
        if shown:
            detail = f" ({', '.join(shown)})"
        meaning = self.meaning or self.kind.meaning
        return f"{self.kind.severity}: {self.code}: {where}: {self.kind.title}{detail}: {meaning}"


def findings_table(findings: list[Finding]) -> pa.Table:
    """Return the rows of FINDINGS, in the given order."""
    import pyarrow as pa

    from readers.model.tables import FINDINGS

    rows = [
        {
            "store": f.store,
            "code": f.code,
            "severity": f.kind.severity,
            "file": f.file,
            "position_bytes": f.position_bytes,
            "length_bytes": f.length_bytes,
            "commit_log_offset": f.commit_log_offset,
            "expected": f.expected,
            "actual": f.actual,
            "meaning": f.meaning or f.kind.meaning,
            "advice": f.advice or f.kind.advice or None,
        }
        for f in findings
    ]
    return pa.Table.from_pylist(rows, schema=FINDINGS)


def as_text(path: str | os.PathLike[str] | Path) -> str:
    """Return a path as text for a row; bytes that cannot be decoded are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
