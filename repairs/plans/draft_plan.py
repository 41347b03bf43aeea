"""Plans of what somebody wants done: steps for what the guards would let pass, and why the rest is not in it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from repairs.acts.guards import Refusal, refusals
from repairs.acts.request import ActRequest
from repairs.acts.situation import Situation
from repairs.plans.plan_steps import ASKED_WHEN_APPLIED, step_of_situation
from repairs.receipts.plan_file import Plan
from verdicts.audit.provenance import tool


@dataclass(slots=True)
class PlanDraft:
    """What a plan would hold.

    Shape: `steps` are rows of PLAN_STEPS; `refused` are transaction ids with the first guard that says no.
    """

    steps: list[dict[str, Any]] = field(default_factory=list)
    refused: list[tuple[str, Refusal]] = field(default_factory=list)


def drafted(situations: Sequence[Situation], request: ActRequest, reason: str, reason_from: str) -> PlanDraft:
    """The steps for some transactions as they are known now.

    Guards that look at the moment of the act are left to `apply`; it asks all of them again.
    Order: that of the situations.
    """
    draft = PlanDraft()
    for situation in situations:
        refusal = next(refusals(situation, request, without=ASKED_WHEN_APPLIED), None)
        if refusal is None and _named(situation, request.action) is None:
            why = "no record that the action could name can be read"
            refusal = Refusal("evidence-incomplete", why, "look at it with rmqtx show")
        if refusal is None:
            draft.steps.append(step_of_situation(situation, request.action, reason, reason_from))
        else:
            draft.refused.append((situation.transaction_id, refusal))
    return draft


def _named(situation: Situation, action: str) -> object:
    return situation.discard_copy if action == "resume" else situation.half_copy


def plan_of(
    draft: PlanDraft, stores: Sequence[Mapping[str, Any]], made_from: Mapping[str, Any], made_time_ms: int
) -> Plan:
    """The plan; `stores` are rows of PLAN_STORES for every store that a step names."""
    return Plan(tool(), made_time_ms, [dict(store) for store in stores], draft.steps, dict(made_from))


def digest_of(text: bytes) -> str:
    """What a plan's file is known by: receipts carry it, so that a plan can be gone on with."""
    return f"sha256:{hashlib.sha256(text).hexdigest()}"
