"""Planned stops of real brokers under load: after a drain no decided transaction is asked again or delivered twice.

The twin without a drain loses op messages now and then: what it lost is counted (docs/drains.md), not required.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.brokers.forcing.conftest import VERSIONS
from tests.brokers.forcing.stage import Stage
from tests.brokers.forcing.stops import CONF, Stops
from tests.brokers.forcing.test_holds import conf_of


@pytest.fixture(scope="module", params=VERSIONS)
def stops(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stops]:
    """A broker of each version."""
    version = str(request.param)
    with Stage(version, tmp_path_factory.mktemp(f"drain-{version}"), CONF) as stage:
        yield Stops(stage)


def test_a_stop_after_a_drain_loses_nothing(stops: Stops) -> None:
    before = conf_of(stops.stage)
    found = stops.play(drained=True)
    assert found.drain is not None
    assert "safe to stop now" in found.drain.stderr
    assert found.decided_count > 20, str(found)
    assert (found.open_count, found.asked, found.twice, found.wrong, found.missing) == (0, (), (), (), ()), str(found)
    after = conf_of(stops.stage)
    assert {name: (value, after.get(name)) for name, value in before.items() if after.get(name) != value} == {}


def test_what_is_open_keeps_it_from_being_safe(stops: Stops) -> None:
    stage = stops.stage
    orphans = stage.orphans("dead", 3, group="f-dead")
    late = stops.tool.run("drain", *stops.options, "--for", "4s", "--yes", "--format", "jsonl", live=False)
    assert late.status == 1, str(late)
    assert "3 half messages without an op message" in late.stderr, str(late)
    assert "safe to stop now" not in late.stderr
    shown = stops.tool.run("holds", *stops.options, "--format", "jsonl", live=False)
    assert {row["hold_state"] for row in shown.rows} == {"held"}, str(shown)
    decided = stops.tool.act("rollback", *(one.id for one in orphans), "--reason", "the test")
    assert decided.status == 0, str(decided)
    done = stops.tool.run("drain", *stops.options, "--for", "60s", "--yes", "--format", "jsonl", live=False)
    assert done.status == 0, str(done)
    released = stops.tool.run("release", *stops.options, "--yes", "--format", "jsonl", live=False)
    assert released.status == 0, str(released)
    sent = stops.shop.begin_all("after", 1, first="COMMIT")
    stage.until("accepted again", lambda: stage.delivered(sent[0]) == 1, 60)


def test_the_twin_without_a_drain_is_counted(stops: Stops) -> None:
    found = stops.play(drained=False)
    print(found)
    assert found.decided_count > 20, str(found)
