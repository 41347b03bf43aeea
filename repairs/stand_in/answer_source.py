"""What is answered when a broker asks about a transaction: the answers of a plan, or those of the business ledger."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from readers.model.tables import TRANSACTIONS
from repairs.receipts.plan_file import Plan

COMMIT, ROLLBACK = "commit", "rollback"
#: What a broker can be answered; for anything else it gets no answer, because it gives no response to UNKNOWN.
ANSWERED_ACTIONS = (COMMIT, ROLLBACK)
#: For so long it is believed that no other transaction bears a key.
_KEYS_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """What is answered about one transaction: commit, rollback, or nothing; and who says so, or why not."""

    action: str | None
    why: str


class AnswerSource(Protocol):
    """Who knows what became of the local transactions."""

    @property
    def name(self) -> str:
        """What people call it; nothing secret is in it."""

    @property
    def named(self) -> Sequence[str]:
        """The transactions that it is known to decide; none where only a look at them tells."""

    def may_know(self, transaction_id: str) -> bool:
        """Whether it is worth looking at the transaction at all."""

    def of(self, rows: Sequence[Mapping[str, Any]]) -> list[GivenAnswer]:
        """The answers for some rows of TRANSACTIONS, in their order."""


class PlanAnswers:
    """The answers of a plan file: its steps that commit or roll back."""

    def __init__(self, plan: Plan, name: str) -> None:
        self.name = name
        self._steps = {step["transaction_id"]: step for step in plan.steps}

    @property
    def others_count(self) -> int:
        """Steps that no answer can carry out: discard, resume and close."""
        return sum(step["action"] not in ANSWERED_ACTIONS for step in self._steps.values())

    @property
    def named(self) -> Sequence[str]:
        """The transactions that it decides."""
        return [name for name, step in self._steps.items() if step["action"] in ANSWERED_ACTIONS]

    def may_know(self, transaction_id: str) -> bool:
        """Whether the plan names it."""
        return transaction_id in self._steps

    def of(self, rows: Sequence[Mapping[str, Any]]) -> list[GivenAnswer]:
        """What the plan says of some rows."""
        return [self._answer_of(row) for row in rows]

    def _answer_of(self, row: Mapping[str, Any]) -> GivenAnswer:
        step = self._steps.get(row["transaction_id"])
        if step is None:
            return GivenAnswer(None, "the plan does not name it")
        for name in ("producer_group", "topic"):
            if step[name] is not None and step[name] != row[name]:
                return GivenAnswer(None, f"the plan means one of {name.replace('_', ' ')} {step[name]}")
        if step["action"] not in ANSWERED_ACTIONS:
            return GivenAnswer(
                None, f"the plan has the action {step['action']}, which is not an answer to a check: use rmqtx apply"
            )
        return GivenAnswer(step["action"], f"{step['reason']} ({step['reason_from']})")


class LedgerAnswers:
    """The answers of a business ledger, looked up again each time: it may have learnt more since.

    `compare`: rows of TRANSACTIONS → rows of RECONCILED, in the same order. A ledger row that several transactions
    match decides nothing: an order that was sent twice may have been delivered by the other one. So everything seen
    before is compared along, and what `bearing` finds with the same business keys.
    """

    def __init__(self, compare: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]], name: str) -> None:
        self.name = name
        self.bearing: Callable[[str], Iterable[Mapping[str, Any]]] = lambda _key: ()
        self._compare = compare
        self._seen: dict[str, Mapping[str, Any]] = {}
        self._keys: dict[str, float] = {}

    @property
    def named(self) -> Sequence[str]:
        """None: only a look at a transaction tells."""
        return []

    def may_know(self, _transaction_id: str) -> bool:
        """Whether it can be looked up: only its keys tell."""
        return True

    def of(self, rows: Sequence[Mapping[str, Any]]) -> list[GivenAnswer]:
        """What the ledger says of some rows."""
        self._seen.update((row["transaction_id"], row) for row in rows)
        answers = self._compared(rows)
        settled = [row for row, given in zip(rows, answers, strict=True) if given.action is not None]
        return self._compared(rows) if self._see_others(settled) else answers

    def _see_others(self, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Look for other transactions with the keys of some rows; gives whether there are any."""
        now, before = time.monotonic(), len(self._seen)
        for key in dict.fromkeys(key for row in rows for key in (row["keys"] or "").split(" ") if key):
            if now >= self._keys.get(key, 0.0):
                self._seen.update((row["transaction_id"], row) for row in self.bearing(key))
                self._keys[key] = now + _KEYS_SECONDS
        return len(self._seen) > before

    def _compared(self, rows: Sequence[Mapping[str, Any]]) -> list[GivenAnswer]:
        table = pa.Table.from_pylist(
            [{name: row[name] for name in TRANSACTIONS.names} for row in self._seen.values()], schema=TRANSACTIONS
        )
        said = {
            row["transaction_id"]: row for batch in self._compare(table.to_batches()) for row in batch.to_pylist()
        }
        return [_ledger_answer(said[row["transaction_id"]]) for row in rows]


def _ledger_answer(row: Mapping[str, Any]) -> GivenAnswer:
    """Only what the ledger settles and the broker has not decided is answered."""
    is_settled = row["outcome"] == "act" and row["state"] == "PENDING" and row["advice"] in ANSWERED_ACTIONS
    if not is_settled:
        return GivenAnswer(None, row["reason"])
    found = f" ({row['ledger_row']})" if row["ledger_row"] else ""
    return GivenAnswer(row["advice"], f"the ledger says {row['ledger_word'].replace('_', ' ')}{found}")
