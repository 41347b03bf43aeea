"""The effects of a stand-in's answers: looked up until they are visible, then recorded in their receipts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rmqtx.repairs.acts.named_copies import is_in_rocksdb
from rmqtx.repairs.acts.proof import Seen, proof_of
from rmqtx.repairs.acts.situation import NamedRecord
from rmqtx.repairs.receipts.act_words import ActKind, ActOutcome
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.receipts.plan_rows import witnesses_of
from rmqtx.repairs.receipts.receipts import Receipt
from rmqtx.repairs.stand_in.answer_table import Task
from rmqtx.verdicts.model.transaction import Transaction

_LOOK_SECONDS = 0.5


class LookMedium(Protocol):
    """What this module needs of live brokers."""

    def look(self, transaction_ids: Sequence[str]) -> list[Transaction]:
        """Return some transactions as they are now, by their ids."""


@dataclass(slots=True)
class _Closing:
    """A copy that was closed and whose op message is not visible yet."""

    receipt: Receipt
    named: NamedRecord
    before: Transaction
    until: float


#: Returns the check cursor of a broker's half queue, by the broker's root; None: unknown.
CheckCursor = Callable[[str], int | None]


class Effects:
    """Looks up effects, and completes the receipts.

    A pass of the check that began before an op message was written may still put a copy back afterwards. So a proved
    answer is watched until the check has passed the copy that it named: only then no new copy can appear.
    `prove_ms`: how long each effect is looked for, and watched. `note`: takes a line for each problem.
    """

    def __init__(
        self, medium: LookMedium, check_cursor: CheckCursor, journal: Journal, prove_ms: int,
        note: Callable[[str], None],
    ) -> None:
        self._medium = medium
        self._check_cursor = check_cursor
        self._journal = journal
        self._prove_seconds = prove_ms / 1000
        self._note = note
        self._closings: list[_Closing] = []
        self._watched: dict[str, tuple[NamedRecord, float]] = {}
        self._next_look = 0.0

    def await_closing(self, receipt: Receipt, named: NamedRecord, before: Transaction) -> None:
        """Also look for the op message of a copy that was closed."""
        self._watch(receipt.acted_on, named)
        self._closings.append(_Closing(receipt, named, before, time.monotonic() + self._prove_seconds))

    def are_awaited(self, tasks: Iterable[Task]) -> bool:
        """Whether any effect is still awaited or watched."""
        return bool(self._closings or self._watched) or any(task.is_open for task in tasks)

    def look(self, tasks: Iterable[Task]) -> None:
        """Look up the open answers once, if it is time. Raises: RemotingError, UnwritableFile."""
        waiting = [task for task in tasks if task.is_open]
        names = [*(task.transaction_id for task in waiting), *(one.receipt.acted_on for one in self._closings)]
        if not (names or self._watched) or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _LOOK_SECONDS
        self._end_watches()
        if not names:
            return
        rows = {row.transaction_id: row for row in self._medium.look(list(dict.fromkeys(names)))}
        for task in waiting:
            if task.transaction_id in rows:
                self._prove(task, rows[task.transaction_id])
        self._closings = [one for one in self._closings if not self._is_closed(one, rows)]

    def _watch(self, transaction_id: str, named: NamedRecord) -> None:
        self._watched[transaction_id] = named, time.monotonic() + self._prove_seconds

    def _end_watches(self) -> None:
        """Stop watching copies that the check has passed, or that were watched long enough."""
        if not self._watched:
            return
        cursors = {store: self._check_cursor(store) for store in {named.store for named, _ in self._watched.values()}}
        now = time.monotonic()
        self._watched = {
            name: (named, until)
            for name, (named, until) in self._watched.items()
            if now < until and (cursors[named.store] or 0) <= named.queue_offset
        }

    def _prove(self, task: Task, row: Transaction) -> None:
        assert task.receipt is not None
        assert task.named is not None
        assert task.before is not None
        assert task.proof_until is not None
        task.transaction = row
        proof = proof_of(
            task.receipt.action, task.named.place(), task.before, row, is_in_rocksdb=is_in_rocksdb(task.named)
        )
        if proof.seen is Seen.WHOLE:
            self._watch(task.transaction_id, task.named)
            self.end(task, ActOutcome.PROVED, _seen_text(row, task.named))
        elif proof.seen is Seen.CONTRADICTED:
            self.end(task, ActOutcome.CONTRADICTED, proof.contradiction or "")
        elif time.monotonic() > task.proof_until:
            is_known = task.decided is not None or (task.receipt.action == ActKind.COMMIT and row.final_records)
            outcome = ActOutcome.ACCEPTED if is_known else ActOutcome.UNKNOWN
            self.end(task, outcome, proof.lacking or "its effect was not seen")
        else:
            task.outcome_reason = proof.lacking

    def _is_closed(self, closing: _Closing, rows: Mapping[str, Transaction]) -> bool:
        """Whether the wait for the op message of a closed copy is over; then its receipt is complete."""
        receipt, row = closing.receipt, rows.get(closing.receipt.acted_on)
        is_late = time.monotonic() >= closing.until
        if row is not None:
            proof = proof_of(
                ActKind.CLOSE, closing.named.place(), closing.before, row, is_in_rocksdb=is_in_rocksdb(closing.named)
            )
            if proof.seen is Seen.CONTRADICTED:
                receipt.outcome = ActOutcome.CONTRADICTED
                receipt.notes.append(proof.contradiction or "")
            elif closing.named.queue_offset in {mark.half_queue_offset for mark in row.op_marks} or (
                is_in_rocksdb(closing.named) and proof.seen is Seen.WHOLE
            ):
                receipt.outcome = ActOutcome.PROVED
            elif not is_late:
                return False
            _look_after(receipt, row)
        elif not is_late:
            return False
        self._journal.end(receipt)
        return True

    def end(self, task: Task, outcome: ActOutcome, why: str) -> None:
        """Record an outcome. Raises: UnwritableFile."""
        assert task.receipt is not None
        receipt = task.receipt
        task.outcome, task.outcome_reason, task.proof_until = outcome, why, None
        receipt.outcome = outcome
        _look_after(receipt, task.transaction)
        receipt.notes.append(why)
        self._journal.end(receipt)
        if outcome not in (ActOutcome.PROVED, ActOutcome.REFUSED_BY_GUARD):
            self._note(f"{task.transaction_id}: {outcome}: {why}")

    def record_unseen(self, tasks: Iterable[Task]) -> None:
        """Record the effects that were not seen in time. Raises: UnwritableFile."""
        for task in tasks:
            if task.is_open:
                self.end(task, task.outcome or ActOutcome.UNKNOWN, "the stand-in ended before the effect was visible")
        for closing in self._closings:
            self._journal.end(closing.receipt)
        self._closings, self._watched = [], {}


def _look_after(receipt: Receipt, row: Transaction) -> None:
    """Record the state after an answer in its receipt."""
    receipt.state_after, receipt.flags_after = row.state, list(row.flags)
    receipt.witnesses_after = witnesses_of(row)


def _seen_text(row: Transaction, named: NamedRecord) -> str:
    number = None if is_in_rocksdb(named) else named.queue_offset
    mark = next((mark for mark in row.op_marks if mark.half_queue_offset == number), None)
    op = "" if mark is None else f"op message at queue offset {mark.queue_offset}"
    finals = row.final_records
    if not finals:
        return f"{op}, no final"
    final = finals[-1]
    return f"final in {final.topic} queue {final.queue_id} at queue offset {final.queue_offset}, {op}"
