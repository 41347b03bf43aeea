"""A hold on two real brokers: one of them refuses the settings, and rmqtx is killed between the two."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqtx.remoting.protocol.codes import RequestCode
from tests.brokers.forcing.conftest import VERSIONS, quick
from tests.brokers.forcing.stage import Stage
from tests.brokers.forcing.test_holds import CHECKS, HOLD
from tests.brokers.forcing.tool import Tool
from tests.brokers.proxy import Fault, FaultProxy

pytestmark = pytest.mark.slow
SECOND = "broker-b"
BLACK_LIST_SINCE = (5, 1, 1)
"""From here on a broker refuses changes of the settings in configBlackList."""


@pytest.fixture(scope="module", params=VERSIONS)
def two(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stage, Stage]]:
    """Two brokers at the name server of the first one; the second one registers with its own too."""
    version = str(request.param)
    conf = quick(version) | {"transactionCheckMax": str(CHECKS)}
    with Stage(version, tmp_path_factory.mktemp(f"first-{version}"), conf) as first:
        other = conf | {"brokerName": SECOND, "configBlackList": "configBlackList;brokerConfigPath"}
        second = Stage(version, tmp_path_factory.mktemp(f"second-{version}"), other)
        second.rig.conf["namesrvAddr"] = f"{second.rig.name_server};{first.rig.name_server}"
        with second:
            yield first, second


def limits(two: tuple[Stage, Stage]) -> list[str]:
    """What each of the two brokers has as transactionCheckMax now."""
    return [one.broker.config()["transactionCheckMax"] for one in two]


def held(tool: Tool, *brokers: str) -> list[tuple[str, str]]:
    """The holds that rmqtx lists, of some brokers or of all that the name server has: broker and state."""
    listed = tool.run("holds", *brokers, "--format", "jsonl", live=not brokers)
    return sorted({(row["store"].partition("@")[0], row["hold_state"]) for row in listed.rows})


def test_both_are_held_and_released(two: tuple[Stage, Stage]) -> None:
    tool = two[0].tool()
    ran = tool.act(*HOLD)
    assert (ran.status, [row["outcome"] for row in ran.rows]) == (0, ["proved", "proved"]), str(ran)
    assert min(int(one) for one in limits(two)) > CHECKS
    first = two[0].rig.conf["brokerName"]
    assert held(tool) == sorted([(first, "held"), (SECOND, "held")])
    released = tool.act("release")
    assert (released.status, len(released.rows)) == (0, 2), str(released)
    assert limits(two) == [str(CHECKS)] * 2
    assert held(tool) == []


def test_a_kill_between_the_two_is_known_to_the_next_command(two: tuple[Stage, Stage]) -> None:
    first, second = two
    tool = first.tool()
    with FaultProxy(second.rig.address) as proxy:
        proxy.break_next(Fault("hang", "request", request_code=RequestCode.UPDATE_BROKER_CONFIG))
        both = ("--broker", first.rig.address, "--broker", proxy.address)
        process = tool.start(*HOLD, *both, "--yes", "--format", "jsonl", live=False)
        end = time.monotonic() + 60
        while not proxy.struck:
            assert process.poll() is None, str(tool.end(process))
            assert time.monotonic() < end
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        tool.end(process)
        assert [int(one) > CHECKS for one in limits(two)] == [True, False]
        proxy.heal()
        proxy.end_connections()
        name = first.rig.conf["brokerName"]
        assert (name, "held") in held(tool, *both)
        again = tool.run(*HOLD, *both, "--yes", "--format", "jsonl", live=False)
        assert (again.status, {row["outcome"] for row in again.rows}) == (0, {"proved"}), str(again)
        assert min(int(one) for one in limits(two)) > CHECKS
        assert held(tool, *both) == sorted([(name, "held"), (SECOND, "held")])
        released = tool.run("release", *both, "--yes", "--format", "jsonl", live=False)
        assert released.status == 0, str(released)
        assert limits(two) == [str(CHECKS)] * 2
        assert held(tool, *both) == []


def test_one_of_two_refuses(two: tuple[Stage, Stage], tmp_path: Path) -> None:
    first, second = two
    if second.rig.release < BLACK_LIST_SINCE:
        pytest.skip(f"a broker {second.rig.version} refuses no setting to those who may ask")
    black_list = "configBlackList;brokerConfigPath;transactionCheckMax"
    second.rig.conf["configBlackList"] = black_list
    second.rig.stop("broker")
    second.rig.start_broker()  # with the settings of `conf`
    tool = first.tool()
    end = time.monotonic() + 60
    while SECOND not in tool.run("hold", "--for", "1h", "--reason", "x", "--dry-run").stderr:
        assert time.monotonic() < end, "the second broker is not registered again"
        time.sleep(1)
    ran = tool.act(*HOLD)
    assert ran.status == 17, str(ran)
    outcomes = {row["store"].partition("@")[0]: row["outcome"] for row in ran.rows}
    assert outcomes[first.rig.conf["brokerName"]] == "proved", str(ran)
    assert outcomes[SECOND] != "proved", str(ran)
    assert SECOND in ran.stderr, str(ran)
    assert [int(one) > CHECKS for one in limits(two)] == [True, False]
    assert held(tool) == [(first.rig.conf["brokerName"], "held")]
    released = tool.act("release")
    assert released.status == 0, str(released)
    assert limits(two) == [str(CHECKS)] * 2
