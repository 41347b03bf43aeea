"""A second look at receipts: what stands, what is contradicted, and what cannot be told any more."""

from __future__ import annotations

from typing import Any

import pytest

from rmqtx.repairs.receipts.act_words import STANDINGS, ActKind, ActOutcome
from rmqtx.repairs.receipts.plan_rows import witnesses_of
from rmqtx.repairs.receipts.receipts import Receipt
from rmqtx.repairs.receipts.recheck import rechecked, standing_of
from rmqtx.verdicts.model.transaction import Transaction
from tests.repairs.forge import STORE, final, mark, place, transaction

OPEN = transaction()
COMMITTED = transaction("COMMITTED", final_records=[final()], op_marks=[mark(7)])
ROLLED_BACK = transaction("ROLLED_BACK", op_marks=[mark(7)])
TWICE = transaction("COMMITTED", final_records=[final(0), final(1)], op_marks=[mark(7)], flags=["duplicate_commit"])
DISCARDED = transaction("DISCARDED", discard_copies=[place(0, 999)])


def receipt(action: ActKind, before: Transaction, after: Transaction | None, outcome: str = "proved") -> Receipt:
    """A receipt of an act between two looks."""
    return Receipt(
        action, "T1", STORE, producer_group="shop", topic="orders", outcome=ActOutcome(outcome),
        state_before=before.state, witnesses_before=witnesses_of(before),
        witnesses_after=[] if after is None else witnesses_of(after),
    )


@pytest.mark.parametrize(
    ("made", "now", "word", "told"),
    [
        (receipt(ActKind.COMMIT, OPEN, COMMITTED), COMMITTED, "stands", "COMMIT record is at commit-log offset 8000"),
        (receipt(ActKind.COMMIT, OPEN, None, "unknown"), COMMITTED, "stands", "the only COMMIT record"),
        (receipt(ActKind.COMMIT, OPEN, None, "unknown"), OPEN, "not_seen", "its state is PENDING"),
        (receipt(ActKind.COMMIT, OPEN, None, "unknown"), ROLLED_BACK, "settled_otherwise", "it was rolled back"),
        (receipt(ActKind.COMMIT, OPEN, COMMITTED), TWICE, "contradicted",
         "2 COMMIT records (commit-log offsets 8000, 8001)"),
        (receipt(ActKind.COMMIT, OPEN, COMMITTED), ROLLED_BACK, "settled_otherwise", "rolled back"),
        (receipt(ActKind.COMMIT, OPEN, COMMITTED), transaction("LOST", half_copies=[]), "expired", "it has expired"),
        (receipt(ActKind.COMMIT, OPEN, COMMITTED), OPEN, "not_seen", "but the older half copy at 700 exists"),
        (receipt(ActKind.ROLLBACK, OPEN, ROLLED_BACK), OPEN, "not_seen", "undone or cut off, or this is another copy"),
        (receipt(ActKind.COMMIT, OPEN, COMMITTED), None, "expired", "no record of the transaction"),
        (receipt(ActKind.COMMIT, ROLLED_BACK, COMMITTED), COMMITTED, "contradicted", "delivers what was rolled back"),
        (receipt(ActKind.ROLLBACK, OPEN, ROLLED_BACK), ROLLED_BACK, "stands", "queue offset 3 settles it"),
        (receipt(ActKind.ROLLBACK, OPEN, ROLLED_BACK), COMMITTED, "contradicted", "although the act was a rollback"),
        (receipt(ActKind.ROLLBACK, OPEN, None, "unknown"), OPEN, "not_seen", "no op message"),
        (receipt(ActKind.DISCARD, OPEN, ROLLED_BACK), ROLLED_BACK, "stands", "settles it"),
        (receipt(ActKind.DISCARD, OPEN, ROLLED_BACK), COMMITTED, "contradicted", "consumers get the message"),
        (receipt(ActKind.CLOSE, COMMITTED, TWICE), TWICE, "contradicted", "consumers get the message"),
        (receipt(ActKind.ROLLBACK, OPEN, ROLLED_BACK),
         transaction("ROLLED_BACK", op_marks=[mark(7)], flags=["open_after_decision"]), "reopened", "rmqtx close T1"),
        (receipt(ActKind.RESUME, DISCARDED, None, "accepted"), DISCARDED, "not_seen", "its state is DISCARDED"),
        (receipt(ActKind.RESUME, DISCARDED, None, "accepted"),
         transaction(discard_copies=[place(0, 999)], half_copies=[place(7, 700), place(12, 1200)]),
         "stands", "half copy 12"),
        (receipt(ActKind.COMMIT, OPEN, OPEN, "refused_by_guard"), COMMITTED, "nothing_done", "refused_by_guard"),
        (receipt(ActKind.COMMIT, OPEN, OPEN, "refused_by_broker"), OPEN, "nothing_done", "refused_by_broker"),
        (receipt(ActKind.COMMIT, OPEN, OPEN, "not_sent"), OPEN, "nothing_done", "not_sent"),
    ],
)
def test_what_a_look_says(made: Receipt, now: Transaction | None, word: str, told: str) -> None:
    standing = standing_of(made, now)
    assert (standing.word, told in standing.reason) == (word, True), standing
    assert standing.word in STANDINGS


