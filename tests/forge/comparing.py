"""The conditions that hold after one record was damaged; each violation is a sentence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.log.record_layout import AT, BORN_V6, COMMIT, MAGIC_V2, RECORD, STORE_V6, TRANSACTION_MASK
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.reading import Coverage
from rmqtx.readers.model.tables import FUTURE_COLUMNS
from rmqtx.readers.store.store import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.evidence.store_facts import SettingsOf

Row = dict[str, Any]
EVIDENCE = ("half_copies", "op_marks", "final_records", "discard_copies")
COLUMNS = [
    "file", "position_bytes", "length_bytes", "commit_log_offset", "topic", "queue_id", "queue_offset", "sys_flag",
    "born_time_ms", "store_time_ms", "born_host", "message_id", "prepared_transaction_offset", "properties",
]


def kind_of(record: Row) -> str:
    """half, op, discard, final or ordinary."""
    topics = {HALF_TOPIC: "half", OP_TOPIC: "op", DISCARD_TOPIC: "discard"}
    is_final = record["sys_flag"] & TRANSACTION_MASK == COMMIT
    return topics.get(record["topic"], "final" if is_final else "ordinary")


#: Flags about what the broker does next, which any damage on its way can change.
_NEXT_FLAGS = {"never_asked", "expired", "expires_soon", "open_after_decision"}


def recorded(row: Row) -> Row:
    """A row without what the broker does next: a start can refuse, or cut off, what its store has recorded."""
    left = {name: value for name, value in row.items() if name not in (*FUTURE_COLUMNS, "advice", "reason", "causes")}
    return left | {"flags": [flag for flag in row["flags"] if flag not in _NEXT_FLAGS]}


def cited(row: Row) -> set[int]:
    """Commit-log offsets of the records that are evidence for a verdict."""
    return {entry["commit_log_offset"] for name in EVIDENCE for entry in row[name]}


@dataclass
class Reading:
    """The contents of a store, read once: records by offset, transactions by id."""

    records: dict[int, Row]
    transactions: dict[str, Row]
    coverage: list[Coverage]
    findings: list[Finding]

    @staticmethod
    def of(root: Path, settings: SettingsOf) -> Reading:
        store = open_store(root)
        scan = scan_records(store, columns=COLUMNS)
        records = {row["commit_log_offset"]: row for row in scan.table().to_pylist()}
        verdicts = audit([store], settings)
        # Deadlines depend on the rounds of the check, which any damage may change.
        rows = verdicts.table().drop_columns(list(FUTURE_COLUMNS)).to_pylist()
        assert [vars_of(part) for part in verdicts.coverage] == [vars_of(part) for part in scan.coverage]
        return Reading(
            records, {row["transaction_id"]: row for row in rows}, verdicts.coverage, verdicts.findings
        )

    def at(self, offset: int) -> Row:
        """The record at a commit-log offset."""
        return self.records[offset]


def vars_of(coverage: Coverage) -> tuple[object, ...]:
    """A coverage as a value that can be compared."""
    return (
        coverage.file, coverage.size_bytes, coverage.decoded_bytes, coverage.filler_bytes, coverage.damaged_bytes
    )


@dataclass
class Comparison:
    """One damage to some records of a store that was read before, and the violations."""

    before: Reading
    after: Reading
    touched: set[int]
    violations: list[str] = field(default_factory=list)

    def all(self) -> list[str]:
        """Every violation."""
        self._coverage()
        self._other_records()
        self._transactions()
        return self.violations

    def _coverage(self) -> None:
        damaged = sum(part.damaged_bytes for part in self.after.coverage)
        allowed = sum(self.before.records[offset]["length_bytes"] for offset in self.touched)
        if damaged > allowed:
            self.violations.append(f"coverage: {damaged} bytes are damaged, the records had {allowed}")
        if any(part.unread_bytes for part in self.after.coverage):
            self.violations.append(f"coverage: unread bytes {self.after.coverage}")

    def _other_records(self) -> None:
        for offset, record in self.before.records.items():
            if offset not in self.touched and self.after.records.get(offset) != record:
                self.violations.append(f"record {offset}: {self.after.records.get(offset)} is not {record}")
        for offset in self.after.records.keys() - self.before.records.keys():
            self.violations.append(f"record {offset} was never written")

    def _transactions(self) -> None:
        for identity, row in self.before.transactions.items():
            now = self.after.transactions.get(identity)
            if not cited(row) & self.touched:
                # The record may have been its COMMIT.
                kept = (recorded(row), recorded(row | {"deliveries_count": None}))
                if now is None or recorded(now) not in kept:
                    self.violations.append(f"other transaction {identity}: {_changes(row, now)}")
            elif now is None:
                if not self._is_renamed(row):
                    self.violations.append(f"state: {identity} was {row['state']}, is gone")
            elif now["state"] == "UNDECIDABLE":
                if row["state"] != "UNDECIDABLE" and not any(letter.isdigit() for letter in now["reason"]):
                    self.violations.append(f"reason: {now['reason']} names no bytes")
            elif now["state"] != row["state"]:
                self.violations.append(f"state: {identity} was {row['state']}, is {now['state']}: {now['reason']}")
        for identity in self.after.transactions.keys() - self.before.transactions.keys():
            row = self.after.transactions[identity]
            if not cited(row) & self.touched:
                self.violations.append(f"new transaction {identity} without a touched record: {row}")
            elif row["state"] != "UNDECIDABLE" and not any(_is_same_but_its_name(row, old) for old in self._gone()):
                self.violations.append(f"invented: {identity} {row['state']}: {row['reason']}")

    def _gone(self) -> list[Row]:
        names = self.before.transactions.keys() - self.after.transactions.keys()
        return [self.before.transactions[name] for name in names]

    def _is_renamed(self, row: Row) -> bool:
        names = self.after.transactions.keys() - self.before.transactions.keys()
        return any(_is_same_but_its_name(self.after.transactions[name], row) for name in names)


def _is_same_but_its_name(row: Row, old: Row) -> bool:
    """Whether the only half copy of a transaction has a damaged id: no other record has its id."""
    return cited(row) == cited(old) and row["state"] in (old["state"], "UNDECIDABLE")


def _changes(row: Row, now: Row | None) -> str:
    if now is None:
        return "it is gone"
    return "; ".join(
        f"{name} {json.dumps(row[name])} -> {json.dumps(now[name])}" for name in row if row[name] != now[name]
    )


def parts_of(data: bytes) -> dict[str, range]:
    """The places of the fields and variable parts in the bytes of a sound record."""
    is_v2 = int.from_bytes(data[4:8], "big") == MAGIC_V2
    sys_flag = int.from_bytes(data[AT["sys_flag"] : AT["sys_flag"] + 4], "big")
    parts: dict[str, range] = {}
    place = 0

    def add(name: str, size: int) -> None:
        nonlocal place
        parts[name] = range(place, place + size)
        place += size

    def number(name: str) -> int:
        return int.from_bytes(data[parts[name].start : parts[name].stop], "big")

    wide = {"born_address": sys_flag & BORN_V6, "store_address": sys_flag & STORE_V6}
    for part in RECORD.fields:
        add(part.name, 16 if wide.get(part.name) else part.size_bytes)
    add("body", number("body_length_bytes"))
    add("topic_length_bytes", 2 if is_v2 else 1)
    add("topic", number("topic_length_bytes"))
    add("properties_length_bytes", 2)
    add("properties", number("properties_length_bytes"))
    assert place == len(data)
    return parts


@contextmanager
def flipped(file: Path, position: int, mask: int) -> Iterator[None]:
    """Change one byte of a file while the block runs."""
    with file.open("r+b") as opened:
        opened.seek(position)
        (value,) = opened.read(1)
    try:
        _put(file, position, value ^ mask)
        yield
    finally:
        _put(file, position, value)


def _put(file: Path, position: int, value: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(position)
        opened.write(bytes([value]))
