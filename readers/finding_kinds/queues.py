"""Findings about consume queues and their slots, and about index files."""

from __future__ import annotations

from rmqtx.readers.finding_kinds.kind import Kind, Severity

#: What to do about half messages whose slot another record has: a rebuilt queue does not contain them either.
RESUME_SLOTLESS = (
    "a rebuilt queue lacks it too: rmqtx audit lists the transactions that are LOST, rmqtx resume appends a half "
    "message again, in a slot of its own"
)

KEEP_QUEUE = (
    "do not rebuild the queues: the queue offset in the record is damaged, and a rebuilt queue lacks the record; the "
    "broker reads it by this slot"
)

KINDS: dict[str, Kind] = {
    "queue-missing": Kind(
        Severity.WARNING,
        "a consume queue that should exist has no files",
        "the commit log is scanned instead",
        "rmqtx rebuild queues writes the queues again, in a copy of the store",
    ),
    "queue-database-missing": Kind(
        Severity.ERROR,
        "a store with queues in RocksDB without the database of its queues",
        "the commit log is scanned instead; whether the queues led to more than this log has is unknown",
        "copy consumequeue/ of the broker too; if the broker lost the directory, its next start writes the database "
        "again from the log (seen on 5.5.0)",
    ),
    "queue-gap": Kind(
        Severity.ERROR,
        "a consume queue lacks a file in the middle",
        "the commit log is scanned instead",
        "rmqtx rebuild queues writes the queues again, in a copy of the store",
    ),
    "slot-invalid": Kind(
        Severity.ERROR,
        "a consume-queue slot with impossible values",
        "the commit log is searched for the record",
        "rmqtx rebuild queues writes the queues again, in a copy of the store",
    ),
    "slot-expired": Kind(
        Severity.NOTE,
        "consume-queue slots that point before the beginning of the commit log",
        "their records expired; queues are deleted in whole files, so every long-lived store has some of these slots",
    ),
    "slot-dangling": Kind(
        Severity.WARNING,
        "a consume-queue slot that points outside the commit log",
        "its record was cut off or is in a missing file; the slot is no longer evidence",
    ),
    "slot-mismatch": Kind(
        Severity.ERROR,
        "a consume-queue slot whose record has another topic, queue or queue offset",
        "the commit log is used",
        "rmqtx rebuild queues writes the queues again, in a copy of the store",
        hides_records=True,
    ),
    "slot-tags-mismatch": Kind(
        Severity.WARNING,
        "a consume-queue slot that leads to its record, but has another tags code",
        "a consumer that filters by tag may not receive the message, or the broker sends it and the client filters it; "
        "the check reads no tags code, so no transaction depends on it",
        "rmqtx rebuild queues writes the queues again, in a copy of the store",
    ),
    "slot-missing": Kind(
        Severity.ERROR,
        "a record of the commit log that has no slot in its consume queue",
        "no consumer receives it; a half message is never checked, an op message is never read",
        "rmqtx rebuild queues writes the queues again, in a copy of the store",
    ),
    "slot-pending": Kind(
        Severity.NOTE,
        "the newest records of the log are not in their consume queues yet",
        "the broker dispatches them while it runs, or at its next start",
    ),
    "queue-number-missing": Kind(
        Severity.WARNING,
        "queue offsets without a record in the log",
        "these records are lost; in a rebuilt queue fillers take their places, so all other records keep the offsets "
        "that cursors and op messages refer to",
    ),
    "queue-number-taken": Kind(
        Severity.WARNING,
        "a record whose queue offset cannot be used in its consume queue",
        "a rebuilt queue does not contain it: another record has this offset, or the record's header is damaged",
        "if it is a half message, rmqtx audit shows whether its transaction is LOST, and rmqtx resume appends it again",
    ),
    "queues-leftover": Kind(
        Severity.NOTE,
        "consume queues in files that end before the same queues in RocksDB",
        "a broker of before wrote them: this one reads the queues in RocksDB, and no cursor and no slot is compared "
        "with the files",
        "do not remove them while a broker with queues in files may open this store again",
    ),
    "queues-unchecked": Kind(
        Severity.NOTE,
        "consume queues in RocksDB that were not verified",
        "only a complete verification of the whole log compares them: faults in them were not searched for",
    ),
    "op-beyond-end": Kind(
        Severity.ERROR,
        "an op mark for an offset beyond the end of the half queue",
        "the half message that it ended is lost, or the number is damaged, and another half message counts as not "
        "ended; the next half message with this offset counts as ended before its first check",
        "compare the op message and the half queue with those on a slave",
    ),
    "dispatch-behind": Kind(
        Severity.WARNING,
        "a live broker whose queues and index lag behind its log",
        "its newest records are not in them yet: a decision of the last moments may be missing",
        "run the command again in a moment",
    ),
    "dispatch-ahead": Kind(
        Severity.ERROR,
        "a live broker whose queues and index get new records only behind a place that its log has not reached",
        "a slot of a queue leads there, and the start continued behind it (4.5.0 to 4.9.8): decisions since are in the "
        "log, and no request finds them; the check does not read its own copies",
        "stop the broker, and write its queues again: rmqtx rebuild queues STORE --to NEW",
    ),
    "entries-unread": Kind(
        Severity.ERROR,
        "queue slots whose records a live broker does not return",
        "the records were deleted or are damaged: they are missing as evidence",
        "run the command again; if the result is the same, read the store's files",
    ),
    "index-mismatch": Kind(
        Severity.WARNING,
        "an index entry whose record is missing or does not have its key",
        "a search by key reads a wrong record; the record that the entry should point to may not be found",
    ),
    "index-missing": Kind(
        Severity.WARNING,
        "a record with a key that is not in the index, although the index covers its place",
        "a search by key does not find it: rmqtx show may miss this copy, rmqtx audit does not",
    ),
    "index-damaged": Kind(
        Severity.WARNING,
        "an index file that contradicts its header",
        "the log is scanned for keys instead",
    ),
    "index-off": Kind(
        Severity.WARNING,
        "a live broker without an index (messageIndexEnable=false)",
        "queues are read instead of the index: this takes longer, and `show` finds half copies only",
    ),
    "key-incomplete": Kind(
        Severity.WARNING,
        "a live broker returns only a part of the records with one key and the same time",
        "further records with this key are unknown",
        "search by transaction id, or read the store's files",
    ),
    "index-unproven": Kind(
        Severity.WARNING,
        "a live broker has too many records from before its last start to read them all",
        "if the broker was killed, its index may lack some of them: they may not be found",
        "read the store's files",
    ),
}
