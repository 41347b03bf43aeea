"""What `verify --full` finds about transactions, `audit` heeds: the damage matrix, played for both.

A case is silent if a verification has an error or a warning about transactions, and an audit has status 0 without the
same code. Findings about derived files and predictions, which have no effect on verdicts, are listed with their reason;
of the queues of the check, only those at or after its cursors have an effect on what happens next.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from readers.cursors.cursors import check_cursors
from readers.model.findings import Finding
from readers.store.store import HALF_TOPIC, OP_TOPIC, Store, open_store
from tests.forge.stores import settings_of
from tests.fuzz.matrix import CELLS, Baseline, _rows, _write, case_of
from verdicts.audit.local_audit import audit

Row = dict[str, Any]
SLOT_BYTES = 20
#: Codes of which verdicts do not depend, and why.
WITHOUT_EFFECT: dict[str, str] = {
    "checkpoint-ahead": "a start uses it, the next start is predicted by verify",
    "checkpoint-damaged": "as checkpoint-ahead",
    "config-backup": "the broker reads the other file",
    "config-damaged": "topics and groups; that of the cursors is a finding of audit",
    "index-damaged": "the log has the records; pending and show scan it then",
    "index-mismatch": "as index-damaged",
    "index-missing": "as index-damaged",
    "record-properties": "torn ones are findings of audit; pieces in the middle that are not a property only of --full",
    "record-body-crc": "the header and the properties, which decide, have no part in it",
}
#: Codes of queue slots: `audit` reads the log, and the future of its rows the slots that the check has not read.
OF_SLOTS = ("slot-invalid", "slot-dangling", "slot-mismatch", "slot-missing", "slot-duplicate", "queue-gap")
#: Another code that reports the same.
SAME: dict[str, tuple[str, ...]] = {
    "cursor-beyond-end": ("queue-missing",),
    "check-stopped": (),
}
_CHECKED = (HALF_TOPIC, OP_TOPIC)


@dataclass(frozen=True)
class Compared:
    """One case; `silent`: findings of the verification that the audit does not heed."""

    number: int
    cell: tuple[str, str, str, str]
    done: str
    silent: tuple[str, ...]
    is_compared: bool = True


def compare(number: int, seed: int = 0, cells: tuple[tuple[str, str, str, str], ...] = CELLS) -> Compared:
    """Play the case with a number, as `matrix.play` does, and compare the verification with the audit."""
    case = case_of(number, seed, cells)
    if case.file is None or case.after == case.before:
        return Compared(number, case.cell, case.done, (), is_compared=False)
    try:
        _write(case.file, case.after)
        return Compared(number, case.cell, case.done, tuple(_silent(case.base, case.cell[0])))
    finally:
        _write(case.file, case.before)


def _silent(base: Baseline, name: str) -> Iterable[str]:
    store = open_store(base.root)
    new = [row for row in _rows(store) if row["severity"] != "note" and str(row) not in base.rows]
    reading = audit([store], settings_of(name))
    rows = {row["transaction_id"]: row for row in reading.table().to_pylist()}
    if any(row["state"] == "UNDECIDABLE" for row in rows.values()) or _has_error(reading.findings):
        return
    codes = {finding.code for finding in reading.findings}
    is_told = bool(reading.check_stops) or any(
        row[column] != base.verdicts.get(identity, {}).get(column)
        for identity, row in rows.items() for column in ("state", "flags", "next_event")
    )
    for row in new:
        if row["code"] in codes or not codes.isdisjoint(SAME.get(row["code"], ())):
            continue
        if not _has_effect(store, row) or (is_told and _is_of_check(row)):
            continue
        yield f"{row['code']}: {row['file']} at {row['position_bytes']}: {row['expected']} | {row['actual']}"


def _has_error(findings: Iterable[Finding]) -> bool:
    return any(finding.kind.severity == "error" for finding in findings)


def _has_effect(store: Store, row: Row) -> bool:
    """Whether a verdict, or what happens next to a transaction, may depend on what was found."""
    code = row["code"]
    if code in WITHOUT_EFFECT or code.startswith(("start-", "table-", "redo-")):
        return False
    if code in (*OF_SLOTS, "queue-missing", "group-cursor-beyond-end") and not _is_of_check(row):
        return False  # a queue of consumers
    if code not in OF_SLOTS:
        return True
    if store.aborted or str(row["actual"]).startswith("tags code"):
        return False  # the start dispatches again; the check ignores tags
    number = _slot_of(row)
    cursors = check_cursors(store)
    cursor = ((cursors.half if HALF_TOPIC in _text(row) else cursors.op) or {}).get(0, 0)
    return number is None or number >= cursor


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
    return (int(name) + int(row["position_bytes"])) // SLOT_BYTES
