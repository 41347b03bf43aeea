"""The outcomes of a race: deliveries to the consumer, compared with what the producer and the tool did."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.brokers.forcing.stage import Stage
from tests.brokers.forcing.tool import Row
from tests.brokers.transaction import Transaction

DECISIONS = {"COMMIT_MESSAGE": "COMMIT", "ROLLBACK_MESSAGE": "ROLLBACK"}
UNDECIDED = "UNDECIDED"


@dataclass(frozen=True)
class Done:
    """The reported outcome of forcing one transaction, and why it was refused."""

    outcome: str
    guard: str | None = None

    @property
    def acted(self) -> bool:
        """Whether a decision was sent."""
        return self.outcome not in ("refused_by_guard", "refused_by_broker", "missing")


@dataclass
class Tally:
    """The figures of one race on one version."""

    race: str
    version: str
    how: str
    transactions: int = 0
    undecided: int = 0
    forced: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    decided_before: int = 0
    decided_refused: Counter[str] = field(default_factory=Counter)
    decided_acted_on: int = 0
    second_deliveries: int = 0
    rolled_back_delivered: int = 0
    committed_lost: int = 0
    unknown: int = 0
    contradicted: int = 0
    both_acted: int = 0
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    """Decided transactions that were decided again, without harm."""

    @property
    def is_guarded(self) -> bool:
        """Whether rmqtx forced with its guards, or naive forcing without."""
        return self.how == "rmqtx"

    @property
    def slug(self) -> str:
        """How it was forced, for file names."""
        return self.how.replace(" ", "-")

    def count(self, stage: Stage, begun: list[Transaction], done: dict[str, Done], action: str) -> None:
        """Add transactions of a command; all deliveries must have happened before."""
        for one in begun:
            self._count(stage, one, done.get(one.case, Done("missing")), action)

    def _count(self, stage: Stage, one: Transaction, done: Done, action: str) -> None:
        decided = decision_of(one)
        delivered = stage.delivered(one)
        self.transactions += 1
        self.contradicted += done.outcome == "contradicted"
        self.unknown += done.outcome in ("unknown", "missing")
        if decided == UNDECIDED:
            self.undecided += 1
            self.forced += done.outcome == "proved"
            if not done.acted:
                self.refused[done.guard or done.outcome] += 1
        else:
            self.decided_before += 1
            self.decided_acted_on += done.acted
            if done.acted and self.is_guarded:
                self.odd.append(f"{one.case} {one.id}: {decided}, {action} {done.outcome}, delivered {delivered} times")
            if not done.acted:
                self.decided_refused[done.guard or done.outcome] += 1
        must_not = decided == "ROLLBACK" or (decided == UNDECIDED and (not done.acted or action != "commit"))
        must = decided == "COMMIT" or (decided == UNDECIDED and done.acted and action == "commit")
        if delivered > 1:
            self.second_deliveries += 1
        if delivered and must_not:
            self.rolled_back_delivered += 1
        if not delivered and must:
            self.committed_lost += 1
        if delivered > 1 or (delivered and must_not) or (not delivered and must):
            self.wrong.append(f"{one.case} {one.id}: {decided}, {action} {done.outcome}, delivered {delivered} times")

    @property
    def is_clean(self) -> bool:
        """Whether nothing was delivered twice, wrongly or not at all."""
        return not (self.second_deliveries or self.rolled_back_delivered or self.committed_lost)

    def row(self) -> dict[str, Any]:
        """The figures as a row of JSON."""
        return {name: dict(value) if isinstance(value, Counter) else value for name, value in vars(self).items()}


def decision_of(one: Transaction) -> str:
    """The decision that the producer reported; UNDECIDED if none."""
    found = {DECISIONS[event["what"]] for event in one.decisions if event["by"] == "client"}
    assert len(found) <= 1, one.case
    return next(iter(found), UNDECIDED)


def done_of(rows: list[Row], begun: list[Transaction]) -> dict[str, Done]:
    """The outcomes in the rows of `rmqtx`, by case."""
    cases = {one.id: one.case for one in begun}
    found: dict[str, Done] = {}
    for row in rows:
        if row.get("transaction_id") in cases:
            found[cases[row["transaction_id"]]] = Done(row["outcome"], guard_of(row))
    return found


def guard_of(row: Row) -> str | None:
    """The guard that a refused row names."""
    if row["outcome"] != "refused_by_guard":
        return None
    notes = row.get("notes") or [""]
    return str(notes[0]).partition(":")[0]
