"""Causes in the stores of public reports, with and without the logs of their brokers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.broker_logs.log_lines import reading_of
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.causes.diagnosing import Diagnosis
from rmqtx.verdicts.causes.evidence import NEEDED_COLUMNS
from rmqtx.verdicts.model.log_evidence import LogEvidence, LogGathering
from rmqtx.verdicts.model.store_evidence import BROKER_LOG
from tests.field import field_stores, right
from tests.forge.stores import copy_of
from tests.verdicts.causes.diagnosed import strengths

SLAVE = "slave-deleted-topics"
LOGS = Path(__file__).with_name(SLAVE) / "logs"
DELETED, REFUSED, GROUPS, LOST = (
    "slave-deletes-topics", "topic-refused-by-slave", "slave-deletes-groups", "ops-lost-in-memory",
)

BEHIND = "slave-behind-master"


def logs_of(place: Path) -> LogEvidence:
    reading, gathering = reading_of(place), LogGathering()
    for _ in gathering.watching(reading.lines()):
        pass
    return gathering.evidence(reading)


def causes(
    root: Path, version: str | None = None, logs: Path | None = None, conf: dict[str, str] | None = None
) -> dict[str, dict[str, int]]:
    reading = audit(
        [open_store(root)], lambda store: broker_settings(store, conf=conf, version=version), columns=NEEDED_COLUMNS
    )
    batches = list(reading)
    facts = dict(reading.evidence)
    if logs is not None:
        found = logs_of(logs)
        facts = {name: replace(one, logs=found, read=one.read | {BROKER_LOG}) for name, one in facts.items()}
    diagnosis = Diagnosis(facts)
    for batch in batches:
        diagnosis.add(batch)
    return strengths(diagnosis.table().to_pylist())


@pytest.fixture(scope="module")
def slave(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return field_stores(SLAVE, tmp_path_factory.mktemp("slave")) / "store"


@pytest.mark.parametrize(
    ("version", "logs", "expected"),
    [
        ("5.4.0", LOGS, {DELETED: "explains", REFUSED: "ruled_out"}),
        ("5.4.0", None, {DELETED: "could_explain", REFUSED: "ruled_out"}),
        (None, None, {DELETED: "could_explain", REFUSED: "ruled_out"}),
        (None, LOGS, {DELETED: "could_explain", REFUSED: "ruled_out"}),
        ("5.3.4", LOGS, {DELETED: "explains", REFUSED: "ruled_out"}),
        ("5.3.3", LOGS, {DELETED: "ruled_out", REFUSED: "could_explain"}),
        ("5.5.0", LOGS, {DELETED: "ruled_out", REFUSED: "ruled_out"}),
    ],
)
def test_topics_that_a_slave_deleted(
    version: str | None, logs: Path | None, expected: dict[str, str], slave: Path
) -> None:
    found = causes(slave, version, logs)
    count = right(SLAVE)["transactions"]
    assert {word: found[word] for word in expected} == {word: {how: count} for word, how in expected.items()}


def test_a_kill_of_a_slave_loses_no_op_messages(slave: Path) -> None:
    """Its log or its configuration shows the role; without them the broker may have been a master."""
    assert right(SLAVE)["not_cause"] == LOST
    assert LOST in causes(slave, "5.4.0")
    assert LOST not in causes(slave, "5.4.0", LOGS)
    assert LOST not in causes(slave, "5.4.0", conf={"brokerRole": "SLAVE"})
    assert LOST in causes(slave, "5.4.0", conf={"brokerRole": "SLAVE", "enableControllerMode": "true"})


@pytest.mark.parametrize(("logs", "conf"), [(LOGS, None), (None, {"brokerRole": "SLAVE"})])
def test_what_a_slave_has_undecided_may_be_decided_on_its_master(
    logs: Path | None, conf: dict[str, str] | None, slave: Path
) -> None:
    """All 60 open transactions have a cause: the 20 of the deleted topics, and the rest."""
    assert BEHIND not in causes(slave, "5.4.0")
    assert causes(slave, "5.4.0", logs, conf)[BEHIND] == {"could_explain": 60}
    assert BEHIND not in causes(slave, "5.4.0", conf={"brokerRole": "SLAVE", "enableControllerMode": "true"})


def test_a_slave_that_stopped_in_order_is_not_behind(tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path / "store")
    assert BEHIND not in causes(root, "5.3.3", conf={"brokerRole": "SLAVE"})


@pytest.mark.parametrize(
    "line", ["Begin to change to master brokerName=broker-a", "The broker[a, 1.2.3.4] boot success. "]
)
def test_a_slave_that_became_a_master_takes_decisions(line: str, slave: Path, tmp_path: Path) -> None:
    text = (LOGS / "broker.log").read_text("utf-8")
    (tmp_path / "broker.log").write_text(f"{text}2026-11-27 22:09:59 INFO main - {line}\n", "utf-8")
    assert LOST in causes(slave, "5.4.0", tmp_path)


def test_the_line_of_an_operator_proves_nothing(slave: Path, tmp_path: Path) -> None:
    """The same line from the thread of a request: an operator deleted the topic with mqadmin."""
    text = (LOGS / "broker.log").read_text("utf-8").replace("BrokerControllerScheduledThread1", "AdminBrokerThread_3")
    (tmp_path / "broker.log").write_text(text, "utf-8")
    assert set(causes(slave, "5.4.0", tmp_path)[DELETED]) == {"could_explain"}


def test_a_consumer_group_that_a_slave_deleted(tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path / "store")
    assert GROUPS not in causes(root, "5.4.0")
    cursors = (root / "config/consumerOffset.json").read_text("utf-8")
    file = root / "config/subscriptionGroup.json"
    groups = [line for line in cursors.splitlines() if "@" in line and "CID_RMQ_SYS_TRANS" not in line]
    name = groups[0].partition("@")[2].partition('"')[0]
    file.write_text(file.read_text("utf-8").replace(f'"{name}":', f'"{name}-of-another":'), "utf-8")
    assert set(causes(root, "5.4.0")[GROUPS]) == {"could_explain"}
    assert set(causes(root, "5.5.0")[GROUPS]) == {"ruled_out"}


def test_the_log_names_the_deleted_topics() -> None:
    found: Any = logs_of(LOGS)
    topics = found.topics["slave-deleted-topic"]
    assert {f"Topic{number:02}" for number in range(20)} <= topics
    assert right(SLAVE)["first_kept_topic"] not in topics
    assert found.is_slave
