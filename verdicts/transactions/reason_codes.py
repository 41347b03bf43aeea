"""The reasons of states: for each code, which is stable, its sentence and one line that explains it.

Rules use the code. `reasons.py` makes the sentence from it at the end and fills in the values in braces; clauses about
the transaction's flags follow the sentence, or stand at `{clauses}`.
"""

from __future__ import annotations

from dataclasses import dataclass

from rmqtx.verdicts.model.verdict_words import State

_PREPARED = "prepared record at commit-log offset {half_offset}, named by no COMMIT and no ROLLBACK record"
_NEXT_START = "; its broker did not stop cleanly, and the next start rebuilds the state table: "
_ASKED = "; the broker checks it: slot {open_slot} of the state table is open"
_NEVER = "the broker never checks it, permanently pending"
_OF_ROCKSDB = "half message at commit-log offset {half_offset}"
_OPEN_AS_FAR = " is open as far as the store shows: the RocksDB table "
_UNDECIDED = ", no op message, no COMMIT record"
_COMMITTED = "COMMIT record at commit-log offset {final_offset}{half_of_final}{asked_by_slot}"


@dataclass(frozen=True, slots=True)
class ReasonCode:
    """Why transactions are in one state."""

    state: State
    sentence: str
    meaning: str


REASONS: dict[str, ReasonCode] = {
    "commit_record": ReasonCode(State.COMMITTED, _COMMITTED, "a COMMIT record names a copy of it, or has its id"),
    "commit_record_table_unread": ReasonCode(
        State.COMMITTED,
        _COMMITTED + "{clauses}; only the RocksDB table shows whether it will be checked again, and the table was not "
        "read",
        "a COMMIT record and no op message, and the RocksDB table that may still contain its half was not read",
    ),
    "op_message": ReasonCode(
        State.ROLLED_BACK,
        "op message at commit-log offset {mark_offset} ended half queue offset {marked_queue_offset}, no COMMIT record",
        "an op message names the queue offset of a copy of it",
    ),
    "rocksdb_op_message": ReasonCode(
        State.ROLLED_BACK,
        "op message at commit-log offset {mark_offset} ended the half message at {marked_log_offset}, no COMMIT record",
        "an op message names the commit-log offset of its half in RocksDB",
    ),
    "rollback_record": ReasonCode(
        State.ROLLED_BACK,
        "ROLLBACK record at commit-log offset {mark_offset} names the prepared record at {marked_log_offset}"
        "{half_of_mark}, no COMMIT record{asked_by_slot}",
        "a ROLLBACK record, which brokers before 4.3 wrote, names it",
    ),
    "check_to_come": ReasonCode(
        State.PENDING,
        "half queue offset {newest_queue_offset} is at or after the check cursor {check_cursor}" + _UNDECIDED,
        "the check will still reach its newest copy",
    ),
    "diverted": ReasonCode(
        State.PENDING, "a delay diverted the half message, which has not returned to the half topic yet",
        "a delay or timer property diverted the half message, which returns when its time is over",
    ),
    "copied_later": ReasonCode(
        State.PENDING,
        "the check had not reached half queue offset {newest_queue_offset} yet at that time: it wrote another copy "
        "later",
        "a copy that was written after the given time shows that the check had not reached the transaction yet",
    ),
    "prepared_refused_after_start": ReasonCode(
        State.PENDING,
        _PREPARED + _NEXT_START + "the record then has slot {open_slot} instead of its number {half_number}, and the "
        "broker refuses every answer: permanently pending",
        "the next start of its broker gives it another number than its record has: every answer is refused then",
    ),
    "prepared_refused": ReasonCode(
        State.PENDING,
        _PREPARED + "; the record has slot {open_slot} of the state table instead of its number {half_number}, and the "
        "broker refuses every answer: permanently pending",
        "its number in the state table is not the number of its record: every answer is refused",
    ),
    "prepared_asked_after_start": ReasonCode(
        State.PENDING, _PREPARED + _NEXT_START + "the broker then checks slot {open_slot}, the record's own",
        "the next start of its broker rebuilds the state table, and the broker checks it then",
    ),
    "prepared_asked_renumbered": ReasonCode(
        State.PENDING,
        _PREPARED + _ASKED + ", and a broker that did not stop cleanly renumbers that table: it refuses answers with "
        "other numbers",
        "its slot of the state table is open, and the next start of its broker rebuilds that table",
    ),
    "prepared_asked": ReasonCode(
        State.PENDING, _PREPARED + _ASKED, "its slot of the state table is open: the broker checks it"
    ),
    "prepared_was_asked": ReasonCode(
        State.PENDING, _PREPARED + "; the broker checked it: slot {decided_slot} of the state table was open",
        "at the given time its slot of the state table was open",
    ),
    "prepared_commit_refused": ReasonCode(
        State.PENDING,
        _PREPARED + "; brokers from 3.2 on never check it, those from 4.3 on refuse a commit: permanently pending",
        "its broker is 4.3.0 or later, which neither checks it nor accepts a commit of it",
    ),
    "prepared_forgotten_after_start": ReasonCode(
        State.PENDING, _PREPARED + _NEXT_START + "the new table lacks this record, and " + _NEVER,
        "the next start of its broker rebuilds the state table without it",
    ),
    "prepared_table_damaged": ReasonCode(
        State.PENDING, _PREPARED + "; whether the broker checks it is unknown: its state table is damaged",
        "the state table that shows whether the broker checks it is damaged",
    ),
    "prepared_slot_decided": ReasonCode(
        State.PENDING,
        _PREPARED + "; slot {decided_slot} of the state table is decided, but the log has no record of the decision: "
        + _NEVER,
        "its slot of the state table is decided, and no record in the log is its decision",
    ),
    "prepared_without_slot": ReasonCode(
        State.PENDING, _PREPARED + "; the state table has no slot for it: " + _NEVER,
        "the state table has no slot for it",
    ),
    "prepared_table_unread": ReasonCode(
        State.PENDING, _PREPARED + "; whether the broker checks it is unknown: its state table was not read",
        "the state table that shows whether the broker checks it was not read",
    ),
    "prepared_never_asked": ReasonCode(
        State.PENDING, _PREPARED + "; brokers of 3.2 to 4.2 never check it: permanently pending",
        "brokers of 3.2 to 4.2 have no check for prepared records",
    ),
    "rocksdb_in_table": ReasonCode(
        State.PENDING, _OF_ROCKSDB + " is in the RocksDB table after {checks_made}" + _UNDECIDED,
        "the RocksDB table contains its half",
    ),
    "rocksdb_not_dropped_yet": ReasonCode(
        State.PENDING, _OF_ROCKSDB + " cannot have been dropped yet (the RocksDB table was not read)" + _UNDECIDED,
        "the RocksDB table was not read, and its half is too young to have been dropped by the check",
    ),
    "rocksdb_table_empty": ReasonCode(
        State.PENDING, _OF_ROCKSDB + _OPEN_AS_FAR + "contains no half yet" + _UNDECIDED,
        "the broker has not written any half into the RocksDB table yet",
    ),
    "rocksdb_behind_table": ReasonCode(
        State.PENDING, _OF_ROCKSDB + _OPEN_AS_FAR + "ends at half {last_half_of_table}" + _UNDECIDED,
        "its half is later than the last one that the broker has written into the RocksDB table",
    ),
    "discard_copy": ReasonCode(
        State.DISCARDED,
        "copy in TRANS_CHECK_MAX_TIME_TOPIC at commit-log offset {discard_offset} after {checks_count} checks",
        "a discard copy shows that the broker discarded it",
    ),
    "dropped_without_copy": ReasonCode(
        State.DISCARDED,
        "checked {newest_checks_count} times, then dropped by the check (without a copy, as before 4.5.2)",
        "it had all its checks, and its broker writes no discard copy",
    ),
    "rocksdb_dropped": ReasonCode(
        State.DISCARDED,
        _OF_ROCKSDB + " is not in the RocksDB table, which ends at half {last_half_of_table}: the broker dropped it "
        "and wrote no copy",
        "the RocksDB table contained its half and no longer contains it",
    ),
    "check_passed": ReasonCode(
        State.LOST,
        "all its copies lie before the check cursor {check_cursor}, the newest at half queue offset "
        "{newest_queue_offset}: no op message, no COMMIT record, no discard copy",
        "the check has passed all its copies, and no decision and no discard is recorded",
    ),
    "slot_unread": ReasonCode(
        State.LOST,
        "the check never reads its newest copy, half queue offset {newest_queue_offset}: no slot that the check reads "
        "leads to it; no op message, no COMMIT record, no discard copy",
        "its slot of the half queue is a filler, or the store skips its slot behind a slot without a record",
    ),
    "without_slot": ReasonCode(
        State.LOST,
        "no slot of the half queue leads to half queue offset {newest_queue_offset} at commit-log offset "
        "{newest_offset}: the check never reads it",
        "no slot of the half queue leads to its newest copy, and the broker does not dispatch it again: the slot with "
        "its queue offset belongs to another half message, will belong to the next one, or is a filler",
    ),
    "hidden_by_number": ReasonCode(
        State.LOST,
        "the check skips half queue offset {newest_queue_offset} at commit-log offset {newest_offset}: the op message "
        "at {hiding_offset} names slot {newest_slot} and was written for another half message",
        "an op message that was written for another half message names its slot: the check never asks about it",
    ),
    "rocksdb_never_known": ReasonCode(
        State.LOST,
        _OF_ROCKSDB + " lacks __transactionId__ or REAL_TOPIC: the broker does not write it into the RocksDB table and "
        "never checks it",
        "its half lacks a property that the broker needs to write it into the RocksDB table",
    ),
    "cursor_unknown": ReasonCode(
        State.UNDECIDABLE, "the check cursor is unknown ({what})", "only the check cursor decides it, and it is unknown"
    ),
    "rocksdb_in_the_past": ReasonCode(
        State.UNDECIDABLE, "only the RocksDB table of that time could decide it, and the table has no history",
        "only the RocksDB table of the given time decides it, and only today's exists",
    ),
    "rocksdb_of_slave": ReasonCode(
        State.UNDECIDABLE, "it is not in the RocksDB table of this slave, which drops what its master may still check",
        "the RocksDB table of a slave does not show what its master has",
    ),
    "cursor_in_the_past": ReasonCode(
        State.UNDECIDABLE, "only the cursors of that time could decide it, and cursors have no history",
        "only the check cursor of the given time decides it, and only today's exists",
    ),
    "log_begins_later": ReasonCode(
        State.UNDECIDABLE, "the log begins later: earlier copies, and what may have decided them, have left the log",
        "the first copy that is left is not the original: earlier records have left the log",
    ),
    "op_doubtful": ReasonCode(
        State.UNDECIDABLE, "its op mark may belong to a decision on another record",
        "a decision on a record outside the half topic may have written its op mark",
    ),
    "op_of_several": ReasonCode(
        State.UNDECIDABLE, "{what}, which several half messages have: it may be the decision of another one",
        "an op message names a half queue offset that several undecided half messages have",
    ),
    "id_of_several_logs": ReasonCode(
        State.UNDECIDABLE,
        "its id is only the address of a broker and a place in its log, and unrelated logs have records there: {what}; "
        "give each store alone",
        "its id, of a design before 4.3, is only the address of a broker and a place in its log, and records in "
        "unrelated logs have it",
    ),
    "id_of_uncompared_logs": ReasonCode(
        State.UNDECIDABLE,
        "its id is only the address of a broker and a place in its log, and records of {what} have it: their logs have "
        "no part in common, so whether one broker wrote both is unknown; give a store too that has parts of both logs, "
        "or each store alone",
        "its id, of a design before 4.3, is only the address of a broker and a place in its log, and records have it "
        "in logs without a common part: whether one broker wrote them is unknown",
    ),
    "slot_unknown": ReasonCode(
        State.UNDECIDABLE,
        "several half messages have half queue offset {newest_queue_offset}, and which of them the check will read is "
        "unknown: the store has no half queue in files",
        "several half messages have its half queue offset, and no half queue was read",
    ),
    "log_missing": ReasonCode(
        State.UNDECIDABLE, "bytes of the log are missing: {what}", "missing bytes may contain a record that decides it"
    ),
    "end_damaged": ReasonCode(
        State.UNDECIDABLE, "{what}", "a COMMIT, ROLLBACK or op record with a damaged reference may have ended it"
    ),
    "id_damaged": ReasonCode(
        State.UNDECIDABLE, "this id is damaged: it occurs only in {what}",
        "only records with a damaged id have this id: the index has another id for them",
    ),
    "id_perhaps_damaged": ReasonCode(
        State.UNDECIDABLE, "{what}, may belong to it", "by the index, a record with a damaged id may belong to it"
    ),
    "ended_beside_log": ReasonCode(
        State.UNDECIDABLE,
        "the state table or the redo log shows that a record ended it, and the log has no such record",
        "by the state table or the redo log it is decided, by the log it is not",
    ),
    "rocksdb_table_unread": ReasonCode(
        State.UNDECIDABLE, "only the RocksDB table shows whether it is open or dropped, and the table was not read",
        "nothing decided it, and the RocksDB table that shows whether its broker still has it was not read",
    ),
}
NUMBERS = {code: number for number, code in enumerate(REASONS)}
#: The number of no code.
NO_CODE = -1

#: Reasons of pending transactions for which their broker has no check; the flag `never_asked` is for those that a check
#: does not reach.
WITHOUT_CHECK = ("prepared_never_asked", "prepared_commit_refused")
