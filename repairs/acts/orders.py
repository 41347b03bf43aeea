"""Orders and the acts that carry them out: the request, the situation, the receipt, and the course of several acts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rmqtx.repairs.acts.guards import Refusal
from rmqtx.repairs.acts.proof import Proof
from rmqtx.repairs.acts.situation import ActRequest, NamedRecord, Situation
from rmqtx.repairs.receipts.plan_rows import witnesses_of
from rmqtx.repairs.receipts.receipts import Receipt
from rmqtx.verdicts.model.verdict_words import NextEvent


@dataclass(frozen=True, slots=True)
class ActOrder:
    """One transaction and the request for it; `reason` is why, `plan` the plan file it comes from."""

    transaction_id: str
    request: ActRequest
    reason: str | None = None
    plan: Mapping[str, str | None] | None = None


@dataclass(frozen=True, slots=True)
class Conduct:
    """Options for carrying out orders.

    Units: milliseconds. `settle_ms` None: the medium's default wait. `prove_ms`: how long to look for the effect;
           `watch_ms`: how long to watch it at least.
    """

    overrides: tuple[str, ...] = ()
    settle_ms: int | None = None
    prove: bool = True
    prove_ms: int = 30_000
    watch_ms: int = 0
    max_per_second: float | None = None


@dataclass(slots=True)
class CheckedAct:
    """An order with its situation, the refusals of the guards, and the progress of the act.

    Shape: `receipt` is None until the act was tried or finally refused. `closed`: half queue offsets of copies that
           the check had put back and that were closed after the act. `proof`: result of the last look-up;
           `whole_since`: when it first showed the whole effect; `is_effect_final`: whether the effect can no longer
           change. `next_event`: what happens to the transaction next, at the last look-up.
    """

    order: ActOrder
    situation: Situation
    refusals: list[Refusal] = field(default_factory=list)
    receipt: Receipt | None = None
    named: NamedRecord | None = None
    closed: set[int] = field(default_factory=set)
    proof: Proof | None = None
    whole_since: float | None = None
    next_event: NextEvent | None = None
    is_effect_final: bool = False

    @property
    def is_allowed(self) -> bool:
        """Whether no guard refused."""
        return not self.refusals

    def store_of(self, named: NamedRecord | None) -> str:
        """The broker or store that is acted on."""
        sent_to = self.situation.conditions.sent_to
        if sent_to is not None:
            return sent_to.store
        return named.store if named is not None else str(self.situation.transaction.store)

    def begun(self) -> Receipt:
        """Its receipt, which exists once the act was tried."""
        assert self.receipt is not None
        return self.receipt

    def begin(self, conduct: Conduct) -> Receipt:
        """Make its receipt, with the situation as of now."""
        row = self.situation.transaction
        named = self.named or self.situation.named
        self.receipt = Receipt(
            action=self.order.request.action, transaction_id=self.situation.transaction_id,
            store=self.store_of(named), producer_group=row.producer_group,
            topic=row.topic, keys=row.keys, reason=self.order.reason, overrides=list(conduct.overrides),
            plan=None if self.order.plan is None else dict(self.order.plan),
            named_copy=None if named is None else named.place(), state_before=row.state,
            witnesses_before=witnesses_of(row),
        )
        return self.receipt


def _unseen(_course: Course) -> None:
    """Show nothing."""


@dataclass(slots=True)
class Course:
    """How far several acts are: the acts count, their caller shows it and may stop them.

    Shape: `total_count`: acts that are carried out, 0 until the first request can be sent; `done_count`: those whose
           request was sent; `refused_count`: those that a guard or the broker refused. `is_stopped`: no further act is
           begun, and those that were begun are proved. `changed` is called after each act.
    """

    changed: Callable[[Course], None] = field(default=_unseen)
    total_count: int = 0
    done_count: int = 0
    refused_count: int = 0
    is_stopped: bool = False

    def begin(self, total_count: int) -> None:
        """Record that requests may be sent from now on."""
        self.total_count = total_count
        self.changed(self)

    def add(self, *, is_done: bool) -> None:
        """Count one act."""
        self.done_count += is_done
        self.refused_count += not is_done
        self.changed(self)

    def must_stop(self) -> bool:
        """Whether no further act may begin; a signal can change that at any time."""
        return self.is_stopped
