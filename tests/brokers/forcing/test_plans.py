"""plan, apply and receipts on a real broker: each message delivered once, whatever comes in between."""

from __future__ import annotations

import base64
import json
import time
import zlib
from pathlib import Path

import pytest

from rmqtx.readers.model.exit_status import DONE, FINDINGS, REFUSED_BY_GUARD, SOME_REFUSED, STALE_PLAN
from rmqtx.remoting.protocol.codes import COMMIT
from tests.brokers.forcing.stage import Stage
from tests.brokers.forcing.tool import Tool
from tests.brokers.transaction import Transaction


def planned(tool: Tool, action: str, transactions: list[Transaction], file: Path, *more: str) -> None:
    """Have a plan of some transactions written."""
    ids = [one.id for one in transactions]
    ran = tool.run("plan", action, *ids, "--reason", "OPS-1", "-o", str(file), *more, live="--store" not in more)
    assert ran.status == DONE, str(ran)


def applied(tool: Tool, file: Path, *more: str) -> tuple[int, str, dict[str, str]]:
    """Carry a plan out; gives the status, what was said, and the outcome by transaction."""
    ran = tool.act("apply", str(file), *more)
    return ran.status, ran.stderr, {row["transaction_id"]: row["outcome"] for row in ran.rows}


def deliveries(stage: Stage, transactions: list[Transaction]) -> list[int]:
    stage.until_consumed()
    return [stage.delivered(one) for one in transactions]


@pytest.mark.slow
def test_a_plan_outlives_the_check_and_is_done_once(stage: Stage, tmp_path: Path) -> None:
    tool, orphans = stage.tool(), stage.orphans("plan_commit", 4)
    planned(tool, "commit", orphans, tmp_path / "p.json")
    stage.put_back(orphans)
    status, told, _ = applied(tool, tmp_path / "p.json", "--exact")
    assert (status, "a half copy appeared since" in told) == (STALE_PLAN, True), told
    status, told, outcomes = applied(tool, tmp_path / "p.json")
    assert (status, set(outcomes.values()), len(outcomes)) == (DONE, {"proved"}, 4), told
    assert told.count("the check has put back half copy") == 4
    assert stage.asked_again(orphans) == []
    status, told, outcomes = applied(tool, tmp_path / "p.json")
    assert (status, outcomes, "4 steps done by an earlier run" in told) == (DONE, {}, True), told
    assert deliveries(stage, orphans) == [1, 1, 1, 1]
    ran = tool.run("receipts", "--recheck", "--format", "jsonl")
    assert (ran.status, [row["standing"] for row in ran.rows]) == (DONE, ["stands"] * 4), str(ran)
    lines = [line["line"] for line in tool.journal()]
    assert (lines.count("begun"), lines.count("ended")) == (4, 4)


@pytest.mark.slow
def test_a_stale_plan_sends_nothing(stage: Stage, tmp_path: Path) -> None:
    tool, orphans = stage.tool(), stage.orphans("plan_stale", 3)
    planned(tool, "rollback", orphans, tmp_path / "p.json")
    assert stage.tool().act("commit", orphans[0].id).status == DONE
    status, told, outcomes = applied(tool, tmp_path / "p.json")
    assert (status, outcomes) == (STALE_PLAN, {}), told
    assert f"{orphans[0].id}: stale: a final record appeared since" in told
    assert tool.journal() == []
    status, told, outcomes = applied(tool, tmp_path / "p.json", "--skip-stale")
    assert (status, set(outcomes)) == (SOME_REFUSED, {one.id for one in orphans[1:]}), told
    assert deliveries(stage, orphans) == [1, 0, 0]


def test_a_plan_goes_on_where_it_was_killed(stage: Stage, tmp_path: Path) -> None:
    count = 120
    tool, orphans = stage.tool(), stage.orphans("plan_killed", count)
    file = tmp_path / "p.json"
    group = str(orphans[0].known["producer_group"])
    ran = tool.run("plan", "commit", "--group", group, "--reason", "OPS-1", "-o", str(file))
    assert ran.status == DONE, str(ran)
    process = tool.start("apply", str(file), "--yes", "--max-per-second", "40")
    end = time.monotonic() + 60
    while len(tool.journal() if process.poll() is None and time.monotonic() < end else range(99)) < 25:
        time.sleep(0.05)
    process.kill()
    process.communicate()
    begun = {line["transaction_id"] for line in tool.journal()}
    assert 10 < len(begun) < count
    ran = tool.run("receipts", "--outcome", "unknown", "--format", "jsonl", live=False)
    assert {row["transaction_id"] for row in ran.rows} == begun
    status, told, outcomes = applied(tool, file)
    assert (status, set(outcomes.values())) == (DONE, {"proved"}), told
    # The very last one may have been begun and not been sent.
    assert count - len(begun) <= len(outcomes) <= count - len(begun) + 1
    assert deliveries(stage, orphans) == [1] * count
    status, told, outcomes = applied(tool, file)
    assert (status, outcomes, f"{count} steps done" in told) == (DONE, {}, True), told


