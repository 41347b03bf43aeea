"""Redeliveries on a real broker: each state is delivered exactly once, and never a second time.

The official consumer counts. `python -m tests.brokers.forcing.redeliveries` plays kills and races.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.brokers.forcing.conftest import VERSIONS, quick
from tests.brokers.forcing.naive import op_numbers
from tests.brokers.forcing.outcomes import COMPRESSIBLE
from tests.brokers.forcing.stage import Stage
from tests.brokers.forcing.tool import Ran, Tool
from tests.brokers.rig import HALF_TOPIC
from tests.brokers.rocks_stage import TRANSACTIONS_IN_ROCKSDB
from tests.brokers.transaction import Transaction

REFUSED = 12


def redelivered(tool: Tool, *words: str) -> Ran:
    """The result of a redelivery."""
    return tool.act("redeliver", *words, "--reason", "the shop has it as paid")


def refused(ran: Ran, guard: str) -> str:
    """The sentence of the guard that refused."""
    sentence = next((line for line in ran.stderr.splitlines() if f" {guard}: " in line), "")
    assert ran.status == REFUSED, str(ran)
    assert sentence, str(ran)
    assert [row["requests"] for row in ran.rows] == [[] for _ in ran.rows], str(ran)
    return sentence


def until_recorded(stage: Stage, numbers: list[int]) -> None:
    """Wait until op messages settle these half copies; 4.4.0 shows no op queue, and writes them at once."""
    if stage.rig.release < (4, 5):
        time.sleep(3)
        return
    stage.until("the rollbacks are recorded", lambda: set(numbers) <= op_numbers(stage.broker))


def over(stage: Stage) -> dict[str, Transaction]:
    """Transactions that the broker will not deliver, by how they came to that."""
    shop = stage.shop("r-over")
    checked = shop.begin("rolled-back-after-checks", 0)
    aged = shop.begin("discarded-by-age", 0)
    spent = shop.begin("discarded", 0)
    has_copies = stage.rig.release >= (4, 5, 2)  # 4.4.0 leaves what is too old alone, and stops at a compressed copy
    large = shop.begin("discarded-compressed", 0, body=COMPRESSIBLE if has_copies else None)
    shop.until_decided()
    stage.put_back([checked], 2)
    ones = {
        "rolled back": shop.begin("rolled-back", 0, first="ROLLBACK"),
        "rolled back, compressed": shop.begin("rolled-back-compressed", 0, first="ROLLBACK", body=COMPRESSIBLE),
    }
    shop.until_decided()
    until_recorded(stage, [one.original[0] for one in ones.values()])
    newest = stage.last_copy(checked)
    stage.end(checked, 12, newest)
    until_recorded(stage, [newest[0]])
    shop.kill()
    stage.until_gone("r-over")
    stage.config(fileReservedTime="0", deleteWhen="00" if time.localtime().tm_hour else "12")
    try:
        if has_copies:
            stage.until_discarded([aged])
            ones["discarded by age"] = aged
    finally:
        stage.config(fileReservedTime="48")
    if has_copies:
        stage.discard([spent, large])
    else:
        stage.config(transactionCheckMax="1")
        with stage.checks():
            time.sleep(6)
    ones |= {"discarded": spent, "discarded, compressed": large}
    return ones | {"rolled back after checks": checked}


def test_what_is_over_is_delivered_once_and_never_again(stage: Stage) -> None:
    ones = over(stage)
    pending = stage.orphans("r-pending")[0]
    shop = stage.shop("r-committed")
    (committed,) = shop.begin_all("r-committed", 1, first="COMMIT")
    stage.until_delivered([committed])  # a client that is killed at once may not have sent its decision
    shop.kill()
    stage.until_gone("r-committed")
    tool = stage.tool()
    refused(redelivered(tool, pending.id), "still-open")
    refused(redelivered(tool, committed.id), "already-delivered")
    dry = redelivered(tool, *(one.id for one in ones.values()), "--dry-run")
    assert dry.status == 0, str(dry)
    assert tool.journal() == [] or all(row["action"] == "redeliver" for row in tool.journal())
    ran = redelivered(tool, *(one.id for one in ones.values()))
    assert ran.status == 0, str(ran)
    assert {row["outcome"] for row in ran.rows} == {"proved"}, str(ran)
    assert {row["state_after"] for row in ran.rows} == {"COMMITTED"}, str(ran)
    assert [[one["response_code"] for one in row["requests"]] for row in ran.rows] == [[0]] * len(ones), str(ran)
    stage.until_delivered(ones.values())
    for again in (tool, stage.tool()):  # the second has another state directory, as another machine
        once_more = redelivered(again, *(one.id for one in ones.values()))
        refused(once_more, "already-delivered")
        assert {row["outcome"] for row in once_more.rows} == {"refused_by_guard"}
    recheck = tool.run("receipts", "--recheck", "--action", "redeliver", "--outcome", "proved", "--format", "jsonl")
    assert {row["standing"] for row in recheck.rows} == {"stands"}, str(recheck)
    assert stage.asked_again(ones.values()) == []
    stage.until_consumed()
    counts = {how: stage.delivered(one) for how, one in ones.items()}
    assert counts == dict.fromkeys(ones, 1)
    for how, one in ones.items():
        assert {event["body_crc32"] for event in one.deliveries} == {stage.body_crcs[one.case]}, how
    assert (stage.delivered(pending), stage.delivered(committed)) == (0, 1)


def test_a_copy_that_is_still_checked_is_no_redelivery(stage: Stage) -> None:
    """The rollback named an old copy: the newest is open, and its producer may still answer COMMIT."""
    (one,) = stage.orphans("r-open-again")
    stage.put_back([one], 1)
    stage.end(one, 12, one.original)
    stage.until("the rollback is recorded", lambda: one.original[0] in op_numbers(stage.broker))
    assert "check will still reach half copy" in refused(redelivered(stage.tool(), one.id), "still-open")
    assert stage.broker.max_offset(HALF_TOPIC) > one.original[0]


def test_a_connected_producer_is_reported(stage: Stage) -> None:
    shop = stage.shop("r-alive")
    (one,) = shop.begin_all("r-alive", 1, first="ROLLBACK")
    stage.until("the rollback is recorded", lambda: one.original[0] in op_numbers(stage.broker))
    tool = stage.tool()
    assert "its local transaction still runs" in refused(redelivered(tool, one.id), "producer-connected")
    ran = redelivered(tool, one.id, "--override", "producer-connected")
    assert ran.status == 0, str(ran)
    shop.kill()
    stage.until_consumed()
    assert stage.delivered(one) == 1


@pytest.mark.slow
@pytest.mark.skipif("4.4.0" not in VERSIONS, reason="needs 4.4.0 in RMQTX_BROKER_VERSIONS")
def test_a_broker_without_discard_copies(tmp_path: Path) -> None:
    with Stage("4.4.0", tmp_path, quick("4.4.0")) as stage:
        test_what_is_over_is_delivered_once_and_never_again(stage)


@pytest.mark.slow
@pytest.mark.skipif("5.5.0" not in VERSIONS, reason="needs 5.5.0 in RMQTX_BROKER_VERSIONS")
def test_transactions_in_rocksdb(tmp_path: Path) -> None:
    """A rolled back one and a dropped one; the op message of a redelivery names the half by its place in the log."""
    with Stage("5.5.0", tmp_path, quick("5.5.0") | dict(TRANSACTIONS_IN_ROCKSDB)) as stage:
        shop = stage.shop("r-rocksdb")
        (rolled_back,) = shop.begin_all("r-rocksdb-rolled-back", 1, first="ROLLBACK")
        time.sleep(2)
        shop.kill()
        stage.until_gone("r-rocksdb")
        (pending,) = stage.orphans("r-rocksdb-pending")
        tool = stage.tool()
        refused(redelivered(tool, pending.id), "still-open")
        ran = redelivered(tool, rolled_back.id)
        assert [row["outcome"] for row in ran.rows] == ["proved"], str(ran)
        refused(redelivered(stage.tool(), rolled_back.id), "already-delivered")
        stage.until_consumed()
        assert (stage.delivered(rolled_back), stage.delivered(pending)) == (1, 0)


def test_a_plan_of_redeliveries_is_carried_out_once(stage: Stage, tmp_path: Path) -> None:
    shop = stage.shop("r-planned")
    ones = shop.begin_all("r-planned", 3, first="ROLLBACK")
    until_recorded(stage, [one.original[0] for one in ones])
    shop.kill()
    stage.until_gone("r-planned")
    tool, plan = stage.tool(), str(tmp_path / "plan.json")
    planned = tool.run("plan", "redeliver", *(one.id for one in ones), "--reason", "paid", "-o", plan)
    assert planned.status == 0, str(planned)
    ran = tool.act("apply", plan)
    assert [row["outcome"] for row in ran.rows] == ["proved"] * 3, str(ran)
    again = tool.act("apply", plan)
    assert (again.status, again.rows) == (0, []), str(again)
    stage.until_consumed()
    assert [stage.delivered(one) for one in ones] == [1, 1, 1]
