"""Faults: one clear line, the exit status that says how much is known, and the right thing when it is run again."""

from __future__ import annotations

import socket
import time

import pytest

from rmqtx.remoting.connections.connection import Request, Value
from rmqtx.remoting.protocol.codes import RequestCode
from tests.brokers.forcing.faults import OPTIONS, commit, commit_and_kill, through_proxy
from tests.brokers.forcing.stage import Stage
from tests.brokers.forcing.tool import Ran
from tests.brokers.proxy import Fault
from tests.brokers.rig import CHECK_GROUP, HALF_TOPIC, REQUEST_END_TRANSACTION

pytestmark = pytest.mark.slow
REFUSED, UNREACHABLE, UNKNOWN = 12, 14, 18


def nobody() -> str:
    """An address at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def said(ran: Ran) -> list[str]:
    """The lines of stderr; a traceback is none of them."""
    assert "Traceback" not in ran.stderr, str(ran)
    assert "a bug" not in ran.stderr, str(ran)
    return ran.stderr.splitlines()


def test_name_server_down(stage: Stage) -> None:
    tool = stage.tool(nobody())
    for words in (["pending"], ["show", "ID"], ["audit"], ["commit", "ID", *OPTIONS]):
        ran = tool.run(*words)
        assert ran.status == UNREACHABLE, str(ran)
        assert len(said(ran)) == 1, str(ran)
        assert tool.name_server in ran.stderr
    assert tool.journal() == []


def test_broker_down(stage: Stage) -> None:
    tool, address = stage.tool(), nobody()
    ran = tool.run("commit", "ID", "--broker", address, *OPTIONS, live=False)
    assert ran.status == UNREACHABLE, str(ran)
    assert len(said(ran)) == 1, str(ran)
    assert address in ran.stderr
    assert tool.journal() == []


def test_request_is_cut_and_run_again(stage: Stage) -> None:
    (one,) = stage.orphans("fault-request-cut")
    tool = stage.tool()
    with through_proxy(stage) as proxy:
        proxy.break_next(Fault("cut", "request", REQUEST_END_TRANSACTION))
        ran = commit(tool, one, proxy.address)
        assert (ran.status, [row["outcome"] for row in ran.rows]) == (UNKNOWN, ["unknown"]), str(ran)
        said(ran)
        assert proxy.requests[REQUEST_END_TRANSACTION] == 1, "a decision is sent once"
        again = commit(tool, one, proxy.address)
    assert (again.status, [row["outcome"] for row in again.rows]) == (0, ["proved"]), str(again)
    stage.until_consumed()
    assert stage.delivered(one) == 1


@pytest.mark.parametrize("kind", ["cut", "drop", "hang", "delay"])
def test_response_is_lost_and_run_again(stage: Stage, kind: str) -> None:
    (one,) = stage.orphans(f"fault-response-{kind}")
    tool = stage.tool()
    with through_proxy(stage) as proxy:
        fault = Fault(kind, "response", REQUEST_END_TRANSACTION, delay_ms=4000)  # type: ignore[arg-type]
        proxy.break_next(fault)
        ran = commit(tool, one, proxy.address, "--timeout", "2s")
        assert proxy.struck == [fault]
        assert proxy.requests[REQUEST_END_TRANSACTION] == 1, "a decision is sent once"
        said(ran)
        # What nobody answered is looked up: the final is there.
        assert (ran.status, [row["outcome"] for row in ran.rows]) == (0, ["proved"]), str(ran)
        assert ran.rows[0]["requests"][0]["response_code"] is None
        again = commit(tool, one, proxy.address)
    assert again.status == REFUSED, str(again)
    assert "already-delivered" in again.stderr
    stage.until_consumed()
    assert stage.delivered(one) == 1


def test_broker_killed_between_act_and_proof(stage: Stage) -> None:
    (one,) = stage.orphans("fault-killed")
    tool = stage.tool()
    with through_proxy(stage) as proxy:
        ran = commit_and_kill(stage, tool, one, proxy)
        assert ran.status == UNKNOWN, str(ran)
        assert "Traceback" not in ran.stderr
        print(ran)
        stage.rig.start_broker()
        stage.rig.wait_broker(stage.agent)
        again = commit(tool, one, proxy.address)
        print(again)
    assert again.status == REFUSED, str(again)
    assert "already-delivered" in again.stderr
    stage.until_consumed()
    assert stage.delivered(one) == 1


@pytest.mark.parametrize("action", ["commit", "rollback"])
def test_older_copies_come_to_the_check_again(stage: Stage, action: str) -> None:
    """As after a kill, which loses some seconds of the check's cursor: the copies that it had passed are before it."""
    (one,) = stage.orphans(f"fault-cursor-{action}")
    stage.put_back([one], times=2)
    broker, first = stage.broker, int(one.known["queue_offset"])
    fields: dict[str, Value] = {
        "consumerGroup": CHECK_GROUP, "topic": HALF_TOPIC, "queueId": 0, "commitOffset": first,
    }
    broker.client.call(broker.address, Request(RequestCode.UPDATE_CONSUMER_OFFSET, fields))
    assert broker.consumer_offset(CHECK_GROUP, HALF_TOPIC) == first
    tool = stage.tool()
    ran = tool.run(action, one.id, *OPTIONS)
    assert (ran.status, [row["outcome"] for row in ran.rows]) == (0, ["proved"]), str(ran)
    assert sum("older half copy" in note for note in ran.rows[0]["notes"]) == 2, str(ran)
    assert stage.asked_again([one]) == []
    stage.until_consumed()
    assert stage.delivered(one) == (action == "commit")
    shown = tool.run("show", one.id, "--format", "jsonl").rows
    assert [(row["flags"], row["advice"]) for row in shown] == [([], "none")]


def test_a_decision_that_arrives_after_its_process_was_killed_is_waited_for(stage: Stage) -> None:
    (one,) = stage.orphans("fault-late-request")
    tool = stage.tool()
    with through_proxy(stage) as proxy:
        proxy.break_next(Fault("delay", "request", REQUEST_END_TRANSACTION, delay_ms=30_000))
        process = tool.start("commit", one.id, "--broker", proxy.address, *OPTIONS, live=False)
        end = time.monotonic() + 60
        while not proxy.requests[REQUEST_END_TRANSACTION]:
            assert process.poll() is None, str(tool.end(process))
            assert time.monotonic() < end
            time.sleep(0.01)
        process.kill()
        tool.end(process)
        again = commit(tool, one, stage.rig.address)
        stage.logged(str(again))
        assert again.status == REFUSED, str(again)
        assert "already-delivered" in again.stderr, str(again)
    stage.until_consumed()
    assert stage.delivered(one) == 1
