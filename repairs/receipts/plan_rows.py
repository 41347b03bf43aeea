"""The rows of plans: the step of a transaction with its evidence, and the fingerprint of a store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmqtx.readers.cursors.cursors import check_cursors
from rmqtx.readers.store.store import Store
from rmqtx.repairs.receipts.act_kind import ActKind
from rmqtx.repairs.receipts.plan_file import RecordPlace, Step, StepWitness
from rmqtx.verdicts.model.transaction import Transaction

#: The kinds of witness by the column of TRANSACTIONS that holds them.
WITNESSES = {
    "half_copies": "half_copy", "op_marks": "op_mark", "final_records": "final_record",
    "discard_copies": "discard_copy",
}  # fmt: skip
#: Columns of a witness's place.
PLACE = ("store", "queue_id", "queue_offset", "commit_log_offset")


def step_of(
    transaction: Transaction,
    action: ActKind,
    reason: str,
    reason_from: str,
    *,
    half_copy: RecordPlace | None,
    discard_copy: RecordPlace | None,
) -> Step:
    """Return the plan step of one transaction; `half_copy` and `discard_copy`: the newest copies."""
    witnesses = tuple(StepWitness(**one) for one in witnesses_of(transaction))
    return Step(
        transaction.transaction_id, action, transaction.producer_group, transaction.topic, transaction.keys,
        tuple(dict.fromkeys(witness.store for witness in witnesses)), half_copy, discard_copy, witnesses,
        transaction.state, transaction.flags, reason, reason_from,
    )  # fmt: skip


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
