"""The table of a stand-in: one row for each transaction of its group, before it starts and after it has ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from rmqtx.readers.model.tables import TRANSACTIONS, column
from rmqtx.remoting.producer.producer import Check
from rmqtx.repairs.acts.situation import NamedRecord, Situation
from rmqtx.repairs.receipts.act_words import ANSWERED, OUTCOMES, ActKind, ActOutcome
from rmqtx.repairs.receipts.receipts import Receipt
from rmqtx.repairs.stand_in.answer_source import GivenAnswer
from rmqtx.verdicts.model.transaction import Transaction

#: One transaction and what a stand-in answers.
ANSWERS = pa.schema(
    [
        TRANSACTIONS.field("store"),
        TRANSACTIONS.field("transaction_id"),
        TRANSACTIONS.field("producer_group"),
        TRANSACTIONS.field("topic"),
        TRANSACTIONS.field("keys"),
        TRANSACTIONS.field("half_store_time_ms"),
        TRANSACTIONS.field("checks_count"),
        TRANSACTIONS.field("state"),
        column(
            "answer", pa.string(), "commit or rollback; null: no answer, and the broker will check it again",
            values=ANSWERED,
        ),
        column("answer_reason", pa.string(), "source of the answer, or why there is none"),
        column("asked_count", pa.int32(), "number of checks that the stand-in received for it"),
        column("outcome", pa.string(), f"{', '.join(OUTCOMES)}; null: nothing was answered", values=OUTCOMES),
        column("outcome_reason", pa.string(), "what proves the outcome, or what prevents it"),
        column("half_queue_offset", pa.int64(), "the half copy that the broker checked and the answer named"),
        column("commit_log_offset", pa.int64(), "offset of that copy in the commit log"),
        column("final_commit_log_offset", pa.int64(), "the message as consumers get it; null unless committed"),
        column("receipt_id", pa.string(), "its receipt: rmqtx receipts"),
    ]
)


@dataclass(slots=True)
class Task:
    """One transaction and the progress of its answer.

    Shape: `transaction` is as it was read last. `named`, `before` and `receipt` belong to the last
           answer, which is open until `outcome` is final; `decided`: the decision that the broker acknowledged;
           `closed_queue_offset`: the newest copy that was closed after the decision.
    """

    transaction: Transaction
    given: GivenAnswer
    asked_count: int = 0
    check: Check | None = None
    named: NamedRecord | None = None
    before: Transaction | None = None
    receipt: Receipt | None = None
    outcome: ActOutcome | None = None
    outcome_reason: str | None = None
    decided: ActKind | None = None
    proof_until: float | None = None
    situation: Situation | None = None
    closed_queue_offset: int = -1

    @property
    def transaction_id(self) -> str:
        """Its id."""
        return self.transaction.transaction_id

    @property
    def is_open(self) -> bool:
        """Whether an answer was sent and its effect is still awaited."""
        return self.proof_until is not None

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to do: answered and verified, or finally refused."""
        return self.outcome not in (None, ActOutcome.NOT_SENT) and not self.is_open

    def as_row(self) -> dict[str, object]:
        """The task as a row of ANSWERS."""
        finals = self.transaction.final_records
        values = {
            "answer": self.given.action, "answer_reason": self.given.why, "asked_count": self.asked_count,
            "outcome": self.outcome, "outcome_reason": self.outcome_reason,
            "half_queue_offset": None if self.named is None else self.named.queue_offset,
            "commit_log_offset": None if self.named is None else self.named.commit_log_offset,
            "final_commit_log_offset": finals[-1].commit_log_offset if finals else None,
            "receipt_id": None if self.receipt is None else self.receipt.receipt_id,
        }
        return {name: values[name] if name in values else getattr(self.transaction, name) for name in ANSWERS.names}


def answers_table(tasks: Iterable[Task]) -> pa.Table:
    """Tasks as a table. Shape: ANSWERS. Order: kept."""
    return pa.Table.from_pylist([task.as_row() for task in tasks], schema=ANSWERS)
