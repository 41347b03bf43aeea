"""Why a state is what it is: each reason by a stable code, with its sentence and one line on what it means.

Whatever depends on a reason asks for its code. The sentence is made of it at the end (`reasons.py`, which has what
stands in braces), with what is odd about the transaction behind it or where the sentence has `{oddities}`.
"""

from __future__ import annotations

from dataclasses import dataclass

_PREPARED = "prepared record at commit-log offset {half_offset}, neither COMMIT nor ROLLBACK record names it"
_NEXT_START = "; its broker did not stop cleanly, and the next start makes the state table anew: "
_ASKED = "; the broker asks for it: slot {open_slot} of the state table is open"
_OF_ROCKSDB = "half message at commit-log offset {half_offset}"
_OPEN_AS_FAR = " is open as far as the store tells: the RocksDB table "
_UNDECIDED = ", no op, no COMMIT record"
_COMMITTED = "COMMIT record at commit-log offset {final_offset}{half_of_final}{asked_by_slot}"


@dataclass(frozen=True, slots=True)
class ReasonCode:
    """Why transactions are in one state."""

    state: str
    sentence: str
    meaning: str


REASONS: dict[str, ReasonCode] = {
    "commit_record": ReasonCode("COMMITTED", _COMMITTED, "a COMMIT record names a copy of it, or bears its id"),
    "commit_record_table_unread": ReasonCode(
        "COMMITTED",
        _COMMITTED + "{oddities}; only the RocksDB table tells whether it will be asked again, and it is not there to "
        "be read",
        "a COMMIT record and no op message, and the RocksDB table that may still have its half was not read",
    ),
    "op_message": ReasonCode(
        "ROLLED_BACK",
        "op message at commit-log offset {mark_offset} ended half queue offset {marked_queue_offset}, no COMMIT record",
        "an op message names the queue offset of a copy of it",
    ),
    "rocksdb_op_message": ReasonCode(
        "ROLLED_BACK",
        "op message at commit-log offset {mark_offset} ended the half message at {marked_log_offset}, no COMMIT record",
        "an op message names the commit-log offset of its half in RocksDB",
    ),
    "rollback_record": ReasonCode(
        "ROLLED_BACK",
        "ROLLBACK record at commit-log offset {mark_offset} names the prepared record at {marked_log_offset}"
        "{half_of_mark}, no COMMIT record{asked_by_slot}",
        "a ROLLBACK record, which brokers before 4.3 wrote, names it",
    ),
    "check_to_come": ReasonCode(
        "PENDING",
        "half queue offset {newest_queue_offset} is not before the check cursor {check_cursor}" + _UNDECIDED,
        "the check still comes to its newest copy",
    ),
    "diverted": ReasonCode(
        "PENDING", "the half message was diverted by a delay and waits to come back to the half topic",
        "a delay or timer property diverted the half message, which comes back when its time is over",
    ),
    "copied_later": ReasonCode(
        "PENDING",
        "half queue offset {newest_queue_offset} was before the check then: it wrote another copy of it later",
        "a copy that is later than the time that is asked about shows that the check had it before it then",
    ),
    "prepared_refused_after_start": ReasonCode(
        "PENDING",
        _PREPARED + _NEXT_START + "it then asks for slot {open_slot}, the record's number is {half_number}, and every "
        "answer is refused, pending for ever",
        "the next start of its broker gives it another number than its record has: every answer is refused then",
    ),
    "prepared_refused": ReasonCode(
        "PENDING",
        _PREPARED + "; the broker asks for slot {open_slot} of the state table, and the record's number is "
        "{half_number}: every answer is refused, pending for ever",
        "the state table has it by another number than its record has: every answer is refused",
    ),
    "prepared_asked_after_start": ReasonCode(
        "PENDING", _PREPARED + _NEXT_START + "it then asks for slot {open_slot}, the record's own",
        "the next start of its broker makes the state table anew, and asks for it",
    ),
    "prepared_asked_renumbered": ReasonCode(
        "PENDING",
        _PREPARED + _ASKED + ", and a broker that did not stop cleanly numbers that table anew: it refuses answers to "
        "other numbers",
        "its slot of the state table is open, and the next start of its broker makes that table anew",
    ),
    "prepared_asked": ReasonCode("PENDING", _PREPARED + _ASKED, "its slot of the state table is open: it is asked for"),
    "prepared_was_asked": ReasonCode(
        "PENDING", _PREPARED + "; the broker asked for it: slot {decided_slot} of the state table was open",
        "as of the time that is asked about its slot of the state table was open",
    ),
    "prepared_commit_refused": ReasonCode(
        "PENDING", _PREPARED + "; brokers from 3.2 on never ask, those from 4.3 on refuse a commit: pending for ever",
        "a broker of 4.3.0 or later has it, which neither asks for it nor takes a commit of it",
    ),
    "prepared_forgotten_after_start": ReasonCode(
        "PENDING", _PREPARED + _NEXT_START + "it leaves this out, and nobody asks, pending for ever",
        "the next start of its broker makes the state table anew, without it",
    ),
    "prepared_table_damaged": ReasonCode(
        "PENDING", _PREPARED + "; whether the broker asks is not known: its state table is damaged",
        "the state table that tells whether it is asked for is damaged",
    ),
    "prepared_slot_decided": ReasonCode(
        "PENDING",
        _PREPARED + "; slot {decided_slot} of the state table is decided, and the log has no such record: nobody asks, "
        "pending for ever",
        "its slot of the state table says that it was decided, and no record does",
    ),
    "prepared_without_slot": ReasonCode(
        "PENDING", _PREPARED + "; no slot of the state table has it: nobody asks, pending for ever",
        "the state table does not have it",
    ),
    "prepared_table_unread": ReasonCode(
        "PENDING", _PREPARED + "; whether the broker asks is not known: its state table was not read",
        "the state table that tells whether it is asked for was not read",
    ),
    "prepared_never_asked": ReasonCode(
        "PENDING", _PREPARED + "; brokers of 3.2 to 4.2 never ask: pending for ever",
        "brokers of 3.2 to 4.2 have no check for prepared records",
    ),
    "rocksdb_in_table": ReasonCode(
        "PENDING", _OF_ROCKSDB + " is in the RocksDB table after {checks_made}" + _UNDECIDED,
        "the RocksDB table has its half",
    ),
    "rocksdb_not_dropped_yet": ReasonCode(
        "PENDING", _OF_ROCKSDB + " cannot have been dropped yet (the RocksDB table was not read)" + _UNDECIDED,
        "the RocksDB table was not read, and its half is younger than any that the check can have dropped",
    ),
    "rocksdb_table_empty": ReasonCode(
        "PENDING", _OF_ROCKSDB + _OPEN_AS_FAR + "has no half yet" + _UNDECIDED,
        "the RocksDB table has taken in no half yet",
    ),
    "rocksdb_behind_table": ReasonCode(
        "PENDING", _OF_ROCKSDB + _OPEN_AS_FAR + "ends at half {last_half_of_table}" + _UNDECIDED,
        "its half is later than the last one that the RocksDB table has taken in",
    ),
    "discard_copy": ReasonCode(
        "DISCARDED",
        "copy in TRANS_CHECK_MAX_TIME_TOPIC at commit-log offset {discard_offset} after {checks_count} checks",
        "a discard copy shows that the broker gave up on it",
    ),
    "dropped_without_copy": ReasonCode(
        "DISCARDED", "checked {newest_checks_count} times, then dropped by the check (no copy, as before 4.5.2)",
        "it had all its checks, and its broker writes no discard copy",
    ),
    "rocksdb_dropped": ReasonCode(
        "DISCARDED",
        _OF_ROCKSDB + " is not in the RocksDB table, which ends at half {last_half_of_table}: the broker dropped it "
        "and wrote no copy",
        "the RocksDB table had its half and has it no longer",
    ),
    "check_passed": ReasonCode(
        "LOST",
        "every copy, the newest at half queue offset {newest_queue_offset}, lies before the check cursor "
        "{check_cursor}: no op, no COMMIT record, no discard copy",
        "the check is behind all its copies, and nothing says that it was ended or given up on",
    ),
    "rocksdb_never_known": ReasonCode(
        "LOST",
        _OF_ROCKSDB + " lacks __transactionId__ or REAL_TOPIC: it never comes into the RocksDB table, and nobody asks",
        "its half lacks a property without which the RocksDB table does not take it in",
    ),
    "cursor_unknown": ReasonCode(
        "UNDECIDABLE", "the check cursor is unknown ({what})", "the check cursor alone decides it, and is not known"
    ),
    "rocksdb_in_the_past": ReasonCode(
        "UNDECIDABLE", "the RocksDB table has no history: as of a past time only it could decide it",
        "the RocksDB table of that time alone decides it, and the one of today is there",
    ),
    "rocksdb_of_slave": ReasonCode(
        "UNDECIDABLE", "it is not in the RocksDB table of this slave, which drops what its master may still ask for",
        "a slave's RocksDB table does not tell what its master has",
    ),
    "cursor_in_the_past": ReasonCode(
        "UNDECIDABLE", "cursors have no history: as of a past time only they could decide it",
        "the check cursor of that time alone decides it, and the one of today is there",
    ),
    "log_begins_later": ReasonCode(
        "UNDECIDABLE", "the log begins later: earlier copies and what may have decided them are gone",
        "the first copy that is left is no original: what came before it has left the log",
    ),
    "op_doubtful": ReasonCode(
        "UNDECIDABLE", "its op number may as well belong to a decision on another record",
        "a decision on a record outside the half topic may be the reason of its op mark",
    ),
    "log_missing": ReasonCode(
        "UNDECIDABLE", "bytes of the log are missing: {what}", "a record that decides it may stand in missing bytes"
    ),
    "end_damaged": ReasonCode(
        "UNDECIDABLE", "{what}", "a COMMIT, ROLLBACK or op record with a damaged name may be its end"
    ),
    "id_damaged": ReasonCode(
        "UNDECIDABLE", "only {what}, is of it: that id is damaged",
        "only records with a damaged id are of it: the index has them by another one",
    ),
    "id_perhaps_damaged": ReasonCode(
        "UNDECIDABLE", "it may be what {what}, is of", "a record with a damaged id may be of it, by the index"
    ),
    "ended_beside_log": ReasonCode(
        "UNDECIDABLE", "the state table or the redo log says that a record ended it, and the log has no such record",
        "state table or redo log say that it was decided, and the log does not",
    ),
    "rocksdb_table_unread": ReasonCode(
        "UNDECIDABLE", "only the RocksDB table tells open from dropped, and it is not there to be read",
        "nothing decided it, and the RocksDB table that tells whether its broker still has it was not read",
    ),
}
NUMBERS = {code: number for number, code in enumerate(REASONS)}
#: The number of no code.
NO_CODE = -1
