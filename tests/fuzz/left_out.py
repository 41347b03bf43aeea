"""Why an audit, or a list of open transactions, may lack a finding of a verification: in this very case no transaction
depends on what was found.

Each reason examines the case: the damaged store, the finding, the rows before and after the damage. No code is left out
as such. docs/fuzz.md counts how often each reason was needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqtx.readers.cursors import check_cursors
from rmqtx.readers.log.designs import ROCKSDB, designs_of
from rmqtx.readers.rocksdb.rocksdb_transactions import DIRECTORY
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, Store
from tests.forge.comparing import EVIDENCE

if TYPE_CHECKING:
    from tests.fuzz.heeded import Answer

Row = dict[str, Any]
SLOT_BYTES = 20
#: Topics whose queues the check reads.
#: The check of transactions in RocksDB reads their database, and no queue.
_CHECKED = (HALF_TOPIC, OP_TOPIC)
_OF_SLOTS = ("slot-invalid", "slot-dangling", "slot-mismatch", "slot-missing", "slot-duplicate", "queue-gap")
_OF_QUEUES = (
    *_OF_SLOTS, "queue-missing", "group-cursor-beyond-end", "start-skips", "start-cuts-queue", "start-shifts",
    "start-adds-hole", "start-empties-queues",
)
_CUTS = ("start-cuts-log", "start-deletes-segment", "start-leaves-out")
_OF_ONE_RECORD = ("record-properties", "record-body-crc", "record-property-crc", "record-header")


@dataclass(frozen=True)
class Compared:
    """A damaged store, before and after: the answer of `which` (audited or pended), and what `verify` finds now."""

    base_store: Store
    store: Store
    which: str
    before: Answer
    after: Answer
    audited: Answer
    verified: tuple[Row, ...]
    is_audit_incomplete: bool

    @property
    def is_same(self) -> bool:
        """Whether the damage changed no row."""
        return self.before.rows == self.after.rows

    @property
    def has_same_fates(self) -> bool:
        """Whether the damage changed no state, and nothing that happens next."""
        return _fates(self.before.rows) == _fates(self.after.rows)

    @property
    def changed(self) -> set[str]:
        """The ids of the transactions whose rows the damage changed."""
        names = {*self.before.rows, *self.after.rows}
        return {name for name in names if self.before.rows.get(name) != self.after.rows.get(name)}

    def concerned(self, offset: int | None, end: int | None = None) -> set[str]:
        """The ids of the transactions with a record at an offset of the log, or from there to another one."""
        if offset is None:
            return set()
        last = offset + 1 if end is None else end
        rows = {**self.before.rows, **self.after.rows}
        return {name for name, row in rows.items() if any(offset <= place < last for place in _places(row))}


@dataclass(frozen=True)
class Reason:
    """A reason. `holds`: whether it does, for a finding in a case."""

    name: str
    why: str
    holds: Callable[[Compared, Row], bool]


def _fates(rows: dict[str, Row]) -> dict[str, list[Any]]:
    names = ("state", "flags", "reason_code", "advice", "next_event", "answer_effect")
    return {identity: [row[name] for name in names] for identity, row in rows.items()}


def _places(row: Row) -> set[int]:
    return {entry["commit_log_offset"] for name in EVIDENCE for entry in row[name]}


def _of_index(case: Compared, row: Row) -> bool:
    return row["code"].startswith("index-") and case.has_same_fates


def _of_times(case: Compared, row: Row) -> bool:
    return row["code"] == "checkpoint-damaged" and case.has_same_fates


def _of_another_record(case: Compared, row: Row) -> bool:
    return row["code"] in _OF_ONE_RECORD and case.is_same and not case.concerned(row["commit_log_offset"])


def _of_a_body(case: Compared, row: Row) -> bool:
    return row["code"] == "record-body-crc" and case.is_same


def _of_consumers(case: Compared, row: Row) -> bool:
    return row["code"] in _OF_QUEUES and not _is_of_check(row) and case.has_same_fates


def _of_tags(case: Compared, row: Row) -> bool:
    return row["code"] == "slot-tags-mismatch" and case.is_same


def _of_passed_slots(case: Compared, row: Row) -> bool:
    """The slots before a cursor have been read; after a kill the cursor is where the check goes on, too."""
    if row["code"] not in _OF_SLOTS or not case.is_same:
        return False
    number = _slot_of(row)
    cursors = check_cursors(case.store)
    cursor = ((cursors.half if HALF_TOPIC in _text(row) else cursors.op) or {}).get(0, 0)
    return number is not None and number < cursor


def _of_written_again(case: Compared, row: Row) -> bool:
    if row["code"] not in (*_OF_SLOTS, "queue-missing", "start-cuts-queue") or not case.store.aborted:
        return False
    lasting = ("start-skips", "start-shifts", "start-adds-hole", "start-unforeseen")
    return case.is_same and not any(
        (one["code"] in lasting and _is_of_check(one)) or one["code"] == "start-unforeseen" for one in case.verified
    )


def _of_settings(case: Compared, row: Row) -> bool:
    """Cursors that cannot be read are a finding of an audit too, whose rows then differ."""
    is_other = "onsumerOffset" not in str(row["file"])
    if row["code"] == "database-unread":
        is_other = "config" in Path(str(row["file"])).parts and "consumerOffsets" not in str(row["file"])
    return row["code"] in ("config-damaged", "config-backup", "database-unread") and is_other and case.is_same


def _of_an_unused_database(case: Compared, row: Row) -> bool:
    is_it = row["code"] == "database-unread" and Path(str(row["file"])).name == DIRECTORY
    return is_it and case.is_same and all(seen.word != ROCKSDB for seen in designs_of(case.store))


def _in_its_rows(case: Compared, row: Row) -> bool:
    """The transactions with records there have other rows now."""
    offset = row["commit_log_offset"]
    end = 1 << 62 if row["code"] in _CUTS else None
    concerned = case.concerned(offset, end)
    return bool(concerned) and concerned <= case.changed


def _of_a_cut_without_transactions(case: Compared, row: Row) -> bool:
    return row["code"] in _CUTS and case.is_same and not case.concerned(row["commit_log_offset"], 1 << 62)


def _of_other_slots(case: Compared, row: Row) -> bool:
    """Slots of consumers in RocksDB: those of the check are read by an audit too, and reported."""
    is_of_queues = Path(str(row["file"])).name.startswith("consumequeue")
    return row["code"] == "database-unread" and is_of_queues and case.is_same


def _of_replicas(case: Compared, row: Row) -> bool:
    return row["code"] == "epochs-damaged" and case.is_same


def _of_what_only_an_audit_reads(case: Compared, row: Row) -> bool:
    """`pending` does not read the whole log, nor what the check has passed; an audit does, and has the finding."""
    if case.which != "pended" or not case.is_same:
        return False
    return row["code"] in case.audited.codes or case.is_audit_incomplete


REASONS = (
    Reason("index", "no start and no check reads the index, and no state or event differs", _of_index),
    Reason("times", "a start takes from the checkpoint where it begins to read; what the start then does is predicted, "
           "and compared too; no state or event differs", _of_times),
    Reason("another record", "no transaction has this record, and no row differs", _of_another_record),
    Reason("body", "no state and no event depends on the body of this record; where the next start reads it, "
           "start-cuts-log is compared too; no row differs", _of_a_body),
    Reason("queue of consumers", "the check reads only half queue and op queue, or a database in place of them, and no "
           "state or event differs",
           _of_consumers),
    Reason("tags code", "brokers compare the tags code of a slot with filters of consumers (in delay topics it is the "
           "time), and the check reads none; no row differs", _of_tags),
    Reason("slots before the cursor", "the check has passed them, and no row differs", _of_passed_slots),
    Reason("written again", "the next start after a kill writes these slots again, as predicted; no row differs",
           _of_written_again),
    Reason("settings", "topics, groups and delays: no rule for transactions reads them; a start that fails because of "
           "them is start-refused, and compared too; no row differs", _of_settings),
    Reason("slots of consumers in RocksDB", "an audit reads the slots of the check, and no row differs",
           _of_other_slots),
    Reason("unused database", "no half message of the log is of transactions in RocksDB, and no row differs",
           _of_an_unused_database),
    Reason("in its rows", "each transaction with a record there has another row now", _in_its_rows),
    Reason("cut without transactions", "no record of a transaction lies behind the cut, and no row differs",
           _of_a_cut_without_transactions),
    Reason("only an audit reads it", "the audit reports it, and no row of the open transactions differs",
           _of_what_only_an_audit_reads),
    Reason("replicas", "the epochs decide which replica may write; no row differs", _of_replicas),
)


def _is_of_check(row: Row) -> bool:
    return row["code"] == "check-stopped" or any(topic in _text(row) for topic in _CHECKED)


def _text(row: Row) -> str:
    return f"{row['file']} {row['expected']}"


def _slot_of(row: Row) -> int | None:
    """The last slot that a finding is about; None if it does not name one."""
    missing = re.match(r"slot (\d+) of queue \d+ of [^,]+(?:, and of (\d+) more)?", str(row["expected"]))
    if missing is not None:
        return int(missing[1]) + int(missing[2] or 0)
    name = Path(row["file"] or "").name
    if not name.isdecimal() or row["position_bytes"] is None or "consumequeue" not in row["file"]:
        return None
    return (int(name) + int(row["position_bytes"]) + max(int(row["length_bytes"] or 1) - 1, 0)) // SLOT_BYTES