@pytest.mark.slow
def test_a_discarded_message_is_kept_as_it_was_sent(stage: Stage, tmp_path: Path) -> None:
    tool = stage.tool()
    bodies = [b"small \xff\x00", "für immer ".encode() * 3000]  # the client compresses from 4 KiB
    orphans = [stage.orphans(f"plan_discard_{number}", body=body)[0] for number, body in enumerate(bodies)]
    planned(tool, "discard", orphans, tmp_path / "p.json")
    status, told, _ = applied(tool, tmp_path / "p.json")
    assert status == DONE, told
    rows = {row["transaction_id"]: row for row in tool.run("receipts", "--format", "jsonl", live=False).rows}
    for one, body in zip(orphans, bodies, strict=True):
        row = rows[one.id]
        assert (row["action"], row["outcome"], row["state_after"]) == ("discard", "proved", "ROLLED_BACK")
        kept = json.loads(Path(row["saved_message"]).read_text())
        assert base64.b64decode(kept["body_base64"]) == body
        assert zlib.crc32(body) == stage.body_crcs[one.case]
        assert (kept["real_topic"], kept["transaction_id"]) == (row["topic"], row["transaction_id"])
    assert deliveries(stage, orphans) == [0, 0]


def test_a_decision_after_ours_is_found_by_a_second_look(stage: Stage, tmp_path: Path) -> None:
    tool, orphans = stage.tool(), stage.orphans("plan_contradicted", 2)
    planned(tool, "rollback", orphans, tmp_path / "p.json")
    assert applied(tool, tmp_path / "p.json")[0] == DONE
    row = next(row for row in tool.run("receipts", "--format", "jsonl", live=False).rows)
    named = row["named_copy"]
    answer = stage.broker.end_transaction(  # what nothing can prevent: the broker looks at no earlier decision
        producer_group=row["producer_group"], queue_offset=named["queue_offset"], decision=COMMIT,
        commit_log_offset=named["commit_log_offset"], transaction_id=row["transaction_id"],
    )
    assert answer.code == 0
    for where in ((), ("--store", str(stage.rig.store))):
        ran = tool.run("receipts", "--recheck", "--format", "jsonl", *where, live=not where)
        standings = {one["transaction_id"]: one["standing"] for one in ran.rows}
        assert ran.status == FINDINGS, str(ran)
        assert standings[row["transaction_id"]] == "contradicted"
        assert sorted(standings.values()) == ["contradicted", "stands"]
    status, told, _ = applied(tool, tmp_path / "p.json")
    assert (status, "2 steps done by an earlier run" in told) == (DONE, True), told


@pytest.mark.slow
def test_a_plan_of_files_is_applied_live(stage: Stage, tmp_path: Path) -> None:
    tool, orphans = stage.tool(), stage.orphans("plan_files", 2)
    planned(tool, "commit", orphans, tmp_path / "p.json", "--store", str(stage.rig.store))
    status, told, outcomes = applied(tool, tmp_path / "p.json")
    assert (status, set(outcomes.values())) == (DONE, {"proved"}), told
    assert "by offsets only" in told
    assert deliveries(stage, orphans) == [1, 1]


@pytest.mark.slow
def test_what_a_guard_refuses_is_not_planned_and_not_applied(stage: Stage, tmp_path: Path) -> None:
    tool, shop = stage.tool(), stage.shop()
    alive = shop.begin_all("plan_alive", 2)
    planned(tool, "commit", alive, tmp_path / "p.json")
    status, told, outcomes = applied(tool, tmp_path / "p.json")
    assert (status, set(outcomes.values())) == (REFUSED_BY_GUARD, {"refused_by_guard"}), told
    assert "refused by producer-connected" in told
    shop.kill()
    stage.until_gone(shop.group)
    assert applied(tool, tmp_path / "p.json")[0] == DONE
    again = tool.run("plan", "commit", alive[0].id, "--reason", "x", "-o", str(tmp_path / "q.json"))
    assert (again.status, "refused by already-delivered" in again.stderr) == (REFUSED_BY_GUARD, True), str(again)
    assert deliveries(stage, alive) == [1, 1]
