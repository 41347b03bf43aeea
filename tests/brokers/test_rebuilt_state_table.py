"""A state table that was made anew, taken by a real 3.1.4: every undecided transaction is answered, and delivered once.

3.1.4 asks for the first time a minute after its start, whatever is set; so this is for `make test-brokers`.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from rmqtx.readers.old_tables.state_table import scan_state_table
from rmqtx.readers.store.store import open_store
from rmqtx.repairs.rebuild.rebuild import STATE_TABLE, rebuild
from rmqtx.repairs.records.store_sizes import store_sizes
from tests.brokers import corpus, maven
from tests.brokers.old_rig import FIRST_CHECK_SECONDS, OldRig
from tests.brokers.rig import Event
from tests.forge.stores import unpacked

STORES = ("statetable-recovered-3.1.4", "statetable-lossy-3.1.4", "statetable-killed-3.1.4")
_WAITED_SECONDS = 20
pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(maven.why_not() is not None, reason=str(maven.why_not())),
    pytest.mark.skipif(
        "3.1.4" not in os.environ.get("RMQTX_OLD_BROKER_VERSIONS", ""),
        reason="takes more than a minute for each store: make test-brokers starts it",
    ),
]


@pytest.mark.parametrize("name", STORES)
def test_a_real_broker_takes_every_answer_and_delivers_once(name: str, tmp_path: Path) -> None:
    store = open_store(unpacked(name))
    made = rebuild((STATE_TABLE,), store, tmp_path / "store", store_sizes(store))
    slots = scan_state_table(open_store(tmp_path / "store")).table().to_pylist()
    asked = {slot["commit_log_offset"] for slot in slots if slot["state"] == "PREPARED"}
    expected = {row["half_commit_log_offset"]: row for row in corpus.expected(name)}
    assert {offset for offset, row in expected.items() if row["state"] == "PENDING"} >= asked
    assert len(asked) == made.open_slots_count > 5
    events = _committed_by_checks(name, tmp_path)
    wanted = {expected[offset]["keys"] for offset in asked if expected[offset]["keys"]}
    got = Counter(event["keys"] for event in events if event["event"] == "delivered")
    assert {key: got[key] for key in wanted} == dict.fromkeys(wanted, 1)
    decided = [row for row in expected.values() if row["state"] != "PENDING" and row["keys"]]
    assert {row["keys"]: got[row["keys"]] for row in decided} == {
        row["keys"]: row["deliveries_count"] for row in decided
    }
    after = scan_state_table(open_store(tmp_path / "store")).table().to_pylist()
    assert {slot["commit_log_offset"] for slot in after if slot["state"] == "PREPARED"} == set()


def _committed_by_checks(name: str, out: Path) -> list[Event]:
    """Run the broker on `out`/store with producers that answer COMMIT to each check; gives what clients saw."""
    events: list[Event] = []
    conf = corpus.recipe(name)["broker_conf"]
    with OldRig("3.1.4", out, {key: value for key, value in conf.items() if "store" not in key.lower()}) as rig:
        rig.start()
        agent = rig.agent("client.log", events.append)
        rig.wait_broker(agent)
        for group in corpus.recipe(name)["groups"]:
            agent.do("producer", group=group, topic="orders", strangers="COMMIT")
        agent.do("consumer", group="whoever", topics=",".join(corpus.recipe(name)["topics"]))
        time.sleep(FIRST_CHECK_SECONDS + _WAITED_SECONDS)
        agent.close()
        assert rig.stop("broker") is not None
    return events
