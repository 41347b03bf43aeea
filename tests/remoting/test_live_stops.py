"""Whether a live broker's check is alive: where it is stopped, where it stands still, and where it goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtx.readers.model import clock
from rmqtx.readers.store.store import HALF_TOPIC
from rmqtx.remoting.connections.client import Client
from rmqtx.remoting.live import lookups
from rmqtx.remoting.protocol.codes import RequestCode
from rmqtx.verdicts.check.check_stops import check_stops
from tests.remoting.test_live_questions import Served


@pytest.mark.parametrize("name", ["poison-4.3.0", "poison-4.5.0"])
def test_a_live_broker_stops_where_its_files_say(name: str, tmp_path: Path, client: Client) -> None:
    one = Served(name, tmp_path, client)
    (wanted,) = check_stops(one.store, one.settings)
    with one.server:
        reading = lookups.pending([one.broker])
        (found,) = reading.check_stops
        assert found.store == one.broker.root
        assert (found.place, found.reach_end, found.why) == (wanted.place, wanted.reach_end, wanted.why)
        assert (found.transaction_id, found.since_ms) == (wanted.transaction_id, wanted.since_ms)
        shown = lookups.show([one.broker], str(found.transaction_id))
        assert shown.check_stops == [found]
        assert [row["advice"] for row in shown.table().to_pylist()] == ["decide"]


@pytest.mark.parametrize("name", ["poison-4.3.0", "poison-4.5.0"])
def test_a_stop_before_the_first_round(name: str, tmp_path: Path, client: Client) -> None:
    """Until then a broker 4.x refuses pulls from the half queue: `pending` and `audit` ended with this refusal."""
    one = Served(name, tmp_path, client)
    (wanted,) = check_stops(one.store, one.settings)
    one.answers.lacks_topics.add(HALF_TOPIC)
    with one.server:
        for reading in (lookups.pending([one.broker]), lookups.audit([one.broker])):
            assert [found.place for found in reading.check_stops] == [wanted.place]


@pytest.mark.parametrize(("up_ms", "stands"), [(10_000, False), (3_600_000, True)])
def test_a_cursor_that_stands_still_while_the_broker_runs(
    up_ms: int, stands: bool, tmp_path: Path, client: Client
) -> None:
    booted_ms = clock.now_ms() - up_ms
    one = Served("common-4.9.7", tmp_path, client, booted_ms=booted_ms)
    with one.server:
        reading = lookups.pending([one.broker])
        rows = reading.table().to_pylist()
        assert bool(reading.check_stops) == stands
        for stop in reading.check_stops:
            assert "does not move on" in stop.why
            assert stop.queue_offset == stop.reach_end
        waiting = {row["advice"] for row in rows if row["state"] == "PENDING"}
        assert waiting == ({"decide"} if stands else {"wait"})


def test_asking_for_some_by_their_ids_does_not_read_the_half_queue(tmp_path: Path, client: Client) -> None:
    one = Served("poison-4.5.0", tmp_path, client)
    with one.server:
        lookups.lookup([one.broker], [])
        assert RequestCode.PULL_MESSAGE not in one.answers.counts
