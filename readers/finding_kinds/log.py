"""Findings about the commit log: its records, files and end."""

from __future__ import annotations

from rmqtx.readers.finding_kinds.kind import Kind, Severity

KINDS: dict[str, Kind] = {
    "record-damaged": Kind(
        Severity.ERROR,
        "damaged bytes in the commit log, not part of any sound record",
        "the record that stood there is lost as evidence; transactions whose state may depend on it are UNDECIDABLE",
        "compare with the same range on a slave",
        hides_records=True,
    ),
    "record-body-crc": Kind(
        Severity.ERROR,
        "a record whose body does not match its CRC",
        "the body may differ from what the producer sent; a broker whose recovery reads this record cuts the log "
        "before it",
        "compare with the same record on a slave",
    ),
    "record-header": Kind(
        Severity.ERROR,
        "impossible value in a record header",
        "no checksum covers the header: its other values may be wrong too",
        "compare with the same record on a slave",
        hides_records=True,
    ),
    "record-properties": Kind(
        Severity.WARNING,
        "a record with properties that cannot be parsed completely",
        "the unreadable properties may include the id, group or keys of the transaction",
        hides_records=True,
    ),
    "record-property-crc": Kind(
        Severity.ERROR,
        "a record whose property CRC does not match its bytes",
        "something in the record differs from what the broker wrote; a broker with forceVerifyPropCRC=true cuts the "
        "log before it",
        "compare with the same record on a slave",
        hides_records=True,
    ),
    "body-stream": Kind(
        Severity.NOTE,
        "a body that is marked as compressed and is not a complete compressed stream",
        "its CRC is right, so the broker stored it like this: no consumer can read it; brokers before 4.6.0 put "
        "compressed halves back like this, and their check stops there",
    ),
    "body-undecoded": Kind(
        Severity.WARNING,
        "bodies for which the filter of export --body-decoder printed no text",
        "their rows are exported with an empty body_decoded; the filter failed, was too slow, or printed an empty line",
        "export to another directory with a corrected filter",
    ),
    "store-time-backwards": Kind(
        Severity.NOTE,
        "a record with an earlier store time than the record before it",
        "a step of some milliseconds is normal (4.4.0); a larger step shows that the clock was set back or that the "
        "time is damaged: ages, --at and searches by time use this time",
    ),
    "segment-gap": Kind(
        Severity.ERROR,
        "a range of the commit log has no file",
        "all evidence in it is missing; transactions that may have evidence there are UNDECIDABLE",
        "find the missing file in a backup or on a slave",
        hides_records=True,
    ),
    "log-missing": Kind(
        Severity.ERROR,
        "queues, tables or other files beside the commit log refer to records that are not in it",
        "these records are missing as evidence: transactions that one of them may have decided are UNDECIDABLE, and "
        "transactions that begin there are not listed",
        "find the missing files of the commit log in a backup or on a slave",
        hides_records=True,
    ),
    "segment-overlap": Kind(
        Severity.ERROR,
        "two files cover the same range",
        "the file that begins earlier is used, the other file is skipped",
        "find out from a backup or a slave which of the two files belongs to this log; move the other one out of the "
        "directory before the broker starts",
        hides_records=True,
    ),
    "segment-size": Kind(
        Severity.ERROR,
        "a file with another length than its neighbours",
        "its content is read as far as possible; brokers from 4.5.1 on refuse to start with this file",
        "replace the file from a backup or a slave before the broker starts",
        hides_records=True,
        old_meaning="its content is read as far as possible; the broker loads neither this file nor any later one",
    ),
    "stray-file": Kind(
        Severity.WARNING,
        "a file that does not belong in this directory",
        "it is skipped; brokers from 4.5.1 on refuse to start while it is there",
        "move the file out of the directory before the broker starts",
        old_meaning="it is skipped; if its length is another one, the broker loads no file whose name comes later",
    ),
    "segment-misnamed": Kind(
        Severity.ERROR,
        "a file of the commit log under another name: its first record has a place that no other file has",
        "the file is skipped, so its records are missing as evidence: older transactions may be in it and are not "
        "listed, and transactions that a record in it may have decided are UNDECIDABLE",
        "in a copy of the store, rename the file to the place of its first record, in 20 digits",
        hides_records=True,
    ),
    "log-empty": Kind(
        Severity.ERROR,
        "a commit log without any record, in a directory without a checkpoint",
        "a broker that has started in a directory leaves a checkpoint there: this is probably not the directory of its "
        "store, and nothing is known about its transactions",
        "give the directory that storePathRootDir names in broker.conf; if the log is elsewhere: --commitlog DIR",
        hides_records=True,
    ),
    "at-before-log": Kind(
        Severity.ERROR,
        "the time of --at is before the first record that is left in the log",
        "the files with the records of that time are deleted: no state of that time is known",
        "give a later time, or read a backup of that time",
    ),
    "link-out": Kind(
        Severity.WARNING,
        "a link in the store that leads out of it",
        "if a broker's file has this name, the target of the link is read; commands that copy or change the store "
        "refuse it",
        "if the store came from elsewhere, examine the target of the link first",
    ),
    "unreadable-file": Kind(
        Severity.ERROR,
        "a file that cannot be opened or read",
        "all evidence in it is missing",
        "run the command as the broker's user; if the file stays unreadable, find it in a backup or on a slave",
        hides_records=True,
    ),
    "epochs-damaged": Kind(
        Severity.WARNING,
        "an epoch file whose lines, count and checksum do not match",
        "no effect on transactions: the file lists where the log of a replica is cut, not what is in it; the broker "
        "of the replica may refuse to start",
        "compare with another replica of the group",
    ),
    "entry-header": Kind(
        Severity.ERROR,
        "a DLedger entry whose header contradicts the record in it, or the entries beside it",
        "the record's own offset proves its place, so it counts; a broker whose recovery reads this entry ends the log "
        "before it or before the next one (start-cuts-log)",
        "compare with another member of the group",
    ),
    "blank-length": Kind(
        Severity.WARNING,
        "a blank record that does not end with its file",
        "the rest of the file is read as records",
    ),
    "tail-torn": Kind(
        Severity.NOTE,
        "the log ends in an incomplete record",
        "the broker never confirmed this record to a client; recovery cuts the log before it",
    ),
    "tail-foreign": Kind(
        Severity.WARNING,
        "foreign bytes after the end of the log",
        "no effect on transactions: recovery ends before these bytes and later writes overwrite them",
    ),
    "record-left-out": Kind(
        Severity.ERROR,
        "a record that was found and is not in the new store",
        "it does not count there as evidence for its transaction; the file in which it was found is unchanged",
        "find the record in a backup or on a slave, and give that file to rmqtx salvage too",
    ),
}
