"""From advice to a plan: for each transaction that can be acted on, what to name, on which proof, while what holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from readers.cursors import check_cursors
from readers.custody import tool
from readers.plan import ACTIONS, Plan
from readers.record_at import block_at
from readers.sources import SegmentedLog
from readers.store import Store

_WITNESSES = {
    "half_copies": "half_copy", "op_marks": "op_mark", "final_records": "final_record",
    "discard_copies": "discard_copy",
}  # fmt: skip
_PLACE = ("store", "queue_id", "queue_offset", "commit_log_offset")
_SETTLED = pa.array(["done", "not_done"])


@dataclass(slots=True)
class Planner:
    """Gathers the steps of a plan from rows of RECONCILED as they go by.

    `ledger_name` is what the plan says of where its reasons come from.
    """

    stores: list[Store]
    ledger_name: str
    _rows: list[pa.RecordBatch] = field(default_factory=list)

    def watching(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches; what the ledger settled and somebody can carry out is kept for the plan."""
        for batch in batches:
            settled = pc.and_(
                pc.is_in(batch["ledger_word"], value_set=_SETTLED),
                pc.is_in(batch["advice"], value_set=pa.array(ACTIONS)),
            )
            chosen = batch.filter(settled)
            if chosen.num_rows:
                self._rows.append(chosen)
            yield batch

    def plan(self, made_from: Mapping[str, Any], made_time_ms: int) -> Plan:
        """The plan.

        `made_from`: the custody of the reading. Reads each record that a step names, for its length and CRC.
        Order: that of the rows.
        """
        logs = {store.root: store.log() for store in self.stores}
        try:
            steps = [self._step(row, logs) for batch in self._rows for row in batch.to_pylist()]
        finally:
            for log in logs.values():
                log.close()
        custody = {facts["store"]: facts for facts in made_from["stores"]}
        stores = [_fingerprint(store, custody[store.root]) for store in self.stores]
        return Plan(tool(), made_time_ms, stores, steps, dict(made_from))

    def _step(self, row: dict[str, Any], logs: dict[str, SegmentedLog]) -> dict[str, Any]:
        witnesses = [
            {"kind": kind, **{name: entry[name] for name in _PLACE}}
            for column, kind in _WITNESSES.items()
            for entry in row[column]
        ]
        ledger_row = row["ledger_row"] or "no row"
        return {
            "transaction_id": row["transaction_id"],
            "action": row["advice"],
            "producer_group": row["producer_group"],
            "topic": row["topic"],
            "keys": row["keys"],
            "stores": list(dict.fromkeys(witness["store"] for witness in witnesses)),
            "half_copy": _named(row["half_copies"], logs),
            "discard_copy": _named(row["discard_copies"], logs),
            "witnesses": witnesses,
            "state": row["state"],
            "flags": row["flags"],
            "reason": row["reason"],
            "reason_from": f"{self.ledger_name}: {ledger_row}",
        }


def _named(copies: list[dict[str, Any]], logs: dict[str, SegmentedLog]) -> dict[str, Any] | None:
    """The newest copy as an action names it."""
    if not copies:
        return None
    newest = copies[-1]
    block = block_at(logs[newest["store"]], newest["commit_log_offset"])
    return {
        **{name: newest[name] for name in _PLACE},
        "length_bytes": None if block is None else int(block.lengths[0]),
        "body_crc": None if block is None else int(block.header("body_crc")[0]),
    }


def _fingerprint(store: Store, facts: Mapping[str, Any]) -> dict[str, Any]:
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
