"""Plans on their way: what an earlier run did, what is stale, what is left."""

from __future__ import annotations

from typing import Any

from rmqtx.repairs.acts.orders import Conduct
from rmqtx.repairs.acts.situation import ActRequest
from rmqtx.repairs.plans.apply_plan import Application, application, missing_stores
from rmqtx.repairs.plans.draft_plan import drafted, plan_of
from rmqtx.repairs.receipts.act_words import ActKind, ActOutcome, StandingWord
from rmqtx.repairs.receipts.plan_file import Plan, StepWitness
from rmqtx.repairs.receipts.receipts import Receipt, Recheck
from tests.repairs.forge import STORE, FakeMedium, final, mark, place, row, situation
from tests.repairs.test_steps import live_store

KNOWN_AS = {"file": "p.json", "digest": "sha256:1"}
NAMES = ("T1", "T2", "T3")


def plan(action: ActKind = ActKind.COMMIT) -> Plan:
    """A plan of three transactions."""
    situations = [situation(row(transaction_id=name)) for name in NAMES]
    return plan_of(drafted(situations, ActRequest(action), "why", "me"), [live_store()], {}, 1)


def now(**changed: dict[str, Any]) -> FakeMedium:
    """A medium with the three transactions, some of them otherwise than planned."""
    return FakeMedium({name: changed.get(name) or row(transaction_id=name) for name in NAMES})


def earlier(name: str, outcome: str, digest: str = "sha256:1", action: ActKind = ActKind.COMMIT) -> Receipt:
    """A receipt of an earlier run."""
    facts = row()["half_copies"][0]
    witness = StepWitness.of({"kind": "half_copy", **facts})
    return Receipt(
        action, name, STORE, producer_group="shop", topic="orders", outcome=ActOutcome(outcome), state_before="PENDING",
        witnesses_before=[witness],
        plan={"file": "elsewhere.json", "digest": digest},
    )


def committed(name: str, count: int = 1) -> dict[str, Any]:
    finals = [final(number) for number in range(count)]
    return row("COMMITTED", transaction_id=name, final_records=finals, op_marks=[mark(7)])


def found(medium: FakeMedium, receipts: list[Receipt] | None = None, **how: Any) -> Application:
    return application(plan(), KNOWN_AS, receipts or [], medium, Conduct(), **how)


def ids(application: Application) -> list[str]:
    return [one.order.transaction_id for one in application.acts]


def test_everything_is_left_of_a_new_plan() -> None:
    result = found(now())
    assert ids(result) == list(NAMES)
    order = result.acts[0].order
    assert (order.request, order.reason, order.plan) == (ActRequest(ActKind.COMMIT, "shop"), "why", KNOWN_AS)
    assert not result.stale
    assert not result.notes


def test_what_an_earlier_run_proved_is_left_out_unseen() -> None:
    medium = now(T1=committed("T1"))
    result = found(medium, [earlier("T1", "proved")])
    assert ids(result) == ["T2", "T3"]
    assert [receipt.transaction_id for receipt in result.done] == ["T1"]
    assert not result.stale


def test_receipts_of_other_plans_and_of_refusals_count_for_nothing() -> None:
    others = [earlier("T1", "proved", digest="sha256:2"), earlier("T2", "refused_by_guard"), earlier("T3", "not_sent")]
    assert ids(found(now(), others)) == list(NAMES)


def test_an_unknown_outcome_is_looked_at_first() -> None:
    receipts = [earlier("T1", "unknown"), earlier("T2", "unknown"), earlier("T3", "unknown")]
    result = found(now(T1=committed("T1"), T3=committed("T3", 2)), receipts)
    assert ids(result) == ["T2"]  # nothing of it is there: it is done now, and the guards look again
    assert [(receipt.transaction_id, standing.word) for receipt, standing in result.settled] == [("T1", "stands")]
    assert [(one.transaction_id, standing.word) for one, standing in result.disputed] == [("T3", "contradicted")]
    assert not result.stale


def test_what_was_done_and_is_asked_for_again_is_said_and_not_done_again() -> None:
    again = {**committed("T1"), "flags": ["open_after_decision"], "half_copies": [place(7, 700), place(9, 900)]}
    result = found(now(T1=again), [earlier("T1", "unknown")])
    assert ids(result) == ["T2", "T3"]
    ((receipt, standing),) = result.disputed
    assert (receipt.transaction_id, standing.word) == ("T1", "reopened")
    assert "rmqtx close T1" in standing.reason
    assert not result.stale


def test_a_later_look_that_was_written_down_is_believed() -> None:
    receipt = earlier("T1", "unknown")
    receipt.rechecks = [Recheck(1, "w", word, "r") for word in (StandingWord.NOT_SEEN, StandingWord.STANDS)]
    result = found(now(T1=committed("T1")), [receipt])
    assert [one.transaction_id for one in result.done] == ["T1"]
    assert not result.settled


def test_what_is_not_as_planned_is_stale() -> None:
    medium = now(T2=committed("T2"))
    del medium.rows["T3"]
    result = found(medium)
    assert ids(result) == ["T1"]
    assert [name for name, _ in result.stale] == ["T2", "T3"]
    assert "a final record appeared since" in result.stale[0][1]
    assert result.stale[1][1] == "its records no longer exist"


def test_the_newest_copy_is_named_and_that_is_said() -> None:
    put_back = row(transaction_id="T1", half_copies=[place(7, 700), place(9, 900)])
    result = found(now(T1=put_back))
    assert ids(result) == list(NAMES)
    assert result.acts[0].named is not None
    assert result.acts[0].named.queue_offset == 9
    why = "the check has put back half copy 9 since the plan was made: the act names this copy, not 7"
    assert result.notes == [f"T1: {why}"]
    exact = found(now(T1=put_back), is_exact=True)
    assert [name for name, _ in exact.stale] == ["T1"]
    assert exact.acts[0].order.request.queue_offset == 7


def test_a_broker_that_is_not_asked_is_missing() -> None:
    assert missing_stores(plan(), [STORE]) == []
    assert missing_stores(plan(), ["broker-b@h:1"]) == [STORE]
    of_files = plan()
    of_files.stores[0]["store"] = "/data/store"
    assert missing_stores(of_files, ["broker-b@h:1"]) == []


def test_the_reason_of_an_override_is_added() -> None:
    assert found(now(), reason="and more").acts[0].order.reason == "why; and more"