def test_the_close_of_a_commit_stands_though_its_final_is_there() -> None:
    before = transaction("COMMITTED", final_records=[final()], flags=["commit_without_op"], advice="close")
    after = transaction("COMMITTED", final_records=[final()], op_marks=[mark(7)])
    assert standing_of(receipt(ActKind.CLOSE, before, after), after).word == "stands"


def test_an_answer_is_judged_by_what_it_said() -> None:
    made = receipt(ActKind.ANSWER, OPEN, COMMITTED)
    made.asked("END_TRANSACTION", {"commitOrRollback": 8})
    assert standing_of(made, COMMITTED).word == "stands"
    made = receipt(ActKind.ANSWER, OPEN, ROLLED_BACK)
    made.asked("END_TRANSACTION", {"commitOrRollback": 12})
    assert standing_of(made, COMMITTED).word == "contradicted"


def test_a_copy_of_the_files_serves_as_well() -> None:
    def elsewhere(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**entry, "store": "/copy"} for entry in entries]

    lists = ("half_copies", "op_marks", "final_records", "discard_copies")
    row = COMMITTED.row()
    copied = Transaction.of({**row, "store": "/copy", **{name: elsewhere(row[name]) for name in lists}})
    assert standing_of(receipt(ActKind.COMMIT, OPEN, COMMITTED), copied).word == "stands"


def test_transactions_are_looked_up_together_and_only_if_something_was_sent() -> None:
    asked: list[list[str]] = []

    def look(ids: list[str]) -> list[Transaction]:
        asked.append(ids)
        return [transaction(producer_group="bank"), COMMITTED]

    made = [receipt(ActKind.COMMIT, OPEN, COMMITTED), receipt(ActKind.COMMIT, OPEN, OPEN, "refused_by_guard")]
    assert [standing.word for _, standing in rechecked(made, look)] == ["stands", "nothing_done"]
    assert asked == [["T1"]]
    assert [standing.word for _, standing in rechecked(made[1:], look)] == ["nothing_done"]
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("store", "places", "word"),
    [
        ("/data/one", ["/data/two"], "other_store"),
        ("/data/one", ["/data/one/"], "expired"),
        ("broker-a@10.0.0.1:10911", ["/data/two"], "expired"),
        ("/data/one", [], "expired"),
    ],
)
def test_an_act_on_another_store_has_not_expired(store: str, places: list[str], word: str) -> None:
    made = receipt(ActKind.COMMIT, OPEN, COMMITTED)
    made.store = store
    assert [standing.word for _, standing in rechecked([made], lambda _: [], None, lambda: places)] == [word]
