"""A stand-in at moments that a real broker cannot be asked for: it answers once, or not at all."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqtx.readers.ledger.ledger import open_ledger
from rmqtx.readers.model import clock
from rmqtx.remoting.producer.producer import Check
from rmqtx.remoting.protocol.answers import Answer
from rmqtx.remoting.protocol.errors import NoAnswer, Unreachable
from rmqtx.repairs.acts.claims import Others
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.receipts.plan_file import Plan, Step
from rmqtx.repairs.receipts.receipts import Receipt
from rmqtx.repairs.stand_in.answer_source import GivenAnswer, LedgerAnswers, PlanAnswers
from rmqtx.repairs.stand_in.answer_table import ANSWERS, answers_table
from rmqtx.repairs.stand_in.stand_in import StandIn, StandInConduct
from rmqtx.verdicts.ledger.join import reconcile
from rmqtx.verdicts.ledger.reconcile import RECONCILED
from rmqtx.verdicts.model.transaction import Transaction
from rmqtx.verdicts.model.verdict_words import State
from rmqtx_cli.options.ledgers import LedgerQuery
from tests.repairs.forge import FakeMedium, as_a_broker, final, mark, place, row, transaction

MEMBER = Others(members=("shop-3 at 10.0.0.7:4711",))


class FakeWatch:
    """Says who is there; as long alone as it is told."""

    def __init__(self, *seen: Others, alone_ms: int = 60_000) -> None:
        self._next = list(seen)
        self.seen = Others()
        self.alone_ms = alone_ms

    def look(self, *, if_due: bool = False) -> Others:
        self.seen = self._next.pop(0) if self._next else self.seen
        return self.seen


class FixedAnswers:
    """Says the same of everything."""

    name = "the test"
    named: tuple[str, ...] = ()

    def __init__(self, action: ActKind | None) -> None:
        self.action = action

    def may_decide(self, transaction_id: str) -> bool:
        return transaction_id != "stranger"

    def of(self, rows: Sequence[Transaction]) -> list[GivenAnswer]:
        return [GivenAnswer(self.action, "the test says so") for _ in rows]


def check(queue_offset: int = 7, name: str | None = "T1") -> Check:
    heard_ms = clock.now_ms()
    return Check("127.0.0.1:10911", queue_offset, queue_offset * 100, name, None, received_time_ms=heard_ms)


class Played:
    """A stand-in that hears some questions, runs until it has nothing to do, and what came of it."""

    def __init__(
        self, tmp_path: Path, medium: FakeMedium, *checks: Check, action: ActKind | None = ActKind.COMMIT,
        watch: FakeWatch | None = None, overrides: tuple[str, ...] = (), seconds: float = 60,
    ) -> None:
        self.said: list[str] = []
        self.journal = Journal(tmp_path / "receipts.jsonl")
        conduct = StandInConduct("shop", "a test", overrides, prove_ms=1_000)
        self.stand_in = StandIn(
            conduct, medium, lambda _: 1_000, FixedAnswers(action), self.journal, watch or FakeWatch(), self.said.append  # type: ignore[arg-type]
        )
        for one in checks:
            self.stand_in.receive(one)
        end = time.monotonic() + seconds
        tasks = self.stand_in.tasks
        self.stand_in.run(
            lambda: time.monotonic() > end or (bool(tasks) and all(task.is_settled for task in tasks.values()))
        )

    @property
    def outcomes(self) -> list[tuple[str, str]]:
        return [(receipt.action, receipt.outcome) for receipt in self.journal.read().receipts]


def test_a_question_is_answered_once_and_proved(tmp_path: Path) -> None:
    medium = FakeMedium({"T1": row()}, on_act=as_a_broker)
    played = Played(tmp_path, medium, check(), check())
    assert medium.acts == [(ActKind.COMMIT, 7)]
    assert played.outcomes == [(ActKind.COMMIT, "proved")]
    receipt = played.journal.read().receipts[0]
    assert receipt.notes[0] == "answered the broker's check of half copy 7 in place of the producer group"
    assert receipt.reason == "a test"
    assert played.stand_in.is_done


def test_nothing_is_answered_where_nobody_knows(tmp_path: Path) -> None:
    medium = FakeMedium({"T1": row()}, on_act=as_a_broker)
    played = Played(tmp_path, medium, check(), check(name="stranger"), check(name=None), action=None, seconds=0.5)
    assert medium.acts == []
    assert played.outcomes == []
    assert played.stand_in.unmatched_count == 2


@pytest.mark.parametrize(
    ("facts", "guard"),
    [
        (row("COMMITTED", final_records=[final()]), "already-delivered"),
        (row("ROLLED_BACK", op_marks=[mark(7)]), "already-decided"),
        (row(producer_group="other"), "wrong-group"),
    ],
)
def test_what_is_decided_already_is_not_answered(tmp_path: Path, facts: dict[str, Any], guard: str) -> None:
    medium = FakeMedium({"T1": facts}, on_act=as_a_broker)
    played = Played(tmp_path, medium, check(), check(), seconds=0.6)
    assert medium.acts == []
    assert played.outcomes == [(ActKind.COMMIT, "refused_by_guard")]
    assert guard in played.said[0]


def test_only_the_newest_copy_is_answered(tmp_path: Path) -> None:
    facts = row(half_copies=[place(7, 700), place(17, 1_700, checks_count=1)])
    medium = FakeMedium({"T1": facts}, on_act=as_a_broker)
    assert Played(tmp_path, medium, check(7), seconds=0.6).outcomes == []
    assert medium.acts == []
    Played(tmp_path, medium, check(17))
    assert medium.acts == [(ActKind.COMMIT, 17)]


def test_a_copy_that_does_not_show_yet_is_waited_for(tmp_path: Path) -> None:
    medium = FakeMedium({"T1": row()}, on_act=as_a_broker)

    def appears(medium: FakeMedium) -> None:
        if medium.looks == 2:
            medium.rows["T1"]["half_copies"] = [place(7, 700), place(17, 1_700, checks_count=1)]

    medium.on_look = appears
    Played(tmp_path, medium, check(17))
    assert medium.acts == [(ActKind.COMMIT, 17)]


def test_a_decision_under_way_is_waited_for(tmp_path: Path) -> None:
    medium = FakeMedium({"T1": row()}, on_act=as_a_broker)
    watch = FakeWatch(alone_ms=1_000)
    played = Played(tmp_path, medium, check(), watch=watch, seconds=0.6)
    assert medium.acts == []
    assert played.outcomes == []
    assert "decision-in-flight" in str(played.stand_in.tasks["T1"].outcome_reason)


def test_copies_put_back_after_the_answer_are_closed_and_never_committed_again(tmp_path: Path) -> None:
    """An op takes a while (5.1.0+), and until it is written the check goes on: a second COMMIT would deliver twice."""
    medium = FakeMedium({"T1": row()})

    def slow_broker(medium: FakeMedium, word: str, queue_offset: int) -> None:
        as_a_broker(medium, word, queue_offset)
        if queue_offset == 7:
            copies = medium.rows["T1"]["half_copies"]
            medium.rows["T1"]["half_copies"] = [*copies, place(17, 1_700, checks_count=1)]
            played_in.receive(check(17))

    medium.on_act = slow_broker
    conduct = StandInConduct("shop", prove_ms=1_000)
    journal = Journal(tmp_path / "receipts.jsonl")
    words, cursor = FixedAnswers(ActKind.COMMIT), lambda _: 1_000
    played_in = StandIn(conduct, medium, cursor, words, journal, FakeWatch(), lambda _: None)  # type: ignore[arg-type]
    played_in.receive(check(7))
    end = time.monotonic() + 1.5
    played_in.run(lambda: time.monotonic() > end)
    assert medium.acts == [(ActKind.COMMIT, 7), (ActKind.ROLLBACK, 17)]
    assert sorted((one.action, one.outcome) for one in journal.read().receipts) == [
        (ActKind.CLOSE, "proved"), (ActKind.COMMIT, "proved"),
    ]
    assert len(medium.rows["T1"]["final_records"]) == 1


def test_what_the_check_has_not_passed_is_watched_and_closed(tmp_path: Path) -> None:
    """A pass that began before the op message was written puts a copy back after it was seen."""
    medium = FakeMedium({"T1": row()}, on_act=as_a_broker)
    cursors = iter([7, 7, 7])

    def check_cursor(_root: str) -> int | None:
        cursor = next(cursors, 18)
        if cursor == 7 and len(medium.rows["T1"]["half_copies"]) == 1:
            medium.rows["T1"]["half_copies"] = [place(7, 700), place(17, 1_700, checks_count=1)]
            stand_in.receive(check(17))
        return cursor

    conduct, journal = StandInConduct("shop", prove_ms=4_000), Journal(tmp_path / "receipts.jsonl")
    words, watch = FixedAnswers(ActKind.COMMIT), FakeWatch()
    stand_in = StandIn(conduct, medium, check_cursor, words, journal, watch, lambda _: None)  # type: ignore[arg-type]
    stand_in.receive(check(7))
    stand_in.propose([transaction()])
    end = time.monotonic() + 6
    stand_in.run(lambda: stand_in.is_done or time.monotonic() > end)
    assert medium.acts == [(ActKind.COMMIT, 7), (ActKind.ROLLBACK, 17)]
    assert sorted(one.outcome for one in journal.read().receipts) == ["proved", "proved"]


def test_members_of_the_group_end_it_before_the_next_answer(tmp_path: Path) -> None:
    medium = FakeMedium({"T1": row()}, on_act=as_a_broker)
    played = Played(tmp_path, medium, check(), watch=FakeWatch(Others(), MEMBER))
    assert medium.acts == []
    assert played.stand_in.stopped_by == MEMBER
    overridden = Played(tmp_path, medium, check(), watch=FakeWatch(MEMBER), overrides=("producer-connected",))
    assert overridden.stand_in.stopped_by is None
    assert medium.acts == [(ActKind.COMMIT, 7)]


def test_while_nobody_can_say_who_is_connected_nothing_is_answered(tmp_path: Path) -> None:
    medium = FakeMedium({"T1": row()}, on_act=as_a_broker)
    played = Played(tmp_path, medium, check(), watch=FakeWatch(Others(unknown="broker-b is away")), seconds=0.6)
    assert medium.acts == []
    assert "broker-b is away" in str(played.stand_in.tasks["T1"].outcome_reason)
    assert played.said == ["not answering while the connected producers of the group are unknown: broker-b is away"]


def test_what_cannot_be_found_does_not_keep_others_waiting(tmp_path: Path) -> None:
    medium = FakeMedium({"T1": row()}, on_act=as_a_broker)
    lost = [check(name=f"lost-{number}") for number in range(40)]
    played = Played(tmp_path, medium, *lost, check(), seconds=2)
    assert medium.acts == [(ActKind.COMMIT, 7)]
    assert played.outcomes == [(ActKind.COMMIT, "proved")]


def test_an_answer_that_was_not_sent_is_given_when_the_broker_asks_again(tmp_path: Path) -> None:
    medium = FakeMedium({"T1": row()}, on_act=None, answer=Unreachable("the broker is away"))
    played = Played(tmp_path, medium, check(), seconds=0.6)
    assert played.outcomes == [(ActKind.COMMIT, "not_sent")]
    assert not played.stand_in.tasks["T1"].is_settled


def test_an_answer_nobody_knows_of_is_looked_for_and_not_repeated(tmp_path: Path) -> None:
    medium = FakeMedium({"T1": row()}, on_act=as_a_broker, answer=NoAnswer("cut off"))
    played = Played(tmp_path, medium, check())
    assert medium.acts == [(ActKind.COMMIT, 7)]
    assert played.outcomes == [(ActKind.COMMIT, "proved")]


def test_an_answer_of_a_killed_stand_in_may_arrive_late_so_no_other_one_is_sent(tmp_path: Path) -> None:
    Journal(tmp_path / "receipts.jsonl").begin(Receipt(ActKind.COMMIT, "T1", "broker-a@127.0.0.1:10911"))
    medium = FakeMedium({"T1": row()}, on_act=as_a_broker)
    played = Played(tmp_path, medium, check(), seconds=0.6)
    assert medium.acts == []
    assert played.stand_in.tasks["T1"].outcome is None


def test_an_unanswered_answer_is_not_followed_by_another_one_while_it_may_arrive(tmp_path: Path) -> None:
    medium = FakeMedium({"T1": row()}, answer=NoAnswer("cut off"))
    played = Played(tmp_path, medium, check(), seconds=2.5)
    assert played.outcomes == [(ActKind.COMMIT, "unknown")]
    played.stand_in.receive(check(9))
    medium.rows["T1"] = row(half_copies=[place(7, 700), place(9, 900)])
    end = time.monotonic() + 0.6
    played.stand_in.run(lambda: time.monotonic() > end)
    assert medium.acts == [(ActKind.COMMIT, 7)]


def test_a_lost_answer_is_unknown(tmp_path: Path) -> None:
    medium = FakeMedium({"T1": row()}, answer=NoAnswer("cut off"))
    played = Played(tmp_path, medium, check(), seconds=2.5)
    assert medium.acts == [(ActKind.COMMIT, 7)]
    assert played.outcomes == [(ActKind.COMMIT, "unknown")]


def test_a_broker_that_says_no_is_quoted(tmp_path: Path) -> None:
    medium = FakeMedium({"T1": row()}, answer=Answer(1, "The producer group wrong"))
    played = Played(tmp_path, medium, check())
    assert played.outcomes == [(ActKind.COMMIT, "refused_by_broker")]
    assert "code 1: The producer group wrong" in played.said[0]


def test_somebody_else_committed_too(tmp_path: Path) -> None:
    medium = FakeMedium({"T1": row()})

    def twice(medium: FakeMedium, word: str, queue_offset: int) -> None:
        as_a_broker(medium, word, queue_offset)
        as_a_broker(medium, word, queue_offset)

    medium.on_act = twice
    assert Played(tmp_path, medium, check()).outcomes == [(ActKind.COMMIT, "contradicted")]


# -- words ------------------------------------------------------------------------------------------------------------


def step(name: str, action: ActKind) -> Step:
    return Step(name, action, "shop", "orders", None, (), None, None, (), State.PENDING, (), "dead", "orders.csv")


def test_a_plan_is_about_transactions_of_its_group_and_topic() -> None:
    words = PlanAnswers(
        Plan("me", 0, [], [step("T1", ActKind.COMMIT), step("T2", ActKind.ROLLBACK), step("T3", ActKind.RESUME),
                           step("T4", ActKind.COMMIT)]),
        "plan.json",
    )
    assert (words.named, words.others_count) == (["T1", "T2", "T4"], 1)
    named = [transaction(transaction_id=name) for name in ("T1", "T2", "T3", "T5")]
    found = words.of([*named, transaction(transaction_id="T4", topic="payments")])
    assert [word.action for word in found] == [ActKind.COMMIT, ActKind.ROLLBACK, None, None, None]
    assert found[0].why == "dead (orders.csv)"
    assert "rmqtx apply" in found[2].why
    assert found[3].why == "the plan does not name it"
    assert found[4].why == "the plan names a transaction with topic orders, not payments"
    assert not words.may_decide("T5")


def test_a_ledger_decides_only_what_the_broker_has_not() -> None:
    said = {
        "T1": ("done", "act", ActKind.COMMIT, "PENDING"), "T2": ("not_done", "act", ActKind.ROLLBACK, "PENDING"),
        "T3": ("done", "act", ActKind.COMMIT, "DISCARDED"), "T4": ("several", "open", "wait", "PENDING"),
    }

    def compare(batches: Any) -> Any:
        for batch in batches:
            rows = []
            for facts in batch.to_pylist():
                word, outcome, advice, state = said[facts["transaction_id"]]
                values = {"ledger_word": word, "outcome": outcome, "advice": advice, "state": state, "reason": "r"}
                rows.append({name: values.get(name, facts.get(name)) for name in RECONCILED.names})
            yield from pa.Table.from_pylist(rows, schema=RECONCILED).to_batches()

    words = LedgerAnswers(compare, "orders.csv")
    found = words.of([transaction(transaction_id=name) for name in said])
    assert [word.action for word in found] == [ActKind.COMMIT, ActKind.ROLLBACK, None, None]
    assert found[0].why == "outcome in the ledger: done"


def test_an_order_that_was_sent_twice_is_not_settled_by_its_one_ledger_row(tmp_path: Path) -> None:
    """The other half was committed long ago: committing this one, too, would deliver the order twice."""
    file = tmp_path / "orders.csv"
    file.write_text("order_id,status\norder-1,PAID\norder-2,PAID\n")
    question = LedgerQuery(str(file), None, "keys = order_id", "status = PAID", "status = CANCELLED")
    ledger = open_ledger(str(file), None, question.text_columns)
    asked = question.parsed(ledger.schema)

    def compare(batches: Any) -> Any:
        return reconcile(batches, ledger, asked.terms(), asked.columns)

    words = LedgerAnswers(compare, question.name)
    pending = [transaction(transaction_id=f"T{number}", keys=f"order-{number}") for number in (1, 2)]
    assert [word.action for word in words.of(pending)] == [ActKind.COMMIT, ActKind.COMMIT]
    asked_for: list[str] = []

    def bearing(key: str) -> list[Transaction]:
        asked_for.append(key)
        sent = transaction("COMMITTED", transaction_id="T0", keys="order-1", final_records=[final()])
        return [sent] * (key == "order-1")

    words = LedgerAnswers(compare, question.name)
    words.with_key = bearing
    found = words.of(pending)
    assert [word.action for word in found] == [None, ActKind.COMMIT]
    assert "its ledger row matches 2 transactions" in found[0].why
    words.of(pending)
    assert asked_for == ["order-1", "order-2"]  # believed for a while


def test_rows_of_answers_say_what_came_of_it(tmp_path: Path) -> None:
    medium = FakeMedium({"T1": row()}, on_act=as_a_broker)
    played = Played(tmp_path, medium, check())
    table = answers_table(played.stand_in.tasks.values())
    assert table.schema == ANSWERS
    (told,) = table.to_pylist()
    assert (told["answer"], told["outcome"], told["half_queue_offset"]) == (ActKind.COMMIT, "proved", 7)
    assert told["final_commit_log_offset"] == 8_000
    assert told["receipt_id"] == played.journal.read().receipts[0].receipt_id


def test_immunity_does_not_keep_a_broker_that_asks_from_being_answered(tmp_path: Path) -> None:
    medium = FakeMedium({"T1": row(flags=["immune"])}, on_act=as_a_broker)
    Played(tmp_path, medium, check())
    assert medium.acts == [(ActKind.COMMIT, 7)]
    slave = FakeMedium({"T1": row()}, on_act=as_a_broker)
    slave.surroundings = replace(slave.surroundings, is_slave=True)
    played = Played(tmp_path / "slave", slave, check(), seconds=0.6)
    assert slave.acts == []
    assert played.outcomes == [(ActKind.COMMIT, "refused_by_guard")]


def test_a_ledger_does_not_answer_for_several_applications() -> None:
    orders, payments = frozenset({"orders"}), frozenset({"payments", "refunds"})
    refusal = StandInConduct("shop").refusal_of_ledger([orders, payments])
    assert refusal is not None
    assert refusal.guard == "group-shared"
    assert "orders; payments, refunds" in str(refusal)
    assert StandInConduct("shop").refusal_of_ledger([orders]) is None
    assert StandInConduct("shop", "a test", ("group-shared",)).refusal_of_ledger([orders, payments]) is None
