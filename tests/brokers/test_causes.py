"""Causes that no small store shows: what a broker does with its op queue, and what only a running broker shows.

Each is provoked on a broker of a release that behaves so, and named by `rmqtx diagnose`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.brokers import maven
from tests.brokers.histories import HISTORIES
from tests.brokers.script import Script
from tests.brokers.stage import Play

WHY_NOT = maven.why_not()
SEED = 7043

pytestmark = [pytest.mark.broker, pytest.mark.skipif(WHY_NOT is not None, reason=f"no broker can be run: {WHY_NOT}")]


def diagnosed(*arguments: str) -> dict[str, dict[str, Any]]:
    """The causes that `rmqtx diagnose` names and does not rule out."""
    command = [str(Path(sys.executable).with_name("rmqtx")), "diagnose", *arguments, "--format", "jsonl"]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    rows = [json.loads(line) for line in found.stdout.splitlines()]
    return {row["cause"]: row for row in rows if row["strength"] != "ruled_out"}


def test_system_topics_are_open_to_clients(tmp_path: Path) -> None:
    """A message to the half topic itself, and an op queue that is deleted with any topic."""
    conf = {"transactionTimeOut": "20000"}  # the topic is deleted before any check
    play = Play(Script("4.5.0", SEED, {"half_by_hand": 2, "topic_deleted": 4}, conf=conf), tmp_path)
    with play.rig:
        play.run(HISTORIES)
    found = diagnosed(str(play.rig.store), "--broker-version", "4.5.0")
    assert found["sent-to-half-topic"]["strength"] == "explains"
    assert found["sent-to-half-topic"]["transactions_count"] == 2
    asked = Counter(event["case"] for event in play.truth if event["event"] == "check")
    again = [case for case in asked if case.startswith("topic_deleted")]
    assert found["op-queue-deleted"]["transactions_count"] == len(again) == 8


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_a_client_that_has_not_sent_gets_no_check(version: str, tmp_path: Path) -> None:
    """It sends heartbeats only to brokers of topics whose route it has; its first message makes it reachable.

    Where topics are created automatically, 4.9.7 gets the route of their template when it starts.
    """
    conf = {"transactionCheckMax": "100000", "autoCreateTopicEnable": "false"}
    play = Play(Script(version, SEED, {}, conf=conf), tmp_path)
    with play.rig:
        play.rig.start_names()
        play.boot()
        (sent,) = play.send_all("waiting", 1, Random(SEED))
        play.until_checked([sent], 1)
        play.agent.kill()
        play.agent = play.rig.agent("again.log", play.take)
        play.agent.do("producer", group="shop", unrouted="yes")
        time.sleep(5)
        checks = len(sent.checks)
        found = diagnosed("-n", play.rig.name_server)
        assert found["producer-not-connected"]["strength"] == "explains"
        assert found["producer-not-connected"]["transactions_count"] == 1
        assert len(sent.checks) == checks
        play.send_all("first", 1, Random(SEED), first="ROLLBACK")
        time.sleep(5)
        assert "producer-not-connected" not in diagnosed("-n", play.rig.name_server)
