"""The rows of plans: the step of a transaction with its evidence, and the fingerprint of a store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmqtx.readers.cursors.cursors import check_cursors
from rmqtx.readers.store.store import Store
from rmqtx.repairs.receipts.act_kind import ActKind
from rmqtx.verdicts.model.transaction import Transaction

#: The kinds of witness by the column of TRANSACTIONS that holds them.
WITNESSES = {
    "half_copies": "half_copy", "op_marks": "op_mark", "final_records": "final_record",
    "discard_copies": "discard_copy",
}  # fmt: skip
#: Columns of a witness's place.
PLACE = ("store", "queue_id", "queue_offset", "commit_log_offset")


def step_of(
    row: Transaction,
    action: ActKind,
    reason: str,
    reason_from: str,
    *,
    half_copy: Mapping[str, Any] | None,
    discard_copy: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the plan step of one transaction.

    `half_copy` and `discard_copy`: the newest copies, as RECORD_NAMED.
    Shape: PLAN_STEPS.
    """
    witnesses = witnesses_of(row)
    return {
        "transaction_id": row.transaction_id,
        "action": action,
        "producer_group": row.producer_group,
        "topic": row.topic,
        "keys": row.keys,
        "stores": list(dict.fromkeys(witness["store"] for witness in witnesses)),
        "half_copy": None if half_copy is None else dict(half_copy),
        "discard_copy": None if discard_copy is None else dict(discard_copy),
        "witnesses": witnesses,
        "state": row.state,
        "flags": list(row.flags),
        "reason": reason,
        "reason_from": reason_from,
    }


def witnesses_of(row: Transaction) -> list[dict[str, Any]]:
    """The witnesses of a transaction in the form of plans and receipts."""
    return [
        {"kind": kind, **{name: getattr(entry, name) for name in PLACE}}
        for column, kind in WITNESSES.items()
        for entry in getattr(row, column)
    ]


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
