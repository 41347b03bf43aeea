"""A stand-in and a canary on a real broker; what became of it is what the official client and consumer saw."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from rmqtx.repairs.receipts.plan_file import Plan, read_plan
from tests.brokers import maven
from tests.brokers.forcing.stage import Shop, Stage
from tests.brokers.forcing.tool import Ran, Row, Tool
from tests.brokers.transaction import Transaction

VERSIONS = [
    version for version in os.environ.get("RMQTX_BROKER_VERSIONS", "5.3.3").split() if version.split(".") >= ["4", "9"]
]
WHY_NOT = maven.why_not()
QUICK = {"waitTimeMillsInTransactionQueue": "500"}
QUICK_5 = {"transactionOpBatchInterval": "500"}
CANARY = "rmqtx-probe"
SLOW = pytest.mark.skipif(not os.environ.get("RMQTX_FORCING"), reason="make test-forcing runs it")
LEDGER = ("--match", "keys = order_id", "--done", "status = PAID", "--not-done", "status = CANCELLED")

pytestmark = [pytest.mark.broker, pytest.mark.skipif(WHY_NOT is not None, reason=f"no broker can be run: {WHY_NOT}")]


def stage_of(version: str, out: Path) -> Stage:
    return Stage(version, out, QUICK | (QUICK_5 if version.startswith("5.") else {}))


def listening(tool: Tool, *words: str) -> tuple[subprocess.Popen[str], list[str]]:
    """A stand-in that has joined its group, and what it said until then."""
    process = tool.start("answer", *words, "--yes", "--format", "jsonl")
    assert process.stderr is not None
    said: list[str] = []
    for line in process.stderr:
        said.append(line)
        if "joined group" in line:
            return process, said
    pytest.fail(f"it did not join: {''.join(said)}")


def plan_file(tool: Tool, out: Path, commit: list[Transaction], rollback: list[Transaction]) -> Path:
    """A plan of both actions, made as a user makes it."""
    parts: list[Plan] = []
    for action, chosen in (("commit", commit), ("rollback", rollback)):
        file = out / f"{action}.json"
        ran = tool.run("plan", action, *(one.id for one in chosen), "-o", str(file), "--reason", "a test")
        assert ran.status == 0, ran
        parts.append(read_plan(file))
    whole = parts[0]
    whole.steps += parts[1].steps
    (out / "plan.json").write_text(whole.text())
    return out / "plan.json"


def rows_of(ran: Ran) -> dict[str, Row]:
    return {row["transaction_id"]: row for row in ran.rows}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stand_in_settles_what_a_killed_producer_left(version: str, tmp_path: Path) -> None:
    with stage_of(version, tmp_path) as stage:
        tool = stage.tool()
        shop = stage.shop("e-shop")
        done, undone = shop.begin_all("paid", 4), shop.begin_all("cancelled", 4)
        unnamed = shop.begin_all("unnamed", 2)
        members_are_refused(stage, tool, tmp_path, done, undone)
        shop.kill()
        stage.until_gone("e-shop")
        answers_by_plan(stage, tool, tmp_path, done[:2], undone[:2])
        answers_by_ledger(stage, tool, tmp_path, done, undone, unnamed)
        settled = [*done, *undone]
        assert stage.asked_again(settled) == []
        stage.until_consumed()
        assert {one.case: stage.delivered(one) for one in done} == {one.case: 1 for one in done}
        assert {one.case: stage.delivered(one) for one in [*undone, *unnamed]} == dict.fromkeys(
            (one.case for one in [*undone, *unnamed]), 0
        )
        pending = tool.run("pending", "--format", "jsonl")
        assert {row["transaction_id"]: row["state"] for row in pending.rows} == {one.id: "PENDING" for one in unnamed}
        receipts = tool.run("receipts", "--format", "jsonl", live=False)
        outcomes = [(row["action"], row["outcome"]) for row in receipts.rows if row["action"] != "close"]
        assert sorted(outcomes) == [("commit", "proved")] * 4 + [("rollback", "proved")] * 4
        stage.rig.create_topic(stage.agent, CANARY, 1)
        every_step_is_proved(stage, tool, tmp_path)


def members_are_refused(
    stage: Stage, tool: Tool, out: Path, done: list[Transaction], undone: list[Transaction]
) -> None:
    """While the group's own process lives, nothing is joined."""
    file = plan_file(tool, out, done[:2], undone[:2])
    ran = tool.run("answer", "--group", "e-shop", "--plan", str(file), "--yes")
    assert ran.status == 12, ran
    assert "producer-connected: producers of group e-shop are connected" in ran.stderr
    assert [one.client_id for one in stage.broker.producer_connections("e-shop") if "rmqtx" in one.client_id] == []


