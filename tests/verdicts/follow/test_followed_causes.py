"""Causes of an audit that follows, where a fact of the store changes and no record is new."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from rmqtx.readers.store.broker_settings import BrokerSettings, broker_settings
from rmqtx.readers.store.store import OP_TOPIC, Store
from rmqtx.verdicts.model.store_evidence import StoreEvidence
from tests.forge.stores import settings_of, unpacked
from tests.spark.growing import Growing
from tests.verdicts.causes.test_traces import torn
from tests.verdicts.following import Followed

Change = Callable[[Path, Path], None]


def away(pattern: str) -> Change:
    """Move files out of the store, or back into it."""

    def change(root: Path, beside: Path) -> None:
        found = sorted(root.glob(pattern))
        for path in found or sorted(beside.iterdir()):
            path.rename(beside / path.name if found else root / pattern.rpartition("/")[0] / path.name)

    return change


def without(file: str, table: str, *names: str) -> Change:
    """Take entries out of a table of a configuration file, or put the file back."""

    def change(root: Path, beside: Path) -> None:
        path, kept = root / "config" / file, beside / file
        if kept.exists():
            kept.rename(path)
            return
        config = json.loads(path.read_text())
        path.rename(kept)
        config[table] = {name: value for name, value in config[table].items() if name not in names}
        path.write_text(json.dumps(config))

    return change


FACTS = {
    "topics": ("common-5.3.3", without("topics.json", "topicConfigTable", "orders")),
    "groups": ("common-5.3.3", without("subscriptionGroup.json", "subscriptionGroupTable", "warehouse")),
    "light queues": ("lmqhalf-5.5.0", away("consumequeue/%LMQ*")),
    "last op message": ("killed-5.3.3", away(f"consumequeue/{OP_TOPIC}")),
}


def of_slave(store: Store) -> BrokerSettings:
    """Settings of a broker that can lack topics and groups of its master."""
    return broker_settings(store, version="5.4.0")


@pytest.mark.parametrize("fact", FACTS)
def test_a_fact_that_changes_is_in_the_causes(fact: str, tmp_path: Path) -> None:
    name, change = FACTS[fact]
    growing = Growing(unpacked(name), tmp_path / "copy")
    growing.write_to(growing.end)
    (tmp_path / "beside").mkdir()
    settings = of_slave if name.startswith("common") else settings_of(name)
    followed = Followed([growing.root], tmp_path / "checkpoint", settings, used_at_ms=4_000_000_000_000)
    first = followed.assert_current()["causes"].to_pylist()
    change(growing.root, tmp_path / "beside")
    assert followed.assert_current()["causes"].to_pylist() != first
    change(growing.root, tmp_path / "beside")
    assert followed.assert_current()["causes"].to_pylist() == first


def test_what_cannot_be_read_of_a_trace_is_a_finding_of_each_step(tmp_path: Path) -> None:
    """Also of those that judge no transaction again; until the file of the log is gone."""
    store, place = torn(tmp_path / "torn")
    followed = Followed([Path(store.root)], tmp_path / "checkpoint", broker_settings)
    for _ in range(3):
        followed.assert_current()
        found = [(one.code, one.commit_log_offset) for one in followed.last.findings if one.code == "trace-unreadable"]
        assert found == [("trace-unreadable", place)]
        followed.restart()


def test_every_fact_for_causes_is_followed() -> None:
    """A rule that reads a new fact of a store needs it in `evidence_words`, and what it changes in `_mark_causes`."""
    in_words = {
        "last_op_offset", "first_op_offset", "was_killed", "was_stopped", "are_cursors_damaged", "has_proxy", "read",
        "topics", "topics_without_group", "light_halves", "traces",
    }
    # settings, check_stops, half_numbers
    in_other_words = {"version_low", "version_high", "conf", "op_interval_ms", "stop", "shifted_halves"}
    not_of_files = {"logs", "proxy_keeps_ms"}  # given by options that rmqtx follow does not have
    assert {one.name for one in fields(StoreEvidence)} == in_words | in_other_words | not_of_files


def test_a_step_without_news_judges_only_what_time_can_change(tmp_path: Path) -> None:
    followed = Followed([unpacked("lmqhalf-5.5.0")], tmp_path / "checkpoint", settings_of("lmqhalf-5.5.0"))
    assert followed.step().judged_count == 20
    assert followed.step().judged_count < 20
