"""Rows, situations and a medium made by hand, for what a real broker cannot be asked to do at a given moment."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from rmqtx.remoting.protocol.answers import Answer
from rmqtx.remoting.protocol.codes import COMMIT, ROLLBACK
from rmqtx.repairs.acts.medium import Tail
from rmqtx.repairs.acts.situation import ActConditions, NamedRecord, Situation
from rmqtx.repairs.receipts.receipts import Receipt, Request
from rmqtx.verdicts.model.final_record import FinalRecord
from rmqtx.verdicts.model.transaction import OpMark, Transaction

STORE = "broker-a@127.0.0.1:10911"
NOW_MS = 1_790_000_000_000


def place(queue_offset: int, offset: int, **more: Any) -> dict[str, Any]:
    """One entry of an evidence list."""
    return {
        "store": STORE, "queue_id": 0, "queue_offset": queue_offset, "commit_log_offset": offset,
        "store_time_ms": NOW_MS - 60_000, **more,
    }


def row(state: str = "PENDING", **more: Any) -> dict[str, Any]:
    """A row of TRANSACTIONS with one half copy."""
    return {
        "store": STORE, "transaction_id": "T1", "state": state, "flags": [], "reason": "because", "advice": "wait",
        "producer_group": "shop", "topic": "orders", "queue_id": 1, "keys": "order-1", "born_time_ms": NOW_MS - 60_000,
        "half_store_time_ms": NOW_MS - 60_000, "decided_time_ms": None, "checks_count": 0,
        "half_copies": [place(7, 700, checks_count=None)], "op_marks": [], "final_records": [], "discard_copies": [],
        "state_entries": [], "discard_at_ms": None, "next_event": "none", "next_event_at_ms": None,
        "answer_effect": None,
        "deliveries_count": 0,
        "reason_code": "check_to_come", "causes": None, **more,
    }


def transaction(state: str = "PENDING", **more: Any) -> Transaction:
    """The transaction of such a row."""
    return Transaction.of(row(state, **more))


def mark(half_queue_offset: int, queue_offset: int = 3) -> dict[str, Any]:
    """An op mark."""
    return place(queue_offset, 9_000 + queue_offset, half_queue_offset=half_queue_offset)


def final(queue_offset: int = 0) -> dict[str, Any]:
    """A final."""
    return place(queue_offset, 8_000 + queue_offset, topic="orders")


def record(queue_offset: int = 7, offset: int = 700, sys_flag: int = 0) -> NamedRecord:
    """A record that an action names."""
    return NamedRecord(STORE, 0, queue_offset, offset, 400, 1, sys_flag, NOW_MS - 60_000, "7F" * 16)


def around(**more: Any) -> ActConditions:
    """ActConditions in which no guard says no."""
    quiet = ActConditions(
        version=(5, 3, 3), is_slave=False, settle_ms=8_500, settled_ms=8_500,
        file_reserved_time_hours=72, now_ms=NOW_MS, producers=(),
    )
    return replace(quiet, **more)


def situation(facts: dict[str, Any] | None = None, surroundings: ActConditions | None = None, **more: Any) -> Situation:
    """A situation; half copy and discard copy as the row has them unless given."""
    facts = facts or row()
    half = record(facts["half_copies"][-1]["queue_offset"]) if facts["half_copies"] else None
    discard = record(0, 999) if facts["discard_copies"] else None
    values = {"half_copy": half, "discard_copy": discard, "named": half, **more}
    return Situation(Transaction.of(facts), conditions=surroundings or around(), **values)


@dataclass
class FakeMedium:
    """A store of transactions that can be told what happens at each look and at each act.

    `on_look` and `on_act` are called with the rows, which they may change.
    """

    rows: dict[str, dict[str, Any]]
    surroundings: ActConditions = field(default_factory=around)
    rivals: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    on_look: Any = None
    on_act: Any = None
    answer: Answer | Exception = field(default_factory=lambda: Answer(0, None))
    looks: int = 0
    waited_ms: int = 0
    acts: list[tuple[str, int]] = field(default_factory=list)
    fresh: list[tuple[str, NamedRecord]] = field(default_factory=list)
    cursor: int | None = 1_000_000
    lacking: str | None = None
    is_exclusive: bool = False
    is_untouched: bool = False

    def look(self, transaction_ids: Sequence[str]) -> list[Transaction]:
        self.looks += 1
        if self.on_look is not None:
            self.on_look(self)
        return [Transaction.of(self.rows[name]) for name in transaction_ids if name in self.rows]

    def situations(self, rows: Sequence[Transaction], *, settled_ms: int) -> list[Situation]:
        return [situation(one.row(), replace(self.surroundings, settled_ms=settled_ms)) for one in rows]

    @contextmanager
    def claimed(self, situations: Iterable[Situation]) -> Iterator[Mapping[str, tuple[str, ...]]]:
        yield self.rivals

    def wait(self, wait_ms: int) -> None:
        self.waited_ms += wait_ms

    def record(self, situation: Situation, queue_offset: int) -> NamedRecord | None:
        numbers = [copy.queue_offset for copy in situation.transaction.half_copies]
        return record(queue_offset) if queue_offset in numbers else None

    def tail(self, transaction_ids: Collection[str]) -> Tail:
        found, self.fresh = self.fresh, []
        return Tail([(name, copy) for name, copy in found if name in transaction_ids], len(found))

    def open_copies(self, situation: Situation) -> list[int]:
        return situation.transaction.copies_without_op()

    def check_cursors(self) -> dict[str, int]:
        return {} if self.cursor is None else {STORE: self.cursor}

    def decide(self, named: NamedRecord, situation: Situation, decision: int, receipt: Receipt) -> Answer:
        word = "commit" if decision == COMMIT else "rollback"
        entry = receipt.asked("END_TRANSACTION", {"what": word})
        return self._act(word, named.queue_offset, entry)

    def redeliver(self, named: NamedRecord, situation: Situation, receipt: Receipt) -> Answer:
        return self.decide(named, situation, COMMIT, receipt)

    def discard(self, named: NamedRecord, situation: Situation, receipt: Receipt) -> Answer:
        return self.decide(named, situation, ROLLBACK, receipt)

    def not_in_queue(self, record: FinalRecord | OpMark) -> str | None:
        return self.lacking

    def finish(self) -> Mapping[str, str]:
        return {}

    def resume(self, named: NamedRecord, receipt: Receipt) -> Answer:
        return self._act("resume", named.queue_offset, receipt.asked("RESUME_CHECK_HALF_MESSAGE", {}))

    def _act(self, word: str, queue_offset: int, entry: Request) -> Answer:
        self.acts.append((word, queue_offset))
        if self.on_act is not None:
            self.on_act(self, word, queue_offset)
        if isinstance(self.answer, Exception):
            raise self.answer
        entry.answered(self.answer.code, self.answer.remark)
        return self.answer


def as_a_broker(medium: FakeMedium, word: str, queue_offset: int) -> None:
    """What a broker writes when it is told to decide."""
    facts = medium.rows["T1"]
    if word == "resume":
        newest = facts["half_copies"][-1]["queue_offset"] + 10
        facts["half_copies"] = [*facts["half_copies"], place(newest, newest * 100, checks_count=0)]
        facts["state"] = "PENDING"
        return
    facts["op_marks"] = [*facts["op_marks"], mark(queue_offset, len(facts["op_marks"]))]
    if word == "commit":
        facts["final_records"] = [*facts["final_records"], final(len(facts["final_records"]))]
    facts["state"] = "COMMITTED" if facts["final_records"] else "ROLLED_BACK"
    if len(facts["final_records"]) > 1:
        facts["flags"] = ["duplicate_commit"]
