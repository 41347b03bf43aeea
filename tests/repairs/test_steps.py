"""Steps of plans: what makes one stale, and what a check that merely goes on does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from rmqtx.repairs.acts.situation import ActRequest, NamedRecord
from rmqtx.repairs.plans.draft_plan import drafted, is_live_store, plan_of, staleness, step_of_situation
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.repairs.receipts.plan_file import PLAN_STORES, Plan, PlanStore, RecordPlace, parse_plan
from rmqtx.verdicts.model.transaction import Transaction
from tests.repairs.forge import STORE, around, final, mark, place, record, row, situation, transaction

FILES = "/data/rocketmq/store"


def live_store(root: str = STORE) -> PlanStore:
    return {
        "store": root, "taken_time_ms": 1, "aborted": False, "broker_process": None, "half_cursors": None,
        "op_cursors": None, "segments": [],
    }


def stale(
    facts: dict[str, Any] | None, found: NamedRecord | None = None, *, action: ActKind = ActKind.COMMIT, **how: bool
) -> str | None:
    """Whether a step that was made of forge's row is stale now."""
    planned = row(discard_copies=[place(0, 999)], state="DISCARDED") if action == ActKind.RESUME else row()
    step = step_of_situation(situation(planned), action, "why", "me")
    return staleness(step, None if facts is None else Transaction.of(facts), lambda _: found or record(), **how)


def test_what_holds_is_not_stale() -> None:
    assert stale(row()) is None
    assert stale(row(flags=["stalled"], checks_count=3, reason="other words")) is None


def test_a_copy_that_the_check_put_back_makes_no_difference_unless_that_is_asked() -> None:
    facts = row(half_copies=[place(7, 700, checks_count=None), place(9, 900, checks_count=1)])
    assert stale(facts) is None
    assert "half copy appeared since the plan was made: queue 0, queue offset 9" in (stale(facts, is_exact=True) or "")


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        (None, "no longer exist"),
        (row(state="COMMITTED", final_records=[final()], op_marks=[mark(7)]), "a final record appeared since"),
        (row(state="ROLLED_BACK", op_marks=[mark(7)]), "an op mark appeared since"),
        (row(state="DISCARDED", discard_copies=[place(0, 999)]), "a discard copy appeared since"),
        (row(state="LOST"), "its state is now LOST, and the plan relies on PENDING"),
        (row(state="UNDECIDABLE"), "its state is now UNDECIDABLE"),
    ],
)
def test_what_differs_makes_it_stale(facts: dict[str, Any] | None, told: str) -> None:
    assert told in (stale(facts) or "")


def test_a_witness_that_is_gone_makes_it_stale() -> None:
    planned = row(state="DISCARDED", discard_copies=[place(0, 999)])
    step = step_of_situation(situation(planned), ActKind.COMMIT, "why", "me")
    told = staleness(step, transaction("DISCARDED"), lambda _: record())
    assert told is not None
    assert "a discard copy that the plan relies on is missing" in told


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"length_bytes": 401}, "length: 401, in the plan 400"), ({"body_crc": 2}, "different CRC of the body"),
        ({"queue_offset": 8}, "different queue offset"),
    ],
)
def test_a_named_record_with_other_bytes_makes_it_stale(changes: dict[str, Any], told: str) -> None:
    assert told in (stale(row(), replace(record(), **changes)) or "")


def test_a_named_record_that_cannot_be_read_makes_it_stale() -> None:
    step = step_of_situation(situation(row()), ActKind.COMMIT, "why", "me")
    told = staleness(step, transaction(), lambda _: None)
    assert told == "the half copy that the plan names can no longer be read: 7 at commit-log offset 700"


def test_a_resume_relies_on_its_discard_copy() -> None:
    facts = row(discard_copies=[place(0, 999)], state="DISCARDED")
    assert stale(facts, record(0, 999), action=ActKind.RESUME) is None
    assert "discard copy 0 at commit-log offset 999 has a different length" in (
        stale(facts, replace(record(0, 999), length_bytes=1), action=ActKind.RESUME) or ""
    )


def test_a_plan_of_files_is_compared_by_offsets() -> None:
    asked: list[RecordPlace] = []

    def read(where: RecordPlace) -> NamedRecord | None:
        asked.append(where)
        return record()

    def of_files(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**entry, "store": FILES} for entry in entries]

    planned = row(store=FILES, half_copies=of_files(row()["half_copies"]))
    half = replace(record(), store=FILES)
    step = step_of_situation(situation(planned, half_copy=half), ActKind.COMMIT, "why", "me")
    assert staleness(step, transaction(), read, is_same_store=False) is None
    assert asked[-1].store == STORE  # where the record is now
    later = transaction("COMMITTED", final_records=[final()], op_marks=[mark(7)])
    assert "a final record appeared" in (staleness(step, later, read, is_same_store=False) or "")


def test_crcs_are_compared_as_brokers_keep_them() -> None:
    step = step_of_situation(situation(row()), ActKind.COMMIT, "why", "me")
    assert staleness(step, transaction(), lambda _: replace(record(), body_crc=1 - (1 << 31))) is None


def test_live_stores_are_told_from_directories() -> None:
    assert is_live_store(live_store())
    assert not is_live_store(live_store(FILES))
    segments = [{"base_offset": 0, "size_bytes": 1, "digest": None}]
    assert not is_live_store({**live_store("/copy@night/store"), "segments": segments})


def test_a_draft_holds_what_the_guards_let_pass() -> None:
    free, done = row(transaction_id="T1"), row(
        transaction_id="T2", state="COMMITTED", final_records=[final()], op_marks=[mark(7)], advice="none"
    )
    other = row(transaction_id="T3", producer_group="bank")
    draft = drafted([situation(one) for one in (free, done, other)], ActRequest(ActKind.COMMIT, "shop"), "why", "me")
    assert [step.transaction_id for step in draft.steps] == ["T1"]
    assert [(name, refusal.guard) for name, refusal in draft.refused] == [
        ("T2", "already-delivered"), ("T3", "wrong-group"),
    ]


def test_guards_of_the_moment_are_not_asked_when_a_plan_is_made() -> None:
    busy = around(producers=("a client",), settled_ms=0, rivals=("another",))
    assert len(drafted([situation(row(), busy)], ActRequest(ActKind.COMMIT), "why", "me").steps) == 1


def test_what_names_nothing_is_not_planned() -> None:
    gone = situation(row(), half_copy=None, named=None)
    draft = drafted([gone], ActRequest(ActKind.COMMIT), "why", "me")
    assert draft.steps == []
    assert [refusal.guard for _, refusal in draft.refused] == ["evidence-incomplete"]


def test_a_plan_comes_back_from_its_file() -> None:
    draft = drafted([situation(row())], ActRequest(ActKind.COMMIT), "why", "me")
    plan = plan_of(draft, [live_store()], {"command": "plan"}, 1)
    back = parse_plan(plan.text(), "p.json")
    assert isinstance(back, Plan)
    assert (back.steps, back.stores) == (plan.steps, plan.stores)
    assert back.table().num_rows == 1
    assert pa.Table.from_pylist(back.stores, schema=PLAN_STORES).num_rows == 1
