"""Findings about half messages, ops and decisions."""

from __future__ import annotations

from rmqtx.readers.finding_kinds.kind import Kind, Severity

KINDS: dict[str, Kind] = {
    "copies-contradict": Kind(
        Severity.ERROR,
        "two different records for the same place in the log",
        "the record with a sound body was used; if both are sound, the record from the longer run of records; the "
        "other record does not count for its transaction",
        "compare both records: rmqtx decode commitlog",
        hides_records=True,
    ),
    "end-names-nothing": Kind(
        Severity.ERROR,
        "a COMMIT, ROLLBACK or op record whose reference leads to no half message of its transaction",
        "the reference is damaged (no checksum covers it): the record is not listed as a transaction, and what it may "
        "have ended is UNDECIDABLE",
        "compare with the same record on a slave",
        hides_records=True,
    ),
    "words-contradict": Kind(
        Severity.ERROR,
        "an id, group, topic or name that another part of the record, another record of the transaction or the index "
        "contradicts",
        "no checksum covers ids, groups, topics and names: one of the two is damaged; if more records of the "
        "transaction exist, the id that most of them have is used",
        "compare with the same records on a slave",
        hides_records=True,
    ),
    "half-unreadable": Kind(
        Severity.ERROR,
        "a half message, or a discard copy of one, whose properties cannot be read",
        "its transaction may be unknown; if it may be the newest copy of a known transaction, that one is UNDECIDABLE",
        "compare with the same record on a slave",
        hides_records=True,
    ),
    "op-unreadable": Kind(
        Severity.ERROR,
        "an op message whose body is not a list of numbers, or whose CRC is wrong",
        "which transactions it ended is unknown; the check skips it or stops at it",
        "compare with the same record on a slave",
    ),
    "trace-unreadable": Kind(
        Severity.WARNING,
        "a record of a message trace that cannot be read, or lines of it",
        "what the producer wrote there about its decisions is unknown; no state depends on it",
        "rmqtx decode commitlog STORE --topic TRACE_TOPIC --body text --decompress shows the record",
    ),
    "traces-unread": Kind(
        Severity.ERROR,
        "message traces that were not searched for what producers decided",
        "causes that a trace would explain, and decisions of producers in a timeline, may be missing; no state depends "
        "on them",
        "rmqtx decode trace STORE reads the whole log; rmqtx rebuild index STORE --to NEW makes the index again",
    ),
    "half-number-taken": Kind(
        Severity.ERROR,
        "half messages whose half queue offset does not identify them: several have the same one, or their slots have "
        "other numbers",
        "the check reads slots and compares their numbers with op messages: it reads only one of the half messages "
        "with a number, and an op message settles that one, whichever it was written for",
        "rmqtx audit lists the transactions with the flags number_shared and number_taken; rmqtx resume appends "
        "a lost half message again, in a slot of its own (with -n HOST:PORT, on the running broker, where the numbers "
        "of the half queue began again)",
    ),
    "logs-differ": Kind(
        Severity.ERROR,
        "two copies of one broker's log with different records at the same offsets",
        "the copies have different histories from there on: one of them wrote on after a failover, or after its log "
        "was cut; after a failover only one history remains, and the transactions of the other are gone",
        "rmqtx diff lists the transactions that only one of the two has",
    ),
    "logs-share-ids": Kind(
        Severity.ERROR,
        "transactions of two logs with one id",
        "an id of the designs before 4.3 is only the address of a broker and a place in its log, and the brokers of "
        "both logs had one address: given together, these transactions are UNDECIDABLE",
        "give each of the stores alone",
    ),
    "copy-lacks-pending": Kind(
        Severity.WARNING,
        "pending transactions that a copy of the broker's log does not have",
        "a failover to this copy loses them: their half messages were not copied, or the log of the copy begins later",
        "rmqtx diff lists them",
    ),
    "op-without-effect": Kind(
        Severity.ERROR,
        "an op message that settles no half message: it lacks the tag of op messages, or lists no number",
        "the check passes over it, and checks the half messages that it was written for again: an answer COMMIT "
        "delivers also what was rolled back",
        "compare with the same record on a slave",
    ),
    "half-changed": Kind(
        Severity.WARNING,
        "rmqtx is changing the store, or was interrupted during a change",
        "the store may contain half of the change: neither the state before nor the state after it",
        "the file named here contains the path of the undo file: rmqtx undo UNDO_FILE restores the store, with "
        "--resume it completes the change",
    ),
    "check-stopped": Kind(
        Severity.ERROR,
        "a message at which every round of the broker's check ends",
        "earlier half messages are handled again in each round: those that are checked are delivered again by each "
        "COMMIT answer, those that are too old are discarded again; later half messages are never checked",
        "rmqtx pending STORE prints the commands that let the check continue",
    ),
    "undecidable": Kind(
        Severity.ERROR,
        "transactions whose state cannot be determined from this store",
        "they are not listed as pending, but may be pending",
        "rmqtx audit lists each transaction with its reason",
    ),
    "older-design": Kind(
        Severity.NOTE,
        "prepared or rollback records of RocketMQ before 4.3 in the log",
        "brokers from 3.2 on do not check the open ones, and brokers from 4.3 on do not commit them",
        "rmqtx pending lists the open ones",
    ),
    "ops-unreadable": Kind(
        Severity.ERROR,
        "a live broker that does not serve its op queue (4.3.0)",
        "rolled back and open transactions cannot be distinguished: they are UNDECIDABLE",
        "read the store's files",
    ),
    "copies-missing": Kind(
        Severity.WARNING,
        "earlier half copies of a transaction that the broker's index does not return",
        "its evidence is incomplete: an op mark on one of them is not seen",
        "run the command again in a moment; if the result is the same, read the store's files",
    ),
    "foreign-unsearched": Kind(
        Severity.NOTE,
        "could not search for decisions on records outside the half topic",
        "an op mark that belongs to another record would count as a rollback",
    ),
}