def answers_by_plan(
    stage: Stage, tool: Tool, out: Path, done: list[Transaction], undone: list[Transaction]
) -> None:
    file = out / "plan.json"
    with stage.checks():
        ran = tool.run(
            "answer", "--group", "e-shop", "--plan", str(file), "--until-done", "--for", "60s", "--yes",
            "--reason", "the shop is dead", "--format", "jsonl",
        )
    assert ran.status == 0, ran
    found = rows_of(ran)
    assert {found[one.id]["answer"] for one in done} == {"commit"}
    assert {found[one.id]["answer"] for one in undone} == {"rollback"}
    assert {found[one.id]["outcome"] for one in [*done, *undone]} == {"proved"}
    others = [row for name, row in found.items() if name not in {one.id for one in [*done, *undone]}]
    assert {(row["answer"], row["outcome"], row["answer_reason"]) for row in others} == {
        (None, None, "the plan does not name it")
    }
    digests = {line["plan"]["digest"] for line in tool.journal() if line["action"] in ("commit", "rollback")}
    assert len(digests) == 1


def answers_by_ledger(
    stage: Stage, tool: Tool, out: Path, done: list[Transaction], undone: list[Transaction],
    unnamed: list[Transaction],
) -> None:
    """The ledger settles the rest; of what it has open it learns nothing, so that is not answered."""
    words = {"PAID": done, "CANCELLED": undone, "OPEN": unnamed}
    lines = [f"{one.known['keys']},{word}" for word, chosen in words.items() for one in chosen]
    ledger = out / "orders.csv"
    ledger.write_text("order_id,status\n" + "\n".join(lines) + "\n")
    with stage.checks():
        ran = tool.run(
            "answer", "--group", "e-shop", "--ledger", str(ledger), *LEDGER, "--until-done", "--for", "60s", "--yes",
            "--format", "jsonl",
        )
    assert ran.status == 0, ran
    found = rows_of(ran)
    assert {name: row["answer"] for name, row in found.items()} == {
        **{one.id: "commit" for one in done[2:]}, **{one.id: "rollback" for one in undone[2:]},
        **{one.id: None for one in unnamed},
    }
    assert {found[one.id]["outcome"] for one in [*done[2:], *undone[2:]]} == {"proved"}
    assert all(found[one.id]["final_commit_log_offset"] for one in done[2:])


@SLOW
@pytest.mark.parametrize("version", VERSIONS)
def test_a_stand_in_stops_when_the_group_comes_back_and_goes_on_when_the_broker_does(
    version: str, tmp_path: Path
) -> None:
    with stage_of(version, tmp_path) as stage:
        tool = stage.tool()
        done = stage.orphans("paid", 2)
        late = stage.orphans("late", 2)
        group = done[0].known["producer_group"]
        file = plan_file(tool, tmp_path, done, late)
        process, said = listening(tool, "--group", group, "--plan", str(file), "--until-done", "--for", "90s")
        stage.rig.stop("broker", signal.SIGTERM)
        time.sleep(1)
        stage.rig.conf["transactionTimeOut"] = "1000"
        stage.rig.start_broker()
        stage.rig.wait_broker(stage.agent)
        ran = tool.end(process)
        assert ran.status == 0, ran
        assert "2 transactions of the plan not pending in this group" in "".join(said)
        assert "connection lost, retrying" in ran.stderr
        assert "connected again" in ran.stderr
        assert {rows_of(ran)[one.id]["outcome"] for one in done} == {"proved"}
        other = late[0].known["producer_group"]
        stage.config(transactionTimeOut="600000")
        process, _ = listening(tool, "--group", other, "--plan", str(file), "--for", "60s")
        again = Shop(stage, other)
        again.begin_all("own", 1, first="COMMIT")  # brokers list no producer that has not sent
        ran = tool.end(process)
        again.agent.close()
        assert ran.status == 12, ran
        assert f"producer-connected: producers of group {other} are connected" in ran.stderr
        assert {row["outcome"] for row in ran.rows} == {None}


# -- the canary -------------------------------------------------------------------------------------------------------


