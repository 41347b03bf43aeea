"""From advice to a plan: for each transaction that can be acted on, its record, evidence and preconditions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.cursors.cursors import check_cursors
from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.storage.segments import SegmentedLog
from rmqtx.readers.store.store import Store
from rmqtx.repairs.receipts.plan_file import ACTIONS, Plan
from rmqtx.verdicts.audit.provenance import tool

#: The kinds of witness by the column of TRANSACTIONS that holds them.
WITNESSES = {
    "half_copies": "half_copy", "op_marks": "op_mark", "final_records": "final_record",
    "discard_copies": "discard_copy",
}  # fmt: skip
#: Columns of a witness's place.
PLACE = ("store", "queue_id", "queue_offset", "commit_log_offset")
_SETTLED = ("done", "not_done")


@dataclass(slots=True)
class Planner:
    """Collects the steps of a plan from rows of RECONCILED as they pass through.

    `ledger_name`: the source of reasons in the plan.
    """

    stores: list[Store]
    ledger_name: str
    _rows: list[pa.RecordBatch] = field(default_factory=list)

    def watching(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the same batches; rows that the ledger decides and an action can carry out are kept for the plan."""
        for batch in batches:
            settled = pc.and_(
                pc.is_in(batch["ledger_word"], value_set=pa.array(_SETTLED)),
                pc.is_in(batch["advice"], value_set=pa.array(ACTIONS)),
            )
            chosen = batch.filter(settled)
            if chosen.num_rows:
                self._rows.append(chosen)
            yield batch

    def plan(self, made_from: Mapping[str, Any], made_time_ms: int) -> Plan:
        """Make the plan.

        `made_from`: the provenance of the reading. Reads each record that a step names, for its length and CRC.
        Order: that of the rows.
        """
        logs = {store.root: store.log() for store in self.stores}
        try:
            steps = [self._step(row, logs) for batch in self._rows for row in batch.to_pylist()]
        finally:
            for log in logs.values():
                log.close()
        provenance = {facts["store"]: facts for facts in made_from["stores"]}
        stores = [fingerprint(store, provenance[store.root]) for store in self.stores]
        return Plan(tool(), made_time_ms, stores, steps, dict(made_from))

    def _step(self, row: dict[str, Any], logs: dict[str, SegmentedLog]) -> dict[str, Any]:
        return step_of(
            row, row["advice"], row["reason"], f"{self.ledger_name}: {row['ledger_row'] or 'no row'}",
            half_copy=_named(row["half_copies"], logs), discard_copy=_named(row["discard_copies"], logs),
        )


def step_of(
    row: Mapping[str, Any],
    action: str,
    reason: str,
    reason_from: str,
    *,
    half_copy: Mapping[str, Any] | None,
    discard_copy: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the plan step of one transaction.

    `row` is of TRANSACTIONS; `half_copy` and `discard_copy`: the newest copies, as RECORD_NAMED.
    Shape: PLAN_STEPS.
    """
    witnesses = witnesses_of(row)
    return {
        "transaction_id": row["transaction_id"],
        "action": action,
        "producer_group": row["producer_group"],
        "topic": row["topic"],
        "keys": row["keys"],
        "stores": list(dict.fromkeys(witness["store"] for witness in witnesses)),
        "half_copy": None if half_copy is None else dict(half_copy),
        "discard_copy": None if discard_copy is None else dict(discard_copy),
        "witnesses": witnesses,
        "state": row["state"],
        "flags": row["flags"],
        "reason": reason,
        "reason_from": reason_from,
    }


def witnesses_of(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The witnesses of a row of TRANSACTIONS in the form of plans and receipts."""
    return [
        {"kind": kind, **{name: entry[name] for name in PLACE}}
        for column, kind in WITNESSES.items()
        for entry in row[column]
    ]


def _named(copies: list[dict[str, Any]], logs: dict[str, SegmentedLog]) -> dict[str, Any] | None:
    """The newest copy as RECORD_NAMED."""
    if not copies:
        return None
    newest = copies[-1]
    block = block_at(logs[newest["store"]], newest["commit_log_offset"])
    return {
        **{name: newest[name] for name in PLACE},
        "length_bytes": None if block is None else int(block.lengths[0]),
        "body_crc": None if block is None else int(block.header("body_crc")[0]),
    }


def fingerprint(store: Store, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The state of a store, from its provenance and its cursors.

    Shape: a row of PLAN_STORES.
    """
    cursors = check_cursors(store)
    return {
        **{name: facts[name] for name in ("store", "taken_time_ms", "aborted", "broker_process")},
        "half_cursors": _cursors(cursors.half),
        "op_cursors": _cursors(cursors.op),
        "segments": [
            {name: segment[name] for name in ("base_offset", "size_bytes", "digest")} for segment in facts["segments"]
        ],
    }


def _cursors(by_queue: dict[int, int] | None) -> list[dict[str, int]] | None:
    if by_queue is None:
        return None
    return [{"queue_id": queue, "next_queue_offset": offset} for queue, offset in sorted(by_queue.items())]
