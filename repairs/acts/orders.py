"""Orders on their way through an action: what is wanted, what is known, what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from repairs.acts.guards import Refusal
from repairs.acts.proof import Proof
from repairs.acts.request import Wish
from repairs.acts.situation import NamedRecord, Situation
from repairs.receipts.planner import witnesses_of
from repairs.receipts.receipts import Receipt


@dataclass(frozen=True, slots=True)
class Order:
    """One transaction and what is wanted of it; `reason` is why, `plan` the plan file that says so."""

    transaction_id: str
    wish: Wish
    reason: str | None = None
    plan: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Conduct:
    """How orders are carried out.

    Units: milliseconds. `settle_ms` None: as long as the medium says. `prove_ms`: how long the effect is looked for;
           `watch_ms`: how long it is watched after that.
    """

    overrides: tuple[str, ...] = ()
    settle_ms: int | None = None
    prove: bool = True
    prove_ms: int = 30_000
    watch_ms: int = 0
    max_per_second: float | None = None


@dataclass(slots=True)
class Deed:
    """An order on its way: what is known, what the guards said, what came of it.

    Shape: `receipt` is None until something was tried or refused for good. `closed`: half queue offsets of copies that
           the check had put back, and that were closed after the act. `proof` is what the last look showed,
           `whole_since` since when it shows the whole effect, `settled` whether that is for good.
    """

    order: Order
    situation: Situation
    refusals: list[Refusal] = field(default_factory=list)
    receipt: Receipt | None = None
    named: NamedRecord | None = None
    closed: set[int] = field(default_factory=set)
    proof: Proof | None = None
    whole_since: float | None = None
    settled: bool = False

    @property
    def is_allowed(self) -> bool:
        """Whether no guard said no."""
        return not self.refusals

    def begun(self) -> Receipt:
        """Its receipt, which there is from the moment when something is tried."""
        assert self.receipt is not None
        return self.receipt

    def begin(self, conduct: Conduct) -> Receipt:
        """Its receipt, as of now."""
        row = self.situation.row
        named = self.named or self.situation.named
        self.receipt = Receipt(
            action=self.order.wish.action, transaction_id=self.situation.transaction_id,
            store=named.store if named is not None else str(row["store"]), producer_group=row["producer_group"],
            topic=row["topic"], keys=row["keys"], reason=self.order.reason, overrides=list(conduct.overrides),
            plan=None if self.order.plan is None else dict(self.order.plan),
            named_copy=None if named is None else named.place(), state_before=row["state"],
            witnesses_before=witnesses_of(row),
        )  # fmt: skip
        return self.receipt