def probe(tool: Tool, *words: str) -> tuple[Ran, Row]:
    limits = () if "--warning" in words else ("--warning", "60s", "--critical", "120s")  # the machine may be busy
    ran = tool.run("probe", "--topic", CANARY, "--group", CANARY, *words, *limits, "--format", "json")
    return ran, json.loads(ran.stdout) if ran.stdout.startswith("{") else {}


@SLOW
@pytest.mark.parametrize("version", VERSIONS)
def test_a_canary_leaves_nothing_open_whatever_happens(version: str, tmp_path: Path) -> None:
    with stage_of(version, tmp_path) as stage:
        tool = stage.tool()
        ran, _ = probe(tool)
        assert ran.status == 3, ran
        assert f"topic '{CANARY}' does not exist" in ran.stdout
        assert "mqadmin updateTopic" in ran.stdout
        stage.rig.create_topic(stage.agent, CANARY, 1)
        every_step_is_proved(stage, tool, tmp_path)
        interrupted_leaves_nothing(stage, tool)
        killed_is_swept(stage, tool)
        late_steps_are_told(tool)
        assert tool.run("pending", "--format", "jsonl").rows == []
        others_are_refused(stage, tool)
        stage.rig.stop("broker", signal.SIGKILL)
        ran = tool.run("probe", "--topic", CANARY, "--group", CANARY, "--format", "nagios")
        assert ran.status == 2, ran
        assert ran.stdout.startswith("RMQTX CRITICAL - "), ran  # in time the name server, too, knows that it is gone


def every_step_is_proved(stage: Stage, tool: Tool, out: Path) -> None:
    with stage.checks():
        ran, said = probe(tool, "--textfile", str(out / "probe.prom"))
    assert ran.status == 0, ran
    steps = [(step["scenario"], step["step"]) for step in said["brokers"][0]["steps"] if step["is_proved"]]
    assert len(steps) == 15
    assert ("check", "ask") in steps
    prometheus = (out / "probe.prom").read_text()
    assert "rmqtx_probe_status 0\n" in prometheus
    assert 'scenario="check",step="ask"} ' in prometheus
    finals = stage.rig.pull(stage.agent, CANARY, bodies=True)
    assert len(finals) == 2
    assert all(record["body_text"].startswith("rmqtx probe") for record in finals)


def waiting_for_its_check(stage: Stage, tool: Tool) -> subprocess.Popen[str]:
    """A canary in the middle: its half is stored, and the broker does not ask yet."""
    process = tool.start("probe", "--topic", CANARY, "--group", CANARY, "--critical", "60s", "--format", "nagios")
    end = time.monotonic() + 30
    while len(stage.rig.pull(stage.agent, CANARY)) % 2 == 0:
        assert time.monotonic() < end
        time.sleep(0.2)
    time.sleep(1.5)
    return process


def interrupted_leaves_nothing(stage: Stage, tool: Tool) -> None:
    process = waiting_for_its_check(stage, tool)
    process.send_signal(signal.SIGTERM)
    ran = tool.end(process)
    assert ran.status == 3, ran
    assert "interrupted; its open transactions were rolled back" in ran.stdout
    time.sleep(1.5)  # the op batch
    assert tool.run("pending", "--format", "jsonl").rows == []
    probe_counts(stage, 3)


def killed_is_swept(stage: Stage, tool: Tool) -> None:
    """What a canary that was killed left open, the next one ends when the broker asks about it."""
    ran, _ = probe(tool, "--without-check")
    assert ran.status == 0, ran
    process = waiting_for_its_check(stage, tool)
    process.kill()
    tool.end(process)
    assert tool.run("pending", "--format", "jsonl").rows
    with stage.checks():
        ran, said = probe(tool)
    assert ran.status == 0, ran
    assert len(said["brokers"][0]["ended_of_earlier_probes"]) >= 1
    probe_counts(stage, 7)


def late_steps_are_told(tool: Tool) -> None:
    ran, said = probe(tool, "--without-check", "--warning", "0s", "--critical", "30s")
    assert ran.status == 1, ran
    assert "took" in said["reasons"][0]["reason"]


def others_are_refused(stage: Stage, tool: Tool) -> None:
    Shop(stage, CANARY).begin_all("own", 1, first="COMMIT")
    stage.until("its heartbeat", lambda: bool(stage.broker.producer_connections(CANARY)))
    ran, _ = probe(tool)
    assert ran.status == 3, ran
    assert f"group {CANARY} has other producers" in ran.stdout


def probe_counts(stage: Stage, count: int) -> None:
    assert len(stage.rig.pull(stage.agent, CANARY)) == count
