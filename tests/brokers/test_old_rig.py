"""Old brokers, live: what END_TRANSACTION by hand does on them, before and after a crash.

`RMQTX_OLD_BROKER_VERSIONS` names the versions (default: the oldest alone).
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.brokers import maven
from tests.brokers.old_rig import COMMIT, ROLLBACK, OldRig, old_rig
from tests.brokers.rig import Agent, Event
from tests.brokers.store_files import log_end
from tests.brokers.watching import until

VERSIONS = os.environ.get("RMQTX_OLD_BROKER_VERSIONS", "3.1.4").split()
WHY_NOT = maven.why_not()
TYPE_BITS = 0xC

pytestmark = [pytest.mark.broker, pytest.mark.skipif(WHY_NOT is not None, reason=f"no broker can be run: {WHY_NOT}")]


def clients(rig: OldRig, events: list[Event]) -> Agent:
    agent = rig.agent(on_event=events.append)
    rig.wait_broker(agent)
    rig.create_topic(agent, "orders")
    agent.do("consumer", group="warehouse", topics="orders")
    agent.do("producer", group="shop", topic="orders")
    return agent


@pytest.mark.parametrize("version", VERSIONS)
def test_the_handle_of_a_prepared_record_decides_before_and_after_a_crash(version: str, tmp_path: Path) -> None:
    events: list[Event] = []

    def send(case: str) -> Event:
        agent.do("send", kind="transaction", group="shop", topic="orders", case=case, plan=case, body="aGVsbG8=")
        return next(event for event in events if event["event"] == "sent" and event["case"] == case)

    def deliveries(case: str) -> int:
        """After a crash the consumer gets again what it had not reported: each record counts once."""
        got = [event for event in events if event["event"] == "delivered" and event["case"] == case]
        return len({event["commit_log_offset"] for event in got})

    with old_rig(version, tmp_path / "rig") as rig:
        rig.start()
        agent = clients(rig, events)
        sent = {case: send(case) for case in ("now", "never", "later")}
        assert rig.end(agent, COMMIT, sent["now"])["code"] == 0
        assert rig.end(agent, ROLLBACK, sent["never"])["code"] == 0
        assert rig.end(agent, COMMIT, sent["later"], producerGroup="nobody")["code"] != 0
        assert rig.end(agent, COMMIT, sent["later"], tranStateTableOffset=7)["code"] != 0
        until("delivered", lambda: deliveries("now") == 1)
        rig.stop("broker", signal.SIGKILL)
        agent.kill()
        rig.start_broker()
        agent = clients(rig, events)
        assert rig.end(agent, COMMIT, sent["later"])["code"] == 0
        until("delivered after the crash", lambda: deliveries("later") == 1)
        records = rig.view(agent, log_end(rig.store))
        assert [record["system_flag"] & TYPE_BITS for record in records] == [4, 4, 4, COMMIT, ROLLBACK, COMMIT]
        named = [record["prepared_transaction_offset"] for record in records[3:]]
        assert named == [sent[case]["commit_log_offset"] for case in ("now", "never", "later")]
        assert [deliveries(case) for case in ("now", "never", "later")] == [1, 0, 1]
