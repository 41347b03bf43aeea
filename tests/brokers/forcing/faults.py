"""Faults between rmqtx and a broker, and what the same command does when it is run again."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.brokers.forcing.stage import Stage
from tests.brokers.forcing.tool import Ran, Tool
from tests.brokers.proxy import FaultProxy
from tests.brokers.rig import REQUEST_END_TRANSACTION
from tests.brokers.transaction import Transaction

OPTIONS = ("--reason", "a fault", "--yes", "--format", "jsonl")


@contextmanager
def through_proxy(stage: Stage) -> Iterator[FaultProxy]:
    """A proxy in front of the broker."""
    with FaultProxy(stage.rig.address) as proxy:
        yield proxy


def commit(tool: Tool, one: Transaction, address: str, *words: str) -> Ran:
    """Commit through the address of a broker or a proxy."""
    return tool.run("commit", one.id, "--broker", address, *OPTIONS, *words, live=False)


def commit_and_kill(stage: Stage, tool: Tool, one: Transaction, proxy: FaultProxy) -> Ran:
    """Commit; the broker is killed between the decision and its confirmation."""
    process = tool.start("commit", one.id, "--broker", proxy.address, *OPTIONS, "--wait-for", "8s", live=False)
    end = time.monotonic() + 60
    while not proxy.responses[REQUEST_END_TRANSACTION]:
        assert process.poll() is None, str(tool.end(process))
        assert time.monotonic() < end
        time.sleep(0.01)
    stage.rig.stop("broker", signal.SIGKILL)
    return tool.end(process)
