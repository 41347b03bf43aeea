"""Findings about what the next start of the broker does."""

from __future__ import annotations

from rmqtx.readers.finding_kinds.kind import Kind, Severity

KINDS: dict[str, Kind] = {
    "start-refused": Kind(
        Severity.ERROR,
        "the broker would exit at its start because of this file",
        "no transaction is checked, committed or delivered until this is repaired",
        "move files that do not belong here, and a last queue file of only zeros, out of the directory; replace "
        "truncated files from a backup or a slave, and damaged configuration files from a backup",
    ),
    "start-endless": Kind(
        Severity.ERROR,
        "a range without a file, at which the broker would hang at its start",
        "the broker would open no port: no transaction is checked, committed or delivered",
        "restore the missing file from a backup or a slave",
    ),
    "start-cuts-log": Kind(
        Severity.ERROR,
        "records that the next start of the broker would cut off",
        "the broker ends the log before these records and overwrites them",
        "copy the store before the broker starts; rmqtx audit reads the records after the damage",
    ),
    "start-deletes-segment": Kind(
        Severity.ERROR,
        "a file of the commit log with records that the next start of the broker would delete",
        "all records in it would be lost permanently",
        "copy the store before the broker starts; rmqtx audit reads the records in the file",
    ),
    "start-leaves-out": Kind(
        Severity.ERROR,
        "a file of the commit log with records that the next start of the broker would not load",
        "the broker ends the log before this file, and overwrites the file when the log reaches it",
        "move files that do not belong here out of the directory; replace a file of another length from a backup or a "
        "slave",
    ),
    "start-deletes-queues": Kind(
        Severity.ERROR,
        "consume queues that the next start of the broker would delete, because there is no commit log",
        "the places of all records would be lost",
        "find the commit log in a backup or on a slave",
    ),
    "start-empties-queues": Kind(
        Severity.ERROR,
        "consume queues whose slots the next start of the broker would cut off, although the log has their records",
        "half messages without a slot are never checked, op messages are never read, and consumers receive none of the "
        "other messages",
        "copy the store before the broker starts; if its DLedger group has other members, start this one with an empty "
        "store: it copies the log of the others",
    ),
    "start-deletes-index": Kind(
        Severity.NOTE,
        "an index file that the next start of the broker would delete and rebuild only in part",
        "a search would no longer find older keys; the check of transactions does not use the index",
    ),
    "start-cuts-queue": Kind(
        Severity.WARNING,
        "consume-queue slots that the next start of the broker would cut off",
        "those that are not dispatched again afterwards are reported as start-skips",
        "rmqtx rebuild queues writes the queues again, in a copy of the store",
    ),
    "start-skips": Kind(
        Severity.ERROR,
        "records that would still have no slot in their consume queue after the next start of the broker",
        "no consumer receives them; half messages among them are never checked, op messages are never read",
        "rmqtx rebuild queues writes the queues again, in a copy of the store; a half message whose slot another "
        "record has: rmqtx resume appends it again (with -n HOST:PORT, on the running broker, where the numbers of the "
        "half queue began again)",
    ),
    "start-shifts": Kind(
        Severity.ERROR,
        "records that the next start of the broker would dispatch to another queue offset than their own",
        "op messages refer to half messages by queue offset: after the shift, an op message settles another half "
        "message",
        "do not start the broker on this store: rmqtx rebuild queues writes the queues again, in a copy of it",
    ),
    "start-adds-hole": Kind(
        Severity.WARNING,
        "slots without a record that the next start of the broker would add to a consume queue",
        "the next record of the queue gets the number after them; a read of these numbers finds nothing, and rmqtx "
        "verify reports them as slot-invalid from then on",
        "move the last file of the queue, which has only zeros, out of the directory before the broker starts",
    ),
    "start-enters": Kind(
        Severity.NOTE,
        "records without a consume-queue slot that the next start of the broker would dispatch",
        "they get their slots at the start; slot-missing and slot-pending are reported for them until then",
    ),
    "start-unforeseen": Kind(
        Severity.NOTE,
        "a store whose next start cannot be predicted",
        "what a broker would cut, skip or delete is unknown",
    ),
    "check-skips": Kind(
        Severity.ERROR,
        "slots of the half queue that lead to no half message, and that the check has not reached",
        "no half message with one of these numbers is checked, nor are those behind them that the check passes for the "
        "same reason: rmqtx audit lists them as LOST",
        "rmqtx rebuild queues writes the queue again, in a copy of the store",
    ),
    "check-max-unknown": Kind(
        Severity.ERROR,
        "a half message with more checks than the transactionCheckMax that is assumed",
        "the broker has a larger transactionCheckMax, so when its check discards half messages is not predicted",
        "add --broker-conf with the configuration of the broker",
    ),
    "start-hides-new": Kind(
        Severity.ERROR,
        "a half queue that leads behind the end of the log: the broker gives new half messages no slot in it",
        "a half message that is written before the log reaches this place is never checked; the check loses those that "
        "it puts back",
        "rmqtx rebuild queues writes the queue again, in a copy of the store",
    ),
    "start-differs": Kind(
        Severity.ERROR,
        "a store on which the next start and check depend on the release of the broker, which is not known",
        "the next events of open transactions are those of the newest possible release, or of one that stops its check",
        "add --broker-version with the release of the broker",
    ),
    "start-checks-again": Kind(
        Severity.NOTE,
        "decided transactions that the check reaches again after the next start of the broker",
        "the broker checks them again: an answer COMMIT delivers also what was delivered or rolled back",
        "rmqtx pending STORE --all-open lists them, rmqtx simulate STORE the rounds of the check; before the start: "
        "rmqtx close ID --store STORE --in-place --undo FILE",
    ),
    "stop-loses-ops": Kind(
        Severity.NOTE,
        "a running broker that keeps op messages in memory, and does not write the newest of them when it stops",
        "after the next start the broker checks again what was committed in this time; what was rolled back in this "
        "time is PENDING again without a trace",
        "before the stop: rmqtx drain -n NS --broker NAME; or disconnect the producers, wait twice this time, then "
        "rmqtx verify STORE",
    ),
}
