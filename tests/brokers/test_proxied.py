"""Live brokers behind a real proxy: what is listed, diagnosed and refused while a proxy is registered for its clients.

`RMQTX_BROKER_VERSIONS` names the versions of broker, proxy and remoting client (default: one).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqtx.remoting.protocol.answers import PROXY_PRODUCER
from tests.brokers import maven
from tests.brokers.forcing.stage import Stage, soon_ms
from tests.brokers.forcing.tool import Ran, Row, Tool
from tests.brokers.proxied_stage import OF_TRANSACTIONS, REMOTING_GROUP, Proxy
from tests.brokers.rig import Agent
from tests.brokers.test_live import VERSIONS
from tests.brokers.transaction import Transaction

WHY_NOT = maven.why_not()
TOPIC = "invoices"
LATE_SECONDS = 33
PATIENCE_SECONDS = 180

pytestmark = [pytest.mark.broker, pytest.mark.skipif(WHY_NOT is not None, reason=f"no broker can be run: {WHY_NOT}")]


def begin(stage: Stage, clients: Agent, group: str, case: str, **wanted: object) -> Transaction:
    """Begin a transaction behind the proxy, and wait until it is stored."""
    one = Transaction(case, case)
    stage.keep(one)
    clients.start(
        "send", case=case, plan=case, kind="transaction", group=group, topic=TOPIC, keys=f"key-{case}", body="eA==",
        **wanted,
    )
    stage.until(f"{case} sent", lambda: one.sent is not None, PATIENCE_SECONDS)
    return one


@pytest.mark.parametrize("version", VERSIONS)
def test_a_proxy_is_not_the_application(version: str, tmp_path: Path) -> None:
    with Stage(version, tmp_path) as stage:
        stage.rig.create_topic(stage.agent, TOPIC, 2, OF_TRANSACTIONS)
        stage.agent.do("consumer", group="billing", topics=TOPIC)
        proxy = Proxy(stage.rig, version)
        proxy.start()
        grpc, remoting = (proxy.agent(kind, f"{kind}.log", stage.take) for kind in ("grpc", "remoting"))
        grpc.do("producer", group=TOPIC)
        remoting.do("producer", group=REMOTING_GROUP, topic=TOPIC)
        late = begin(stage, grpc, TOPIC, "late", first="COMMIT", at=soon_ms(LATE_SECONDS), checks="COMMIT")
        left = begin(stage, grpc, TOPIC, "left")
        lost = begin(stage, remoting, REMOTING_GROUP, "lost", first="COMMIT", checks="COMMIT")
        stage.until("the proxy is registered", lambda: is_registered(stage), PATIENCE_SECONDS)
        tool = stage.tool()
        the_proxy_is_named(tool, late, left, lost)
        the_guard_refuses(tool, left)
        stage.until("the late decision", lambda: is_lost(stage, late), PATIENCE_SECONDS)
        with stage.checks():
            stage.until("both delivered", lambda: bool(late.deliveries and lost.deliveries), PATIENCE_SECONDS)
        causes_are_named(tool, late, left, lost)
        an_override_commits(stage, tool, left)


def is_registered(stage: Stage) -> bool:
    """Whether the broker lists the proxy, and nothing else, for both groups."""
    found = [stage.broker.producer_connections(group) for group in (TOPIC, REMOTING_GROUP)]
    return [{one.client_id for one in group} for group in found] == [{PROXY_PRODUCER}] * 2


def is_lost(stage: Stage, one: Transaction) -> bool:
    """Whether the client reported that the proxy refused its decision."""
    return any(event["event"] == "decision_lost" and event["case"] == one.case for event in stage.truth)


def the_proxy_is_named(tool: Tool, late: Transaction, left: Transaction, lost: Transaction) -> None:
    ran = tool.run("pending", "--format", "jsonl")
    rows = {row["transaction_id"]: row for row in ran.rows}
    assert set(rows) == {late.id, left.id, lost.id}
    assert {(row["asked_through"], row["producer_alive"]) for row in rows.values()} == {("proxy", None)}
    assert f"asked through a proxy: groups {TOPIC}, {REMOTING_GROUP}" in ran.stderr
    assert "no process answers" not in ran.stderr
    listed = tool.run("producers", "--format", "jsonl")
    of_groups = {row["producer_group"]: row for row in listed.rows}
    assert {group: (row["client_id"], row["is_proxy"], row["pending_count"]) for group, row in of_groups.items()} == {
        TOPIC: (PROXY_PRODUCER, True, 2), REMOTING_GROUP: (PROXY_PRODUCER, True, 1),
    }
    shown = tool.run("show", left.id)
    assert f"group   {TOPIC}, the name of the topic: sent by a gRPC client through a proxy, asked" in shown.stdout
    shown = tool.run("show", lost.id)
    assert f"group   {REMOTING_GROUP}, asked through a proxy: whether the application is connected" in shown.stdout


def the_guard_refuses(tool: Tool, left: Transaction) -> None:
    """Whether the application lives is unknown, so nothing is decided, and the sentence has the reason."""
    for ran in (tool.act("commit", left.id), tool.act("rollback", left.id)):
        assert ran.status == 12, ran
        assert f"producer-connected: only a proxy is registered for group {TOPIC} ({PROXY_PRODUCER} at " in ran.stderr
        assert "all its gRPC clients share it" in ran.stderr
    plan = tool.state.parent / "plan.json"
    ran = tool.run("plan", "commit", left.id, "-o", str(plan), "--reason", "a test")
    assert f"only a proxy is registered for group {TOPIC}" in ran.stderr, ran
    ran = tool.run("answer", "--group", TOPIC, "--plan", str(plan), "--yes")
    assert ran.status == 12, ran
    assert f"producer-connected: only a proxy is registered for group {TOPIC}" in ran.stderr


def causes_are_named(tool: Tool, late: Transaction, left: Transaction, lost: Transaction) -> None:
    """The open one fits too: whether its client decided while the proxy had forgotten it is not known."""
    rows = diagnosed(tool.run("diagnose", "--format", "json"))
    for word, found in (("proxy-forgot-half", [late, left]), ("proxy-loses-remoting-decision", [lost])):
        assert rows[word]["strength"] == "could_explain"
        assert [example["transaction_id"] for example in rows[word]["examples"]] == [one.id for one in found]
        assert word in tool.run("show", found[0].id).stdout
    conf = tool.state.parent / "rmq-proxy.json"
    conf.write_text(json.dumps({"transactionDataExpireMillis": 3_600_000}))
    assert "proxy-forgot-half" not in diagnosed(tool.run("diagnose", "--proxy-conf", str(conf), "--format", "json"))


def diagnosed(ran: Ran) -> dict[str, Row]:
    assert ran.status == 0, ran
    return {row["cause"]: row for row in json.loads(ran.stdout)}


def an_override_commits(stage: Stage, tool: Tool, left: Transaction) -> None:
    ran = tool.act("commit", left.id, "--override", "producer-connected", "--reason", "the application was stopped")
    assert ran.status == 0, ran
    assert [row["outcome"] for row in ran.rows] == ["proved"]
    stage.until("delivered", lambda: bool(left.deliveries), PATIENCE_SECONDS)
    assert stage.delivered(left) == 1
