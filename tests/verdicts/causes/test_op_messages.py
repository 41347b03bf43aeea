"""Causes in op messages: lost at a stop, waited twice, unreadable, read too late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmqtx.readers.cursors import check_cursors
from rmqtx.readers.model.releases import parse_version
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import OP_TOPIC, Store, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.causes.diagnosing import Diagnosis
from rmqtx.verdicts.causes.evidence import NEEDED_COLUMNS
from rmqtx.verdicts.model.log_evidence import LogEvidence
from rmqtx.verdicts.model.store_evidence import OP_WRITE_MS, StoreEvidence
from tests.brokers import corpus
from tests.forge.damage import log_files, zero_bytes
from tests.forge.stores import copy_of, opened
from tests.verdicts.causes.diagnosed import diagnosed, diagnosis_of, strengths

STOPPED = "lmqhalf-5.5.0"
LATE = "oplate-5.3.3"


def found_in(store: Store, version: str, conf: dict[str, str] | None = None) -> dict[str, dict[str, int]]:
    settings = broker_settings(store, version=version, conf=conf)
    return strengths(diagnosis_of(store, settings).table().to_pylist())


def rows_of(plan: str, name: str) -> list[dict[str, Any]]:
    return [row for row in corpus.expected(name) if row["plan"] == plan]


def test_an_orderly_stop_loses_what_a_kill_loses(tmp_path: Path) -> None:
    """The file `abort` is the only difference."""
    root = copy_of(STOPPED, tmp_path / "store")
    lost = [row for row in rows_of("ops_lost_at_stop", STOPPED) if row["state"] == "COMMITTED"]
    assert lost
    assert all("commit_without_op" in row["flags_at_least"] for row in lost)
    found = found_in(open_store(root), "5.5.0")
    assert found["ops-lost-at-stop"] == {"explains": len(lost)}
    assert "ops-lost-in-memory" not in found
    (root / "abort").write_bytes(b"4711")
    found = found_in(open_store(root), "5.5.0")
    assert "ops-lost-at-stop" not in found
    assert found["ops-lost-in-memory"]["explains"] == len(lost)


def test_before_later_op_messages_nothing_decides_between_kill_and_stop(tmp_path: Path) -> None:
    root = copy_of(STOPPED, tmp_path / "store")
    store = open_store(root)
    settings = broker_settings(store, version="5.5.0")
    evidence = StoreEvidence((5, 5, 0), (5, 5, 0), last_op_offset=1 << 40, was_stopped=True)
    found = Diagnosis({store.root: evidence})
    for batch in audit([store], lambda _: settings, columns=NEEDED_COLUMNS):
        found.add(batch)
    rows = {row["cause"]: row for row in found.table().to_pylist()}
    for word in ("ops-lost-at-stop", "ops-lost-in-memory", "op-write-failed"):
        assert rows[word]["strength"] == "could_explain"
        assert rows[word]["would_decide"]


def test_two_waits_are_proven_where_the_interval_is_known() -> None:
    store = opened(LATE)
    conf = corpus.recipe(LATE)["broker_conf"]
    again = [row for row in corpus.expected(LATE) if len(row["final_records"]) > 1]
    assert again
    assert found_in(store, "5.3.3", conf)["op-waits-twice"] == {"explains": len(again)}
    assert found_in(store, "5.3.3")["op-waits-twice"] == {"could_explain": len(again)}
    assert found_in(store, "5.5.0", conf)["op-waits-twice"] == {"ruled_out": len(again)}
    assert "op-waits-twice" not in found_in(store, "5.3.3", conf | {"transactionOpBatchInterval": "10000"})


@pytest.mark.parametrize(("version", "waits"), [("5.4.0", 2), ("5.5.0", 1), (None, 2)])
def test_how_long_an_op_message_is_held(version: str | None, waits: int) -> None:
    known = None if version is None else parse_version(version)
    assert StoreEvidence(known, known, op_interval_ms=500).op_hold_ms == waits * 500 + OP_WRITE_MS


@pytest.mark.parametrize(("name", "unreadable", "is_stopped"), [
    ("killed-4.9.7", 2, True), ("killed-4.9.7", 1, False), ("killed-4.4.0", 2, True), ("killed-4.4.0", 1, True),
])
def test_unread_op_messages_that_cannot_be_read(
    name: str, unreadable: int, is_stopped: bool, tmp_path: Path
) -> None:
    """From 4.6.0 on one readable op message among them is enough for the check to continue."""
    version = name.partition("-")[2]
    root = copy_of(name, tmp_path / "store")
    assert "op-unreadable-exception" not in found_in(open_store(root), version)
    cursor = check_cursors(open_store(root)).op
    assert cursor is not None
    with open_queue(open_store(root), OP_TOPIC, 0) as queue:
        assert queue.max_offset == cursor[0] + 2
        _, offsets, lengths, _ = queue.read(cursor[0], cursor[0] + unreadable)
    for offset, length in zip(offsets.tolist(), lengths.tolist(), strict=True):
        file = max(one for one in log_files(root) if int(one.name) <= offset)
        zero_bytes(file, offset - int(file.name), length)
    found = found_in(open_store(root), version)
    assert ("op-unreadable-exception" in found) == is_stopped
    assert "explains" in found["op-unreadable-exception"] or not is_stopped
    assert "half-unreadable-exception" not in found

def test_a_discard_after_the_op_message() -> None:
    name = "discards-4.9.7"
    late = rows_of("discarded_before_ops_were_read", name)
    assert all("discarded_though_decided" in row["flags_at_least"] for row in late)
    found = strengths(diagnosed(name, "4.9.7")[1])
    assert found["discarded-before-op-read"] == {"could_explain": len(late)}


def test_the_log_decides_whether_a_running_broker_could_not_write() -> None:
    """The transactions of an orderly stop, as if later op messages were in the log."""
    store = opened(STOPPED)
    settings = broker_settings(store, version="5.5.0")
    rows = audit([store], lambda _: settings, columns=NEEDED_COLUMNS).table()
    final_ms = max(one["store_time_ms"] for row in rows.to_pylist() for one in row["final_records"])
    for seconds, strength in ((1, "explains"), (60, "could_explain")):
        moments = {"op-batch-failed": np.array([final_ms // 1000 + seconds], np.int64)}
        logs = LogEvidence(np.array([[0, final_ms + 100_000]], np.int64), moments=moments)
        found = Diagnosis({store.root: StoreEvidence((5, 5, 0), (5, 5, 0), last_op_offset=1 << 40, logs=logs)})
        for batch in rows.to_batches():
            found.add(batch)
        named = strengths(found.table().to_pylist())
        assert set(named["op-write-failed"]) == {strength}
        assert ("ops-lost-at-stop" in named) == (strength == "could_explain")
