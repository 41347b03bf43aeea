"""A broker on a store of the corpus, what its clients see, and what `rmqtx verify` finds in the store afterwards."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rmqtx_cli.main import status_of
from tests.brokers.rig import DISCARD_TOPIC, Agent, Event, Rig

#: The check sends a request for every open transaction and discards none, however old the store is.
CALM = {
    "transactionCheckMax": "100000", "transactionTimeOut": "1000", "transactionCheckInterval": "1000",
    "fileReservedTime": "100000",
}
WAIT_SECONDS = 4
QUIET_SECONDS = 2


class Seen:
    """What clients of the broker saw."""

    def __init__(self, cases: Mapping[str, str]) -> None:
        """`cases`: histories by transaction id."""
        self._cases = cases
        self.delivered: Counter[str] = Counter()
        self.checks: set[str] = set()

    def case(self, event: Event) -> str:
        """The history of its transaction: some events lack the property with it, others the id."""
        return str(event["case"] or self._cases.get(event["transaction_id"]))

    def take(self, event: Event) -> None:
        """Count a delivery or a check."""
        if event["event"] == "delivered" and event["topic"] != DISCARD_TOPIC:
            self.delivered[self.case(event)] += 1
        elif event["event"] == "check":
            self.checks.add(self.case(event))

    def until_quiet(self) -> None:
        """Wait until no new event comes."""
        begin = last = time.monotonic()
        before: Any = None
        while time.monotonic() < begin + WAIT_SECONDS or time.monotonic() < last + QUIET_SECONDS:
            now = (sum(self.delivered.values()), len(self.checks))
            if now != before:
                before, last = now, time.monotonic()
            time.sleep(0.2)

    def meet_clients(self, agent: Agent, made: Mapping[str, Any]) -> None:
        """Start every producer group of a recipe and a new consumer of every topic; wait until no new event comes."""
        for group in made["groups"]:
            agent.do("producer", group=group, topic=next(iter(made["topics"])))
        agent.do("consumer", group="fresh", topics=",".join(made["topics"]))
        self.until_quiet()


@contextmanager
def booted(rig: Rig, take: Callable[[Event], None] | None = None) -> Iterator[Agent]:
    """Run a broker and its name server; yield the agent of its clients. Stopped cleanly after the clients."""
    rig.start_broker()
    agent = rig.agent(on_event=take)
    rig.wait_broker(agent)
    yield agent
    agent.kill()
    rig.stop("broker")


def finding_codes(root: Path, directory: Path) -> list[str]:
    """The codes of the findings of `rmqtx verify` in a broker's store, without notes."""
    output = directory / "findings.json"
    status_of(["verify", str(root), "-o", str(output)])
    return [row["code"] for row in json.loads(output.read_text()) if row["severity"] != "note"]


def until(what: str, true: Callable[[], bool], seconds: float = 30) -> None:
    """Wait until `true()`; fail with `what` when it takes too long."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.1)
