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

from readers.commit_log import scan_segments
from readers.custody import tool
from readers.errors import BadRequest
from readers.findings import Finding
from readers.old_records import OldRecords
from readers.properties import PRODUCER_GROUP
from readers.reading import Coverage
from readers.record_at import block_at
from readers.record_layout import COMMIT
from readers.store import Store
from readers.tables import column
from readers.transaction_table import TableAddress, TransactionTable
from readers.verify_ranges import LogRanges, merged
from readers.verify_transaction_table import joined

KIND, VERSION = "rmqtx-table-plan", 1
DELETE, ADD = "delete", "add"
#: One change of a row.
TABLE_STEPS = pa.schema(
    [
        column("action", pa.string(), "delete, or add"),
        column("half_commit_log_offset", pa.int64(), "commit-log offset of the prepared record"),
        column("producer_group", pa.string(), "producer group: as the row has it, or as the record says"),
        column("reason", pa.string(), "what in the log says so"),
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

    Raises: BadRequest for what is no such plan.
    """
    head, rows = read_lines(text, name, KIND)
    return TablePlan(str(head["store"]), address_of(head, name), steps_of(rows, name))


def read_lines(text: str, name: str, kind: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The first line and the others of a file of JSON lines of a kind.

    Raises: BadRequest.
    """
    try:
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise BadRequest(f"{name} is no {kind}: {error}") from error
    if not rows or not all(isinstance(row, dict) for row in rows) or rows[0].get("kind") != kind:
        raise BadRequest(f"{name} is no {kind}")
    if rows[0].get("version") != VERSION:
        raise BadRequest(f"{name} is of another version of rmqtx", advice="make the plan again")
    return rows[0], rows[1:]


def address_of(head: dict[str, Any], name: str) -> TableAddress:
    """The table that a file is about.

    Raises: BadRequest.
    """
    try:
        return TableAddress(**{key: str(value) for key, value in head["transaction_table"].items()})
    except (KeyError, AttributeError, TypeError) as error:
        raise BadRequest(f"{name} does not say which table it is about") from error


def steps_of(rows: list[dict[str, Any]], name: str) -> tuple[TableStep, ...]:
    """The steps of a file's rows.

    Raises: BadRequest for a row that is no step.
    """
    steps = []
    for row in rows:
        offset, group = row.get("half_commit_log_offset"), row.get("producer_group")
        is_offset = isinstance(offset, int) and not isinstance(offset, bool) and 0 <= offset < 2**63
        if row.get("action") not in (DELETE, ADD) or not is_offset or not isinstance(group, str | None):
            raise BadRequest(f"{name} has a row that is no step: {json.dumps(row)[:120]}")
        steps.append(TableStep(row["action"], int(str(offset)), group, str(row.get("reason", ""))))
    return tuple(steps)
