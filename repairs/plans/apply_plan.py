"""From a plan to orders: steps that an earlier run did, stale steps, and steps left to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rmqtx.readers.model import exit_status
from rmqtx.repairs.acts.carry_out import checked_acts
from rmqtx.repairs.acts.medium import Medium
from rmqtx.repairs.acts.orders import ActOrder, CheckedAct, Conduct
from rmqtx.repairs.acts.situation import ActRequest, NamedRecord, Situation
from rmqtx.repairs.plans.draft_plan import is_live_store, staleness
from rmqtx.repairs.receipts.act_words import ActKind, ActOutcome, StandingWord
from rmqtx.repairs.receipts.plan_file import Plan, RecordPlace, Step
from rmqtx.repairs.receipts.receipts import Receipt
from rmqtx.repairs.receipts.recheck import Standing, standing_of

#: Outcomes of an earlier run whose effect is looked up first, so that no step is done twice.
_NOT_SURE = (ActOutcome.UNKNOWN, ActOutcome.ACCEPTED, ActOutcome.CONTRADICTED)
_DISPUTED = (StandingWord.CONTRADICTED, StandingWord.REOPENED)


@dataclass(slots=True)
class Application:
    """The state of a plan while it is applied.

    Shape: `acts`: what is left to do, with the refusals of the guards; `done`: receipts of what an earlier run of the
           same plan did; `settled`: those of them whose outcome was unknown and whose effect was found, with the
           evidence; `disputed`: those that something contradicts, or that the broker checks again; `stale`:
           transactions that differ from what the plan relied on, with the difference; `notes`: further notes.
    """

    acts: list[CheckedAct] = field(default_factory=list)
    done: list[Receipt] = field(default_factory=list)
    settled: list[tuple[Receipt, Standing]] = field(default_factory=list)
    disputed: list[tuple[Receipt, Standing]] = field(default_factory=list)
    stale: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def status_after(self, status: int) -> int:
        """Return the exit status of a run whose acts ended with a status: of what was done, and of what was not."""
        if status == exit_status.INTERRUPTED:
            return status
        statuses = [status] if self.acts or not self.stale else []
        statuses += [exit_status.STALE_PLAN] if self.stale else []
        statuses += [exit_status.DONE] if self.stale and self.done else []
        return exit_status.combined([*statuses, exit_status.UNKNOWN_OUTCOME] if self.disputed else statuses)


def missing_stores(plan: Plan, roots: Iterable[str]) -> list[str]:
    """Live brokers from which the plan was made and which are not among the brokers of this run."""
    asked = set(roots)
    return [store["store"] for store in plan.stores if is_live_store(store) and store["store"] not in asked]


def application(
    plan: Plan, known_as: Mapping[str, Any], receipts: Sequence[Receipt], medium: Medium, conduct: Conduct, *,
    reason: str | None = None, is_exact: bool = False,
) -> Application:
    """Return what must be done for a plan now.

    `known_as`: the plan's file and digest, as in receipts; `receipts`: all receipts of the journal. A plan made from
    files is compared with the live brokers by offsets. `is_exact`: half copies that the check put back meanwhile make a
    step stale, too.
    """
    result = Application()
    earlier = _earlier(receipts, str(known_as["digest"]))
    left = [step for step in plan.steps if not _was_done(result, earlier.get((step.transaction_id, step.action)))]
    live = {store["store"] for store in plan.stores if is_live_store(store)}
    if not medium.is_exclusive and any(store["store"] not in live for store in plan.stores):
        result.notes.append("the plan was made from files: only offsets are compared with the live broker")
    orders = [_order(step, known_as, reason, is_exact=is_exact) for step in left]
    found = {act.order.transaction_id: act for act in checked_acts(orders, medium, conduct)}
    for step in left:
        name = step.transaction_id
        receipt = earlier.get((name, step.action))
        act = found.get(name)
        is_open = receipt is not None and (receipt.is_of_files or receipt.outcome in _NOT_SURE)
        if receipt is not None and is_open and _was_settled(result, receipt, act):
            continue
        why = _why_stale(step, act, medium, is_exact=is_exact, is_same_store=_stores_are(step, live))
        if why is not None or act is None:
            result.stale.append((name, why or "its records no longer exist"))
            continue
        result.acts.append(act)
        _note_newer(result, step, act)
    return result


class StepWord(StrEnum):
    """How far a step of a plan is, by the receipts of its runs; the value is the text for people."""

    DONE = "done"
    UNKNOWN = "with an unknown outcome"
    REFUSED = "refused or not sent"
    LEFT = "not begun"


def progress_of(plan: Plan, digest: str, receipts: Sequence[Receipt]) -> dict[StepWord, list[Step]]:
    """Return the steps of a plan by how far they are. `receipts`: all receipts of the journal."""
    sent = _earlier(receipts, digest)
    refused = {
        (receipt.acted_on, receipt.action) for receipt in receipts
        if _is_of_plan(receipt, digest) and receipt.outcome not in (ActOutcome.PROVED, *_NOT_SURE)
    }
    found: dict[StepWord, list[Step]] = {word: [] for word in StepWord}
    for step in plan.steps:
        identity = (step.transaction_id, step.action)
        receipt = sent.get(identity)
        if receipt is None or receipt.is_undone:
            found[StepWord.REFUSED if receipt is None and identity in refused else StepWord.LEFT].append(step)
        elif _is_done(receipt) or receipt.outcome is ActOutcome.PROVED or _is_accepted_resume(receipt):
            found[StepWord.DONE].append(step)
        else:
            found[StepWord.UNKNOWN].append(step)
    return found


def _is_accepted_resume(receipt: Receipt) -> bool:
    """Whether it is a resume whose new half copy was seen: its outcome is never more than accepted."""
    is_resume = receipt.action == ActKind.RESUME and bool(receipt.witnesses_after)
    return is_resume and receipt.outcome is ActOutcome.ACCEPTED


def _is_of_plan(receipt: Receipt, digest: str) -> bool:
    return receipt.plan is not None and receipt.plan.get("digest") == digest


def _was_done(result: Application, receipt: Receipt | None) -> bool:
    """Whether an earlier act of a step is done; its receipt is then added to the result."""
    if receipt is None or not _is_done(receipt):
        return False
    result.done.append(receipt)
    return True


def _is_done(receipt: Receipt) -> bool:
    """Whether its effect was read back, by the act's own command or by a recheck.

    Changes to files can be undone, so their effect is always looked up again.
    """
    if receipt.is_of_files:
        return False
    is_seen_since = bool(receipt.rechecks) and receipt.rechecks[-1].standing == StandingWord.STANDS
    return receipt.outcome is ActOutcome.PROVED or is_seen_since


def _earlier(receipts: Sequence[Receipt], digest: str) -> dict[tuple[str, ActKind], Receipt]:
    """The latest receipt of each step, of runs of the same plan that may have sent something."""
    found = {}
    for receipt in sorted(receipts, key=lambda one: one.receipt_id):
        if _is_of_plan(receipt, digest) and receipt.outcome in (ActOutcome.PROVED, *_NOT_SURE):
            found[receipt.acted_on, receipt.action] = receipt
    return found


def _order(step: Step, known_as: Mapping[str, Any], reason: str | None, *, is_exact: bool) -> ActOrder:
    is_named = is_exact and step.action != ActKind.RESUME
    named = step.half_copy.queue_offset if is_named and step.half_copy is not None else None
    why = step.reason if reason is None else f"{step.reason}; {reason}"
    request = ActRequest(step.action, step.producer_group, named)
    return ActOrder(step.transaction_id, request, why, dict(known_as))


def _was_settled(result: Application, receipt: Receipt, act: CheckedAct | None) -> bool:
    """Whether an earlier act with an unknown outcome, or one that may have been undone, is in effect."""
    standing = standing_of(receipt, None if act is None else act.situation.transaction)
    if standing.word in _DISPUTED:
        result.disputed.append((receipt, standing))
    elif standing.word == StandingWord.STANDS:
        result.done.append(receipt)
        if receipt.outcome in _NOT_SURE:
            result.settled.append((receipt, standing))
    return standing.word in (StandingWord.STANDS, *_DISPUTED)


def _stores_are(step: Step, live: set[str]) -> bool:
    return all(store in live for store in step.stores)


def _why_stale(
    step: Step, act: CheckedAct | None, medium: Medium, *, is_exact: bool, is_same_store: bool
) -> str | None:
    if act is None:
        return staleness(step, None, lambda _: None)
    situation = act.situation

    def read(place: RecordPlace) -> NamedRecord | None:
        return _record(situation, place, medium, is_discard=step.action == ActKind.RESUME)

    return staleness(step, situation.transaction, read, is_exact=is_exact, is_same_store=is_same_store)


def _record(
    situation: Situation, place: RecordPlace, medium: Medium, *, is_discard: bool
) -> NamedRecord | None:
    """The record at a place; the newest records are already in the situation."""
    newest = situation.discard_copy if is_discard else situation.half_copy
    names = ("queue_offset", "commit_log_offset")
    if newest is not None and all(getattr(newest, name) == getattr(place, name) for name in names):
        return newest
    return None if is_discard else medium.record(situation, place.queue_offset)


def _note_newer(result: Application, step: Step, act: CheckedAct) -> None:
    """Note that the act names a newer copy than the plan, because the check put one back."""
    planned = step.half_copy
    if act.order.request.decides and planned and act.named and act.named.queue_offset != planned.queue_offset:
        result.notes.append(
            f"{act.order.transaction_id}: the check has put back half copy {act.named.queue_offset} since the plan was "
            f"made: the act names this copy, not {planned.queue_offset}"
        )
