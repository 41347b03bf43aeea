"""Drafts of plans: a step for each transaction that passes the guards, and why the others have none."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rmqtx.repairs.acts.guards import Refusal, refusals
from rmqtx.repairs.acts.request import ActRequest
from rmqtx.repairs.acts.situation import Situation
from rmqtx.repairs.plans.plan_steps import ASKED_WHEN_APPLIED, OVERRIDDEN_WHEN_APPLIED, step_of_situation
from rmqtx.repairs.receipts.act_kind import ActKind
from rmqtx.repairs.receipts.plan_file import WRITTEN_BY, Plan, Step
from rmqtx.repairs.receipts.receipts import whoever
from rmqtx.verdicts.audit.provenance import tool


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
    draft: PlanDraft, stores: Sequence[Mapping[str, Any]], made_from: Mapping[str, Any], made_time_ms: int
) -> Plan:
    """The plan; `stores` are rows of PLAN_STORES for every store that a step names."""
    writers = {whoever(), *(step.reason_from for step in draft.steps)}  # drafts have reasons of people
    facts = {**made_from, WRITTEN_BY: sorted(writers)}
    return Plan(tool(), made_time_ms, [dict(store) for store in stores], draft.steps, facts)


def digest_of(text: bytes) -> str:
    """Digest of a plan file, which receipts contain, so that a later run can continue the plan."""
    return f"sha256:{hashlib.sha256(text).hexdigest()}"
