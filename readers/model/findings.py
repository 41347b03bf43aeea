"""What is wrong, as rows: the register of finding codes and the one way to make a row of `findings`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of finding: how bad it is, what it is, and what it means for transactions.

    `hides_records`: where it is found, records of the log may be that were not read, or not with the name they had.
    """

    severity: str
    title: str
    meaning: str
    advice: str = ""
    hides_records: bool = False


#: Codes are stable for ever.
KINDS: dict[str, Kind] = {
    "record-damaged": Kind(
        "error",
        "bytes inside the commit log that no sound record explains",
        "the record that stood there is lost as evidence; transactions that may have relied on it are UNDECIDABLE",
        "compare with the same range on a slave",
        hides_records=True,
    ),
    "record-body-crc": Kind(
        "error",
        "a record whose body does not match its CRC",
        "the body may differ from what the producer sent; a broker that recovers here cuts the log before it",
    ),
    "record-header": Kind(
        "error",
        "a record with a header field that cannot be",
        "the header has no checksum: what else it says of its transaction may be wrong too",
        "compare with the same record on a slave",
        hides_records=True,
    ),
    "record-properties": Kind(
        "warning",
        "a record whose properties are not all names with values",
        "what cannot be read of them is unknown: id, group or keys of its transaction may be among it",
        hides_records=True,
    ),
    "record-property-crc": Kind(
        "error",
        "a record whose property CRC is not that of its bytes",
        "something in it differs from what the broker wrote; one with forceVerifyPropCRC=true cuts the log before it",
        "compare with the same record on a slave",
        hides_records=True,
    ),
    "body-stream": Kind(
        "note",
        "a body that its record calls compressed and that is no whole stream",
        "its CRC is right, so it was stored so: no consumer can read it; brokers before 4.6.0 put compressed halves "
        "back like that, and their check stops there",
    ),
    "store-time-backwards": Kind(
        "note",
        "a record that says it was stored before the record in front of it",
        "by milliseconds brokers do this themselves (4.4.0); by more, the clock was set back or the time is damaged: "
        "ages, --at and searches by time go by it",
    ),
    "segment-gap": Kind(
        "error",
        "a range of the commit log has no file",
        "every witness in it is gone; transactions that may have one there are UNDECIDABLE",
        "find the missing file in a backup or on a slave",
        hides_records=True,
    ),
    "log-missing": Kind(
        "error",
        "queues, tables or other files beside the commit log know records that are not in it",
        "these are missing as evidence: what one of them may have decided is UNDECIDABLE, and transactions that begin "
        "there are not listed",
        "find the missing files of the commit log in a backup or on a slave",
        hides_records=True,
    ),
    "segment-overlap": Kind(
        "error", "two files claim the same range", "the file that begins earlier is believed, the other is left out",
        hides_records=True,
    ),
    "segment-size": Kind(
        "error",
        "a file whose length is not that of its neighbours",
        "what lies in it is read as far as it goes; brokers from 4.5.1 refuse to start on it",
        hides_records=True,
    ),
    "stray-file": Kind(
        "warning",
        "a file that does not belong in this directory",
        "it is left out; brokers from 4.5.1 refuse to start while it is there",
        "move it away before the broker starts",
    ),
    "link-out": Kind(
        "warning",
        "a link in the store that leads out of it",
        "if a broker's file has that name, what it leads to is read; commands that copy or change the store refuse it",
        "if the store came from elsewhere, look at what it leads to before anything of it is believed",
    ),
    "unreadable-file": Kind(
        "error", "a file that cannot be opened or read", "everything in it is missing as evidence",
        hides_records=True,
    ),
    "database-unread": Kind(
        "warning",
        "a RocksDB database that was not read",
        "what only the database knows is unknown: how often transactions were checked, and which ones the broker has "
        "dropped; of queues and cursors in RocksDB nothing is known",
    ),
    "database-entry": Kind(
        "warning",
        "an entry of a RocksDB database that is not as brokers write it",
        "what it says is unknown; the commit log is believed",
    ),
    "cursors-twice": Kind(
        "note",
        "cursors that are kept in a file and in RocksDB too",
        "those of the higher version are taken, as a broker does that keeps them in RocksDB; any other reads the file",
    ),
    "cursors-contradict": Kind(
        "warning",
        "two files of cursors, of which the older one has come further",
        "enableLmq was switched, or the store was copied without its files' times: the file written last is believed, "
        "and what it has before the check may long be behind it",
        "look which one the broker keeps: enableLmq=true has config/lmqConsumerOffset.json",
    ),
    "cursors-not-loaded": Kind(
        "warning",
        "cursors that the broker does not read when it starts",
        "at its next start every half message is before the check again: copies of decided transactions are put back "
        "and asked about, may be committed a second time, and in the end are discarded",
        "rmqtx simulate shows which; 4.9.4 and later read config/lmqConsumerOffset.json, and where enableLmq was "
        "switched a copy of the cursors under the other name has the check go on",
    ),
    "epochs-damaged": Kind(
        "warning",
        "an epoch file whose lines, count and checksum do not fit together",
        "nothing: it says where a replica's log is cut, not what is in it; its broker may refuse to start on it",
        "compare with another replica of the group",
    ),
    "entry-header": Kind(
        "warning",
        "a DLedger entry whose header contradicts the record in it",
        "nothing: the record's own offset proves it; a broker may refuse to start on it",
        "compare with another member of the group",
    ),
    "blank-length": Kind(
        "warning", "a blank record that does not end with its file", "the rest of the file is read on as records"
    ),
    "tail-torn": Kind(
        "note",
        "the log ends in a record that was not written completely",
        "the broker never answered for it; recovery cuts the log before it",
    ),
    "tail-foreign": Kind(
        "warning",
        "bytes after the end of the log that are no record of this place",
        "nothing: recovery ends before them and later writes cover them",
    ),
    "queue-missing": Kind(
        "warning",
        "a consume queue that should exist has no files",
        "the commit log is scanned instead",
    ),
    "queue-gap": Kind("error", "a consume queue lacks a file in the middle", "the commit log is scanned instead"),
    "slot-invalid": Kind("error", "a consume-queue entry that cannot be", "the record is looked for in the commit log"),
    "slot-expired": Kind(
        "note",
        "consume-queue entries that point before the commit log's begin",
        "their records expired; queues are deleted by whole files, so every long-lived store has such entries",
    ),
    "slot-dangling": Kind(
        "warning",
        "a consume-queue entry that points outside the commit log",
        "the record it pointed at was cut off or lies in a missing file; it is no evidence any more",
    ),
    "slot-mismatch": Kind(
        "error",
        "a consume-queue entry whose record is of another topic, queue or queue offset",
        "the commit log is believed",
        hides_records=True,
    ),
    "slot-missing": Kind(
        "error",
        "a record of the commit log that its consume queue does not have",
        "no consumer gets it; a half message is never checked, an op message never read",
        "a broker that finds an empty file `abort` at its start enters what follows its checkpoint; try it on a copy",
    ),
    "slot-pending": Kind(
        "note",
        "the newest records of the log are not in their consume queues yet",
        "the broker enters them as it goes on, or when it starts again",
    ),
    "queue-number-missing": Kind(
        "warning",
        "numbers of a consume queue whose records are not in the log",
        "their records are lost; in a queue that is made anew fillers take their places, and the numbers of all others "
        "stay what cursors and op messages say",
    ),
    "queue-number-taken": Kind(
        "warning",
        "a record with a number that its consume queue cannot give it",
        "it is in no queue that is made anew: another record has the number, or the record's header is damaged",
    ),
    "copies-contradict": Kind(
        "error",
        "two records that claim one place of the log and are not the same",
        "the one with a sound body was taken, of two sound ones that of the longer run of records; what the other says "
        "of its transaction does not count",
        "look at both: rmqtx decode commitlog",
        hides_records=True,
    ),
    "record-left-out": Kind(
        "error",
        "a record that was found and is not in the new store",
        "what it says of its transaction does not count there; the file that it was found in is unchanged",
    ),
    "queues-unchecked": Kind(
        "note",
        "consume queues in RocksDB",
        "they are compared with the whole log only: what is wrong in them is not found",
    ),
    "index-mismatch": Kind(
        "warning",
        "an index entry whose record does not have its key, or is not there",
        "a search by key looks at a wrong record; what it should point at may not be found",
    ),
    "index-missing": Kind(
        "warning",
        "a record with a key that the index lacks, though the index covers its place",
        "a search by key does not find it: rmqtx show may miss this copy, rmqtx audit does not",
    ),
    "index-damaged": Kind("warning", "an index file that contradicts its header", "keys are looked for by scanning"),
    "checkpoint-damaged": Kind(
        "warning", "a checkpoint of the wrong length or with what cannot be", "only the times in it are unknown"
    ),
    "checkpoint-ahead": Kind(
        "warning",
        "the checkpoint knows of a later record than the log holds",
        "the log's last records may be lost, and decisions with them",
        "look for the last files of the log in a backup or on a slave",
    ),
    "config-missing": Kind(
        "warning",
        "a configuration file of the broker is not there",
        "cursors are unknown: what only they decide is UNDECIDABLE",
        "give the store's config/consumerOffset.json, with enableLmq config/lmqConsumerOffset.json",
    ),
    "config-backup": Kind(
        "warning",
        "a configuration file cannot be read and its .bak was used",
        "cursors may be up to one persist interval (5 s) older than the broker's",
    ),
    "config-damaged": Kind(
        "error", "a configuration file and its .bak cannot be parsed", "what it holds is unknown"
    ),
    "cursor-beyond-end": Kind(
        "error",
        "the check cursor lies beyond the end of its queue",
        "the broker will reset it; halves in between are never asked (queue deleted, or log cut)",
    ),
    "cursor-before-begin": Kind(
        "error",
        "the check cursor lies before the first half that is left",
        "halves expired before the check reached them",
    ),
    "group-cursor-beyond-end": Kind(
        "warning",
        "a consumer group's cursor beyond the end of its queue",
        "the queue was cut or made anew: the group skips what is written up to there, or its client starts over",
    ),
    "group-cursor-before-begin": Kind(
        "note",
        "a consumer group's cursor before the first entry that is left",
        "messages expired before the group read them, or it has not run since",
    ),
    "op-beyond-end": Kind(
        "warning",
        "an op number beyond the end of the half queue",
        "the half message it ended is lost; the half that will get its number counts as ended before it is asked",
    ),
    "end-names-nothing": Kind(
        "error",
        "a COMMIT, ROLLBACK or op record that names no half message of its own",
        "the place that it names is damaged, for no checksum covers it: it is no transaction, and what it may have "
        "ended is UNDECIDABLE",
        "compare with the same record on a slave",
        hides_records=True,
    ),
    "words-contradict": Kind(
        "error",
        "words of a record, records of one transaction, or a record and the index, that do not say the same of it",
        "no checksum covers ids, groups, topics and names: one of the two is damaged; where more records speak of the "
        "transaction, its id is what most of them say",
        "compare with the same records on a slave",
        hides_records=True,
    ),
    "half-unreadable": Kind(
        "error",
        "a half message, or a discard copy of one, whose properties cannot be read",
        "whose copy it is may be unknown: a transaction whose newest copy it may be is UNDECIDABLE",
        "compare with the same record on a slave",
        hides_records=True,
    ),
    "op-unreadable": Kind(
        "error",
        "an op message whose body is no list of numbers, or whose CRC is wrong",
        "the transactions it ended cannot be told; the check loop skips it or stops at it",
    ),
    "half-changed": Kind(
        "warning",
        "rmqtx is changing the store, or was when it was interrupted",
        "what is read may be half of an act: neither as before nor as after it",
        "cat FILE names the undo file: rmqtx undo brings the store back, with --resume it completes the change",
    ),
    "check-stopped": Kind(
        "error",
        "a message at which every round of the broker's check ends",
        "halves before it are put back again in each round, and a COMMIT at their check is delivered again each time; "
        "halves behind it are never asked for",
    ),
    "undecidable": Kind(
        "error",
        "transactions whose state cannot be known from this store",
        "they are not listed as pending, and may be",
        "rmqtx audit lists them, each with its reason",
    ),
    "older-design": Kind(
        "note",
        "prepared or rollback records of RocketMQ before 4.3 are in the log",
        "no broker from 3.2 on asks for those that are open, and none from 4.3 on commits them",
        "rmqtx pending lists them",
    ),
    "start-refused": Kind(
        "error",
        "a file on which the broker would end at its start",
        "no transaction is checked, committed or delivered until it is mended",
        "move a stranger away; replace what was cut from a backup or a slave",
    ),
    "start-endless": Kind(
        "error",
        "a range without a file, for which the broker would wait at its start for ever",
        "no transaction is checked, committed or delivered: the broker runs and listens to nobody",
        "bring the missing file back from a backup or a slave",
    ),
    "start-cuts-log": Kind(
        "error",
        "records that the next start of the broker would cut off",
        "the broker takes the log to end before them and writes over them",
        "save a copy before the broker starts; rmqtx audit reads what is behind the damage",
    ),
    "start-deletes-segment": Kind(
        "error",
        "a file of the commit log with records that the next start of the broker would delete",
        "all records in it are gone for ever",
        "save a copy before the broker starts; rmqtx audit reads what is in it",
    ),
    "start-leaves-out": Kind(
        "error",
        "a file of the commit log with records that the next start of the broker would not load",
        "the broker takes the log to end before it, and writes over it when it comes there",
        "move away what does not belong between the files; replace one of another length from a backup or a slave",
    ),
    "start-deletes-queues": Kind(
        "error",
        "consume queues that the next start of the broker would delete, for there is no commit log",
        "all that is known of where records stood is gone",
        "find the commit log in a backup or on a slave",
    ),
    "start-deletes-index": Kind(
        "note",
        "an index file that the next start of the broker would delete and make again only in part",
        "older keys are not found by a search any more; the check of transactions does without",
    ),
    "start-cuts-queue": Kind(
        "warning",
        "consume-queue entries that the next start of the broker would cut off",
        "what it does not enter again afterwards is told as start-skips",
        "a broker that finds an empty file `abort` at its start enters what follows its checkpoint; try it on a copy",
    ),
    "start-skips": Kind(
        "error",
        "records that stay without a slot in their consume queue when the broker starts",
        "no consumer gets them; half messages among them are never checked, op messages never read",
        "a broker that finds an empty file `abort` at its start enters what follows its checkpoint; try it on a copy",
    ),
    "start-shifts": Kind(
        "error",
        "records that the next start of the broker would enter at another slot than they say",
        "op messages name halves by what these say: such a half is taken for another one",
    ),
    "start-enters": Kind(
        "note",
        "records without a slot that the next start of the broker enters into their consume queue",
        "nothing is lost by the start",
    ),
    "start-unforeseen": Kind(
        "note",
        "a store whose next start cannot be foreseen",
        "what a broker would truncate, skip or delete is not told",
    ),
    "table-entry-invalid": Kind(
        "error",
        "an entry of the state table or the redo log that cannot be",
        "it is left out; the commit log is believed, and a broker of 3.1 ends its reading there",
        "rmqtx rebuild statetable makes the table anew",
    ),
    "table-gap": Kind(
        "error",
        "the state table or the redo log lacks a file in the middle",
        "what stood in it is unknown; the commit log is believed",
        "rmqtx rebuild statetable makes the table anew",
    ),
    "table-slot-mismatch": Kind(
        "error",
        "a slot of the state table that says other things than its record",
        "the commit log is believed; the broker asks, or does not ask, by the slot",
        "rmqtx rebuild statetable makes the table anew",
    ),
    "table-slot-expired": Kind(
        "note",
        "slots of the state table whose prepared records have left the log",
        "the slot is all that is known of them; one that says PREPARED can be decided by nobody any more",
    ),
    "table-slot-stale": Kind(
        "warning",
        "a slot that says PREPARED of a transaction that is decided",
        "the broker asks for it without end; where it takes the answer, a COMMIT is delivered once more",
        "rmqtx rebuild statetable makes the table anew",
    ),
    "table-slot-unproved": Kind(
        "warning",
        "a slot that says decided of a transaction that no record in the log ended",
        "by the log it is pending; the broker does not ask for it, and what it decided may have been delivered",
        "look for the lost part of the log in a backup or on a slave",
    ),
    "table-slot-missing": Kind(
        "error",
        "a prepared record that nothing ended and that the state table does not have",
        "the broker never asks for it",
        "rmqtx rebuild statetable makes the table anew",
    ),
    "table-unanswerable": Kind(
        "error",
        "an undecided prepared record whose slot has another number than the record says",
        "the broker asks for it without end and refuses each answer: its table was made anew after a crash",
        "rmqtx rebuild statetable gives it the slot that its record names",
    ),
    "table-missing": Kind(
        "warning",
        "a redo log without a state table: a slave's store, or the table was removed",
        "a broker that was stopped cleanly makes no table of it when it starts: it asks for none of them",
        "rmqtx rebuild statetable makes the table anew",
    ),
    "redo-log-missing": Kind(
        "warning",
        "a state table without a redo log",
        "a broker that starts after a crash makes its table anew out of the redo log: it would ask for nothing that is "
        "open",
        "rmqtx rebuild redolog makes it anew",
    ),
    "table-leftover": Kind(
        "note",
        "a state table and a redo log that a later broker has left behind (from 3.2 on)",
        "nobody asks for what is open in it; the commit log alone says what is decided",
    ),
    "table-remade": Kind(
        "warning",
        "a state table that the next start of the broker destroys and makes anew from the redo log",
        "under another number each answer is refused, and what is forgotten is never asked for",
        "rmqtx rebuild statetable makes a table with the numbers that the records name",
    ),
    "redo-entry-mismatch": Kind(
        "error",
        "an entry of the redo log that says other things than its record",
        "a state table that is made anew after a crash lacks a transaction, or has one that is decided",
        "rmqtx rebuild redolog makes it anew",
    ),
    "redo-entry-missing": Kind(
        "error",
        "a prepared, COMMIT or ROLLBACK record that the redo log does not have",
        "a state table that is made anew after a crash lacks a transaction, or has one that is decided",
        "rmqtx rebuild redolog makes it anew",
    ),
    "table-number-taken": Kind(
        "warning",
        "a prepared record whose slot number another one has: the table was begun again from 0 after a crash",
        "a number has one slot: the other one has it, and the broker does not ask for this one",
        "decide it by its own handle: rmqtx commit or rmqtx rollback",
    ),
    "table-row-invalid": Kind(
        "error",
        "a row of the database table whose offset is no number, or stands there twice",
        "what it says is unknown; the commit log is believed",
    ),
    "table-row-stale": Kind(
        "warning",
        "a row of the database table of a transaction that the log shows as decided",
        "the table is older than the decision, or its removal failed: it is not pending",
        "rmqtx transaction-table plan takes such rows out",
    ),
    "table-row-missing": Kind(
        "note",
        "undecided prepared records that the database table does not have",
        "the table is older than they are, or nobody entered them: they are pending all the same",
        "rmqtx transaction-table plan puts such rows in",
    ),
    "table-row-expired": Kind(
        "note",
        "rows of the database table whose prepared records have left the log",
        "the message is gone: nobody can commit it any more",
    ),
    "table-row-unknown": Kind(
        "warning",
        "a row of the database table at whose offset no prepared record begins",
        "the table is of another broker, or of a log that was cut or made anew since",
    ),
    "table-row-group": Kind(
        "warning",
        "a row of the database table with another producer group than its record",
        "the commit log is believed; the table may be of another broker",
    ),
    "dispatch-behind": Kind(
        "warning",
        "a live broker whose queues and index lag behind its log",
        "what was written last is not in them yet: a decision of the last moments may not show",
        "ask again in a moment",
    ),
    "rocksdb-transactions": Kind(
        "warning",
        "a live broker that keeps its open transactions in RocksDB (transRocksDBEnable)",
        "its table cannot be asked for over the wire: a half that it may have dropped after its checks is UNDECIDABLE",
        "once the broker is stopped cleanly its store's files tell; nothing of it is decided until then",
    ),
    "prepared-unlisted": Kind(
        "error",
        "a live broker before 4.3: its prepared records are in no queue",
        "what is open cannot be listed over the wire; what has a known id, key or message id can be shown and decided",
        "rmqtx show ID -n HOST:PORT, or read its store's files: rmqtx pending STORE",
    ),
    "prepared-unwalked": Kind(
        "error",
        "more of a live broker's log behind a prepared record (before 4.3) than can be asked for record by record",
        "a COMMIT or ROLLBACK record of it may be there: whether it was decided is not known",
        "read the store's files",
    ),
    "index-off": Kind(
        "warning",
        "a live broker without an index (messageIndexEnable=false)",
        "queues are read instead of looking things up: it takes longer, and `show` knows half copies only",
    ),
    "key-incomplete": Kind(
        "warning",
        "more records of one moment under a key than a live broker gives",
        "what else has this key is not known",
        "ask by transaction id, or read the store's files",
    ),
    "index-unproven": Kind(
        "warning",
        "too many records from before a live broker's last start to read them all",
        "the index of a broker that was killed may lack some of them: what is there may not be found",
        "read the store's files",
    ),
    "ops-unreadable": Kind(
        "error",
        "a live broker that does not serve its op queue (4.3.0)",
        "what was rolled back cannot be told from what is open: such transactions are UNDECIDABLE",
        "read its store's files",
    ),
    "entries-unread": Kind(
        "error",
        "entries of a queue whose records a live broker does not give",
        "the records were deleted or are damaged: they are missing as evidence",
        "ask again; if it stays so, read the store's files",
    ),
    "copies-missing": Kind(
        "warning",
        "earlier half copies of a transaction that the broker's index does not give",
        "its evidence is incomplete: an op on one of them would not be seen",
        "ask again in a moment; if it stays so, read the store's files",
    ),
    "foreign-unsearched": Kind(
        "note",
        "decisions on records outside the half topic could not be looked for",
        "an op number that belongs to another record would be taken for a rollback",
    ),
    "receipt-torn": Kind(
        "warning",
        "a line of the journal of receipts that was not written completely",
        "a crash came between: nothing was sent for an act that was only being begun; an act whose outcome is torn is "
        "listed as unknown",
        "rmqtx receipts --outcome unknown --recheck",
    ),
    "receipt-unreadable": Kind(
        "warning",
        "a line of the journal of receipts that is no receipt of this version",
        "what it said of an act is unknown; the other lines count",
    ),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One row of `findings` before it becomes Arrow. Units: bytes. `meaning` and `advice` override the kind's own."""

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
        """The register's entry for its code."""
        return KINDS[self.code]

    def line(self) -> str:
        """One line for people."""
        where = self.file or self.store
        if self.position_bytes is not None:
            where += f" at byte {self.position_bytes}"
            if self.length_bytes is not None:
                where += f", {self.length_bytes} bytes"
        detail = ""
        said = (("expected", self.expected), ("found", self.actual))
        told = [f"{word} {value}" for word, value in said if value is not None]
        if told:
            detail = f" ({', '.join(told)})"
        meaning = self.meaning or self.kind.meaning
        return f"{self.kind.severity}: {self.code}: {where}: {self.kind.title}{detail}: {meaning}"


def findings_table(findings: list[Finding]) -> pa.Table:
    """The rows of FINDINGS, in the order given."""
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
    """A path as the text that rows carry: undecodable bytes are escaped, never lost."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
