"""Which rows of a database table of open transactions (3.2 to 4.2) should go or come, as a reviewed file.

A row goes where the log shows that its transaction is decided, unless its offset stands there twice. A row comes for an
undecided prepared record, unless the log has damage: then a decision may be in what cannot be read. Anything else about
a row is told by `rmqtx verify`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from readers.log.commit_log import scan_segments
from readers.log.prepared_record_arrays import OldRecords
from readers.log.properties import PRODUCER_GROUP
from readers.log.record_at import block_at
from readers.log.record_layout import COMMIT
from readers.model.declared_json import ANYTHING, Form, list_of, needed, parsed, shown
from readers.model.findings import Finding
from readers.model.ranges import LogRanges, merged
from readers.model.reading import Coverage
from readers.model.tables import column
from readers.old_tables.transaction_table import TableAddress, TransactionTable
from readers.store.store import Store
from verdicts.audit.provenance import tool
from verdicts.verify.transaction_table import joined

KIND, VERSION = "rmqtx-table-plan", 1
DELETE, ADD = "delete", "add"
#: One change of a row.
TABLE_STEPS = pa.schema(
    [
        column("action", pa.string(), "delete, or add", values=(DELETE, ADD)),
        column("half_commit_log_offset", pa.int64(), "commit-log offset of the prepared record"),
        column("producer_group", pa.string(), "producer group: as the row has it, or as the record says"),
        column("reason", pa.string(), "what in the log says so"),
    ]
)

_ADDRESS = pa.struct(
    [needed(name, pa.string()) for name in ("location", "table", "offset_column", "group_column")]
)
_HEAD = pa.struct(
    [
        needed("kind", pa.string()), needed("version", pa.int64()), pa.field("store", pa.string()),
        needed("transaction_table", _ADDRESS), pa.field("receipts", list_of(pa.string())),
    ]
)
#: A line that is a step; `row` stands in undo files only.
_STEP = pa.struct(
    [
        *(one.with_nullable(one.name in ("producer_group", "reason")) for one in TABLE_STEPS),
        pa.field("row", pa.map_(pa.string(), ANYTHING)),
    ]
)


@dataclass(frozen=True, slots=True)
class TableStep:
    """One change of a row."""

    action: str
    half_commit_log_offset: int
    producer_group: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The changes of one table, made from one store.

    Order: commit-log offset.
    """

    store: str
    address: TableAddress
    steps: tuple[TableStep, ...]

    def text(self, made_time_ms: int) -> str:
        """The plan as a file: JSON lines, the first of which says what it is of."""
        head = {
            "kind": KIND, "version": VERSION, "made_by": tool(), "made_time_ms": made_time_ms, "store": self.store,
            "transaction_table": address_row(self.address),
        }  # fmt: skip
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in (head, *step_rows(self.steps)))


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the log asks for.

    `is_damaged`: the log has damage, so no row is added. `findings` are about reading it. `unknown_count`: rows of the
    table that name no prepared record of this log, so that it may be another broker's.
    """

    steps: tuple[TableStep, ...]
    is_damaged: bool
    findings: tuple[Finding, ...]
    unknown_count: int


def wanted_changes(store: Store, table: TransactionTable) -> Wanted:
    """The rows that should go or come, by the whole log.

    Order: commit-log offset.
    """
    findings: list[Finding] = list(store.findings)
    coverage: list[Coverage] = []
    parts, end = [], store.log_begin_offset
    for block in scan_segments(store, findings, coverage):
        parts.append(OldRecords.of_block(block))
        if len(block):
            end = int(block.commit_log_offsets[-1] + block.lengths[-1])
    records = OldRecords.joined(parts)
    held = merged([np.array([(s.base_offset, s.end_offset) for s in store.commit_log], np.int64).reshape(-1, 2)])
    ranges = LogRanges(store.log_begin_offset, end, np.empty((0, 2), np.int64), held)
    found = joined(table, records, ranges)
    is_damaged = any(finding.kind.severity == "error" for finding in findings)
    groups = table.rows["producer_group"].to_pylist()
    steps = []
    for row in np.flatnonzero(found.is_stale).tolist():
        if int(table.offsets[row]) in table.repeated:  # which of them would undoing bring back?
            continue
        ended = "COMMIT" if found.first_ends[found.rows[row]] == COMMIT else "ROLLBACK"
        reason = f"the log has its {ended} record"
        steps.append(TableStep(DELETE, int(table.offsets[row]), groups[row], reason))
    if not is_damaged:
        steps += _additions(store, found.prepared.chosen(found.is_missing))
    steps.sort(key=lambda step: step.half_commit_log_offset)
    unknown_count = int((found.is_unknown | found.is_beyond).sum())
    return Wanted(tuple(steps), is_damaged, tuple(findings), unknown_count)


def _additions(store: Store, missing: OldRecords) -> list[TableStep]:
    log = store.log()
    steps = []
    try:
        for offset in missing.offsets.tolist():
            block = block_at(log, offset)
            group = None if block is None else block.properties.text(PRODUCER_GROUP)[0].as_py()
            if group is not None:
                steps.append(TableStep(ADD, offset, group, "no record in the log ended it"))
    finally:
        log.close()
    return steps


def step_rows(steps: tuple[TableStep, ...]) -> list[dict[str, Any]]:
    """The steps as rows of TABLE_STEPS."""
    return [{name: getattr(step, name) for name in TABLE_STEPS.names} for step in steps]


def address_row(address: TableAddress) -> dict[str, str]:
    """The table that a file is about, for its first line."""
    return {
        "location": address.location, "table": address.table, "offset_column": address.offset_column,
        "group_column": address.group_column,
    }  # fmt: skip


def read_plan(text: str, name: str) -> TablePlan:
    """A plan of a file.

    Raises: BadText for what is no such plan.
    """
    head, rows = read_lines(text, name, KIND)
    if head.get("store") is None:
        raise Form(KIND, _HEAD).bad(name, "store", "a text", "nothing")
    return TablePlan(head["store"], address_of(head), steps_of(rows))


def read_lines(text: str, name: str, kind: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The first line and the others of a file of JSON lines of a kind.

    Raises: BadText.
    """
    form = Form(kind, _HEAD, is_open=True)
    lines = [line for line in text.split("\n") if line.strip()]
    head: dict[str, Any] = form.read(lines[0] if lines else "", name)
    if head["kind"] != kind:
        raise form.bad(name, "kind", kind, shown(head["kind"]))
    if head["version"] != VERSION:
        raise form.bad(name, "version", str(VERSION), shown(head["version"]))
    step = Form(f"{kind} with steps", _STEP, is_open=True)
    rows = []
    for number, line in enumerate(lines[1:], 2):
        row = step.check(parsed(line, name, kind), name, f"line {number}")
        if row["action"] not in (DELETE, ADD):
            raise step.bad(name, f"line {number}.action", f"{DELETE} or {ADD}", shown(row["action"]))
        if row["half_commit_log_offset"] < 0:
            raise step.bad(name, f"line {number}.half_commit_log_offset", "an offset", "a negative number")
        rows.append(row)
    return head, rows


def address_of(head: dict[str, Any]) -> TableAddress:
    """The table that a file is about."""
    return TableAddress(**head["transaction_table"])


def steps_of(rows: list[dict[str, Any]]) -> tuple[TableStep, ...]:
    """The steps of a file's rows."""
    return tuple(
        TableStep(row["action"], row["half_commit_log_offset"], row.get("producer_group"), row.get("reason") or "")
        for row in rows
    )
