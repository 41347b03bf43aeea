"""The list of connected producers: of all groups at once, of one at a time, and of groups without a client."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from rmqtx.remoting.connections.client import Client
from rmqtx.remoting.live.producer_list import PRODUCERS, connected_producers, producers_table
from rmqtx.remoting.protocol.answers import ClientConnection
from tests.remoting.test_live_questions import Served


@pytest.mark.parametrize(
    ("number", "release"),
    [
        (213, "4.0.0"), (214, "4.0.1-SNAPSHOT"), (407, "4.9.7"), (411, "4.9.9"), (412, "5.0.0-SNAPSHOT"),
        (413, "5.0.0"), (479, "5.3.3"), (513, "5.5.0"), (515, "5.5.1"), (211, "211"), (0, "0"),
    ],
)
def test_the_release_of_a_client(number: int, release: str) -> None:
    """Numbers printed by MQVersion of 5.5.0."""
    assert ClientConnection("c", "a", "JAVA", number).release == release


@pytest.mark.parametrize("name", ["common-5.3.3", "common-4.9.7", "common-4.3.0"])
def test_who_is_connected_and_who_waits(name: str, tmp_path: Path, client: Client) -> None:
    one = Served(name, tmp_path, client)
    is_whole = name != "common-4.3.0"
    with one.server:
        one.answers.producers |= {"shop", "idle"}
        one.answers.proxied |= {"orders"}
        found = connected_producers(one.broker, ["shop", "gone"])
        assert (found.is_whole, found.note() is None) == (is_whole, is_whole)
        waiting = Counter({(one.broker.root, "shop"): 3, (one.broker.root, "gone"): 2, ("another broker", "x"): 9})
        table = producers_table([found], waiting)
        assert table.schema.equals(PRODUCERS)
        rows = {row["producer_group"]: row for row in table.to_pylist()}
        listed = {"shop", "idle", "orders", "gone"} if is_whole else {"shop", "gone"}
        assert set(rows) == listed
        assert (rows["shop"]["client_version"], rows["shop"]["address"], rows["shop"]["pending_count"]) == (
            "5.3.3", "10.0.0.9:1", 3,
        )
        assert rows["shop"]["last_heartbeat_time_ms"] == (1795790423149 if is_whole else None)
        assert (rows["gone"]["client_id"], rows["gone"]["pending_count"]) == (None, 2)
        if is_whole:
            assert rows["orders"]["is_proxy"] is True
        alone = producers_table([found], waiting, "unknown").to_pylist()
        found_words = [(row["producer_group"], row["client_id"], row["pending_count"]) for row in alone]
        assert found_words == [("unknown", None, 0)]
