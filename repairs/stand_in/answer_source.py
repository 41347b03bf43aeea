"""Sources of answers to a broker's checks: a plan, or the business ledger."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from rmqtx.readers.model.identities import keys_of
from rmqtx.readers.model.tables import TRANSACTIONS
from rmqtx.repairs.receipts.act_words import ANSWERED, ActKind
from rmqtx.repairs.receipts.plan_file import Plan
from rmqtx.verdicts.model.transaction import Transaction
from rmqtx.verdicts.model.verdict_words import State

#: How long a lookup of other transactions with a key stays valid.
_KEYS_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """The answer for one transaction: commit, rollback or None; and its source, or why there is none."""

    action: ActKind | None
    why: str


class AnswerSource(Protocol):
    """A source of the outcomes of local transactions."""

    @property
    def name(self) -> str:
        """Its name for people, without secrets."""

    @property
    def named(self) -> Sequence[str]:
        """Ids of the transactions that it decides; empty where this is known only after a lookup of a transaction."""

    def may_decide(self, transaction_id: str) -> bool:
        """Whether it may have an answer for a transaction."""

    def of(self, rows: Sequence[Transaction]) -> list[GivenAnswer]:
        """Return the answers for some transactions, in their order."""


class PlanAnswers:
    """The answers of a plan file: its steps that commit or roll back."""

    def __init__(self, plan: Plan, name: str) -> None:
        self.name = name
        self._steps = {step.transaction_id: step for step in plan.steps}

    @property
    def others_count(self) -> int:
        """Steps that no answer can carry out: discard, resume and close."""
        return sum(step.action not in ANSWERED for step in self._steps.values())

    @property
    def named(self) -> Sequence[str]:
        """The transactions that it decides."""
        return [name for name, step in self._steps.items() if step.action in ANSWERED]

    def may_decide(self, transaction_id: str) -> bool:
        """Whether the plan names the transaction."""
        return transaction_id in self._steps

    def of(self, rows: Sequence[Transaction]) -> list[GivenAnswer]:
        """Return the plan's answers for some rows."""
        return [self._answer_of(row) for row in rows]

    def _answer_of(self, row: Transaction) -> GivenAnswer:
        step = self._steps.get(row.transaction_id)
        if step is None:
            return GivenAnswer(None, "the plan does not name it")
        for name in ("producer_group", "topic"):
            if getattr(step, name) is not None and getattr(step, name) != getattr(row, name):
                words = f"{name.replace('_', ' ')} {getattr(step, name)}, not {getattr(row, name)}"
                return GivenAnswer(None, f"the plan names a transaction with {words}")
        if step.action not in ANSWERED:
            return GivenAnswer(
                None, f"the plan has the action {step.action}, which is not an answer to a check: use rmqtx apply"
            )
        return GivenAnswer(step.action, f"{step.reason} ({step.reason_from})")


class LedgerAnswers:
    """The answers of a business ledger, which is read again each time because rows may have been added.

    `compare`: rows of TRANSACTIONS → rows of RECONCILED, in the same order. A ledger row that several transactions
    match decides none of them: an order that was sent twice may already be delivered by the other transaction. So all
    transactions seen before are compared too, and those that `with_key` finds for the same business keys.
    """

    def __init__(self, compare: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]], name: str) -> None:
        self.name = name
        self.with_key: Callable[[str], Iterable[Transaction]] = lambda _key: ()
        self._compare = compare
        self._seen: dict[str, Transaction] = {}
        self._keys: dict[str, float] = {}

    @property
    def named(self) -> Sequence[str]:
        """Empty: the transaction must be looked up first, for its keys."""
        return []

    def may_decide(self, _transaction_id: str) -> bool:
        """True: this depends on the transaction's keys."""
        return True

    def of(self, rows: Sequence[Transaction]) -> list[GivenAnswer]:
        """Return the ledger's answers for some rows."""
        self._seen.update((row.transaction_id, row) for row in rows)
        answers = self._compared(rows)
        settled = [row for row, given in zip(rows, answers, strict=True) if given.action is not None]
        return self._compared(rows) if self._see_others(settled) else answers

    def _see_others(self, rows: Sequence[Transaction]) -> bool:
        """Look up other transactions with the keys of some rows, and return whether there are any new ones."""
        now, before = time.monotonic(), len(self._seen)
        for key in dict.fromkeys(key for row in rows for key in keys_of(row.keys) if key):
            if now >= self._keys.get(key, 0.0):
                self._seen.update((row.transaction_id, row) for row in self.with_key(key))
                self._keys[key] = now + _KEYS_SECONDS
        return len(self._seen) > before

    def _compared(self, rows: Sequence[Transaction]) -> list[GivenAnswer]:
        table = pa.Table.from_pylist(
            [transaction.row() for transaction in self._seen.values()], schema=TRANSACTIONS
        )
        reconciled = {
            row["transaction_id"]: row for batch in self._compare(table.to_batches()) for row in batch.to_pylist()
        }
        return [_ledger_answer(reconciled[row.transaction_id]) for row in rows]


def _ledger_answer(row: Mapping[str, Any]) -> GivenAnswer:
    """Return the answer of a row of RECONCILED; None unless the ledger decides it and the broker has it pending."""
    is_settled = row["outcome"] == "act" and row["state"] == State.PENDING and row["advice"] in ANSWERED
    if not is_settled:
        return GivenAnswer(None, row["reason"])
    found = f" ({row['ledger_row']})" if row["ledger_row"] else ""
    return GivenAnswer(ActKind(row["advice"]), f"outcome in the ledger: {row['ledger_word'].replace('_', ' ')}{found}")
