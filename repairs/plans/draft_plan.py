"""Drafts of plans: a step for each transaction that passes the guards, and why the others have none."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.storage.segments import SegmentedLog
from rmqtx.readers.store.store import Store
from rmqtx.repairs.acts.guards import Refusal, refusals
from rmqtx.repairs.acts.named_copies import newest_records, reader_of
from rmqtx.repairs.acts.request import ActRequest
from rmqtx.repairs.acts.situation import NamedRecord, Situation
from rmqtx.repairs.plans.plan_steps import ASKED_WHEN_APPLIED, OVERRIDDEN_WHEN_APPLIED, step_of_situation
from rmqtx.repairs.receipts.act_kind import PLANNED, ActKind
from rmqtx.repairs.receipts.plan_file import WRITTEN_BY, Plan, PlanStore, RecordPlace, Step
from rmqtx.repairs.receipts.plan_rows import fingerprint, step_of
from rmqtx.repairs.receipts.receipts import whoever
from rmqtx.verdicts.audit.provenance import Provenance, StoreProvenance, tool
from rmqtx.verdicts.model.transaction import Copy, Transaction, newest_first

_SETTLED = ("done", "not_done")


@dataclass(slots=True)
class PlanDraft:
    """The content of a plan before it is written.

    Shape: `refused`: transaction ids with the first refusal of a guard;
           `to_override`: those of steps that `apply` refuses unless its guard is overridden.
    """

    steps: list[Step] = field(default_factory=list)
    refused: list[tuple[str, Refusal]] = field(default_factory=list)
    to_override: list[tuple[str, Refusal]] = field(default_factory=list)


def drafted(situations: Sequence[Situation], request: ActRequest, reason: str, reason_from: str) -> PlanDraft:
    """Return the steps for some transactions in their present situation.

    Guards that depend on the moment of the act are left to `apply`, which applies all guards again; a guard that only
    `apply` can override leaves the step in the plan.
    Order: that of the situations.
    """
    draft = PlanDraft()
    for situation in situations:
        found = list(refusals(situation, request, without=ASKED_WHEN_APPLIED))
        refusal = next((one for one in found if one.guard not in OVERRIDDEN_WHEN_APPLIED), None)
        if refusal is None and _named(situation, request.action) is None:
            why = "the record that the action must name cannot be read"
            refusal = Refusal("evidence-incomplete", why, f"see rmqtx show {situation.transaction_id}")
        if refusal is None:
            draft.steps.append(step_of_situation(situation, request.action, reason, reason_from))
            draft.to_override += [(situation.transaction_id, one) for one in found]
        else:
            draft.refused.append((situation.transaction_id, refusal))
    return draft


def _named(situation: Situation, action: ActKind) -> object:
    return situation.discard_copy if action == ActKind.RESUME else situation.half_copy


def plan_of(
    draft: PlanDraft, stores: Sequence[PlanStore], made_from: Mapping[str, Any], made_time_ms: int
) -> Plan:
    """The plan; `stores`: every store that a step names."""
    writers = {whoever(), *(step.reason_from for step in draft.steps)}  # drafts have reasons of people
    facts = {**made_from, WRITTEN_BY: sorted(writers)}
    return Plan(tool(), made_time_ms, list(stores), draft.steps, facts)


def digest_of(text: bytes) -> str:
    """Digest of a plan file, which receipts contain, so that a later run can continue the plan."""
    return f"sha256:{hashlib.sha256(text).hexdigest()}"


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
                pc.is_in(batch["advice"], value_set=pa.array(PLANNED)),
            )
            chosen = batch.filter(settled)
            if chosen.num_rows:
                self._rows.append(chosen)
            yield batch

    def plan(self, made_from: Provenance, made_time_ms: int) -> Plan:
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
        provenance = {facts["store"]: cast("StoreProvenance", facts) for facts in made_from["stores"]}
        stores = [fingerprint(store, provenance[store.root]) for store in self.stores]
        return Plan(tool(), made_time_ms, stores, steps, {**made_from, WRITTEN_BY: [whoever()]})

    def _step(self, row: Mapping[str, Any], logs: dict[str, SegmentedLog]) -> Step:
        transaction = Transaction.of(row)
        half, discard = newest_records(transaction, reader_of(logs))
        return step_of(
            transaction, ActKind(row["advice"]), transaction.reason,
            f"{self.ledger_name}: {row['ledger_row'] or 'no row'}",
            half_copy=_place(half, transaction.half_copies), discard_copy=_place(discard, transaction.discard_copies),
        )


def _place(record: NamedRecord | None, copies: Sequence[Copy]) -> RecordPlace | None:
    """The place of the record; if none of the copies can be read, the place of the newest."""
    if record is not None or not copies:
        return None if record is None else record.place()
    newest = newest_first(copies)[0]
    return RecordPlace(newest.store, newest.queue_id, newest.queue_offset, newest.commit_log_offset, None, None)
