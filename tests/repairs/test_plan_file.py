"""The plan file: what is written can be read again, and what is no plan says where it is none."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.model.errors import BadText, UnreadableFile
from rmqtx.repairs.receipts.plan_file import PLAN_STEPS, Plan, PlanStore, Step, parse_plan, read_plan

RECORD = {
    "store": "/s", "queue_id": 0, "queue_offset": 7, "commit_log_offset": 4096, "length_bytes": 300, "body_crc": 1,
}
STEP: dict[str, Any] = {
    "transaction_id": "A1", "action": "commit", "producer_group": "shop", "topic": "orders", "keys": None,
    "stores": ["/s"], "half_copy": RECORD, "discard_copy": None,
    "witnesses": [
        {"kind": "half_copy", "store": "/s", "queue_id": 0, "queue_offset": 7, "commit_log_offset": 4096}
    ],
    "state": "PENDING", "flags": ["stalled"], "reason": "the ledger says done", "reason_from": "orders.db: id = 1",
}
STORE: PlanStore = {
    "store": "/s", "taken_time_ms": 1, "aborted": False, "broker_process": None,
    "half_cursors": [{"queue_id": 0, "next_queue_offset": 7}], "op_cursors": None,
    "segments": [{"base_offset": 0, "size_bytes": 1 << 30, "digest": "sha256:00"}],
}


def plan(*steps: dict[str, Any]) -> Plan:
    copies = [Step.of(step) for step in steps]
    return Plan("rmqtx 1", 17, [copy.deepcopy(STORE)], copies, {"command": "reconcile"})


def test_a_plan_comes_back_as_it_was(tmp_path: Path) -> None:
    resumed = {**STEP, "transaction_id": "B2", "action": "resume", "half_copy": None, "discard_copy": RECORD}
    written = plan(STEP, resumed)
    file = tmp_path / "plan.json"
    file.write_text(written.text())
    assert read_plan(file) == written
    assert read_plan(file).table().schema.equals(PLAN_STEPS)
    assert read_plan(file).table().num_rows == 2
    assert json.loads(file.read_text())["plan_version"] == 1


def test_a_plan_without_steps_is_a_plan() -> None:
    assert parse_plan(plan().text(), "plan.json").steps == []


def test_one_step_is_one_line() -> None:
    lines = plan(STEP, {**STEP, "transaction_id": "B2"}).text().splitlines()
    steps = [line for line in lines if '"half_copy"' in line]
    assert [json.loads(line.rstrip(","))["transaction_id"] for line in steps] == ["A1", "B2"]


Change = Callable[[dict[str, Any]], object]
WRONG: dict[str, tuple[Change, str]] = {
    "version": (lambda p: p.update(plan_version=2), "plan_version: expected 1, found 2"),
    "no version": (lambda p: p.pop("plan_version"), "plan_version: expected 1, found none"),
    "a version that is true": (lambda p: p.update(plan_version=True), "plan_version: expected 1, found true"),
    "no steps": (lambda p: p.pop("steps"), "steps: expected a value, found nothing"),
    "steps are no list": (lambda p: p.update(steps={}), "steps: expected a list, found an object"),
    "unknown field": (lambda p: p.update(force=True), "force: expected no such field, found true"),
    "unknown field of a step": (
        lambda p: p["steps"][0].update(skip_guards=1), "steps[0].skip_guards: expected no such field, found 1"
    ),
    "action": (
        lambda p: p["steps"][0].update(action="explode"),
        'steps[0].action: expected one of commit, rollback, discard, resume, close, redeliver, found "explode"',
    ),
    "state": (
        lambda p: p["steps"][0].update(state="PENDNG"),
        "steps[0].state: expected one of PENDING, COMMITTED, ROLLED_BACK, DISCARDED, LOST, UNDECIDABLE, "
        'found "PENDNG"',
    ),
    "text for a number": (
        lambda p: p["steps"][0]["half_copy"].update(queue_offset="7"),
        'steps[0].half_copy.queue_offset: expected a whole number, found "7"',
    ),
    "true for a number": (
        lambda p: p["steps"][0]["half_copy"].update(queue_id=True),
        "steps[0].half_copy.queue_id: expected a whole number, found true",
    ),
    "a number too large": (
        lambda p: p["steps"][0]["half_copy"].update(queue_id=1 << 31),
        "steps[0].half_copy.queue_id: expected a whole number, found 2147483648",
    ),
    "null where a value must be": (
        lambda p: p["steps"][0].update(state=None), "steps[0].state: expected text, found null"
    ),
    "null in a list": (
        lambda p: p["steps"][0].update(flags=[None]), "steps[0].flags[0]: expected text, found null"
    ),
    "nothing to name": (
        lambda p: p["steps"][0].update(half_copy=None),
        "steps[0].half_copy: expected a record, which commit names, found null",
    ),
    "nothing to resume": (
        lambda p: p["steps"][0].update(action="resume"),
        "steps[0].discard_copy: expected a record, which resume names, found null",
    ),
    "a store that nobody described": (
        lambda p: p["steps"][0]["witnesses"][0].update(store="/t"),
        'steps[0].witnesses[0].store: expected a store that stores describes, found "/t"',
    ),
    "a transaction twice": (
        lambda p: p["steps"].append(copy.deepcopy(STEP)),
        'steps[1].transaction_id: expected each transaction once, found "A1"',
    ),
    "made_from": (lambda p: p.update(made_from=[]), "made_from: expected an object, found a list"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_plan_says_where(name: str) -> None:
    change, told = WRONG[name]
    value = json.loads(plan(STEP).text())
    change(value)
    with pytest.raises(BadText) as error:
        parse_plan(json.dumps(value), "plan.json")
    assert f"[{told}]" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "NaN", "[" * 100_000, b"\xff"])
def test_what_is_no_json_object_is_no_plan(text: str | bytes) -> None:
    with pytest.raises(BadText, match=r"plan\.json"):
        parse_plan(text, "plan.json")


def test_a_wrong_plan_is_never_written() -> None:
    with pytest.raises(BadText, match="half_copy"):
        plan({**STEP, "half_copy": None}).text()


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="cannot read"):
        read_plan(tmp_path / "none.json")
