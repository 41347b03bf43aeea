"""The rows of plans: the step of a transaction with its evidence, and the fingerprint of a store."""

from __future__ import annotations

from rmqtx.readers.cursors import check_cursors
from rmqtx.readers.store.store import Store
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.repairs.receipts.plan_file import PlanCursor, PlanStore, RecordPlace, Step, StepWitness
from rmqtx.verdicts.audit.provenance import StoreProvenance
from rmqtx.verdicts.model.transaction import Transaction
from rmqtx.verdicts.model.verdict_words import WITNESS_KINDS

#: Columns of a witness's place.
PLACE = ("store", "queue_id", "queue_offset", "commit_log_offset")


def step_of(
    transaction: Transaction, action: ActKind, reason: str, reason_from: str, *, half_copy: RecordPlace | None,
    discard_copy: RecordPlace | None,
) -> Step:
    """Return the plan step of one transaction; `half_copy` and `discard_copy`: the newest copies."""
    witnesses = tuple(witnesses_of(transaction))
    return Step(
        transaction.transaction_id, action, transaction.producer_group, transaction.topic, transaction.keys,
        tuple(dict.fromkeys(witness.store for witness in witnesses)), half_copy, discard_copy, witnesses,
        transaction.state, transaction.flags, reason, reason_from,
    )


def witnesses_of(row: Transaction) -> list[StepWitness]:
    """The witnesses of a transaction in the form of plans and receipts."""
    return [
        StepWitness(kind, entry.store, entry.queue_id, entry.queue_offset, entry.commit_log_offset)
        for column, kind in WITNESS_KINDS.items()
        for entry in getattr(row, column)
    ]


def fingerprint(store: Store, facts: StoreProvenance) -> PlanStore:
    """The state of a store, from its provenance and its cursors. Shape: a row of PLAN_STORES."""
    cursors = check_cursors(store)
    return {
        "store": facts["store"], "taken_time_ms": facts["taken_time_ms"], "aborted": facts["aborted"],
        "broker_process": facts["broker_process"],
        "half_cursors": _cursors(cursors.half),
        "op_cursors": _cursors(cursors.op),
        "segments": [
            {"base_offset": one["base_offset"], "size_bytes": one["size_bytes"], "digest": one["digest"]}
            for one in facts["segments"]
        ],
    }


def _cursors(by_queue: dict[int, int] | None) -> list[PlanCursor] | None:
    if by_queue is None:
        return None
    return [{"queue_id": queue, "next_queue_offset": offset} for queue, offset in sorted(by_queue.items())]
