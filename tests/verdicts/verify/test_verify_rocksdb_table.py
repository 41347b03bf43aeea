"""The table of transactions in RocksDB against the log: nothing in what brokers left, and each change is told."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.rocksdb.rocksdb_transactions import (
    LAST_OFFSET,
    LAST_OFFSET_VALUE,
    TRANSACTION_KEY,
    TRANSACTION_VALUE,
)
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.verify.verify import FULL, QUICK
from tests.brokers import corpus
from tests.forge.rocksdb import changed_database
from tests.forge.stores import copy_of, settings_of, unpacked
from tests.verdicts.verifying import every_finding, the_one, worse_than_notes

CLEAN = "rocksdb-5.5.0"
Change = Callable[[Any], None]


@pytest.mark.parametrize("name", corpus.corpus_names("rocksdb"))
@pytest.mark.parametrize("level", [QUICK, FULL])
def test_what_a_broker_left_is_sound(level: str, name: str) -> None:
    assert worse_than_notes(every_finding(unpacked(name), level)) == []


def put(place: int, words: str, length: int) -> Change:
    key = TRANSACTION_KEY.pack(half_commit_log_offset=place) + f"@{words}".encode()
    value = TRANSACTION_VALUE.pack(checks_count=1, record_length_bytes=length)

    def change(family: Any) -> None:
        family[key] = value

    return change


def last(place: int) -> Change:
    def change(family: Any) -> None:
        family[LAST_OFFSET] = LAST_OFFSET_VALUE.pack(half_commit_log_offset=place)

    return change


FIRST = (0, "orders@FD00000000000000000000000000000238584E0E2F2A6AEA2D7B0011")


@pytest.mark.parametrize(
    ("change", "place", "actual"),
    [
        (put(5, "orders@ID", 99), 5, "no record begins there"),
        (put(0, "orders@ID", 524), 0, "a record of 524 bytes in RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC for orders, trans"),
        (put(*FIRST, 525), 0, "a record of 524 bytes"),
        (put(1 << 40, "orders@ID", 99), 1 << 40, "no record begins there"),
        (last(1 << 40), 1 << 40, "lastOffsetPy 1099511627776"),
        (last(7252), 113748, "lastOffsetPy 7252"),
    ],
)
def test_a_key_that_does_not_fit_the_log_is_told(change: Change, place: int, actual: str, tmp_path: Path) -> None:
    root = copy_of(CLEAN, tmp_path)
    with changed_database(root / "rocksdbstore", "trans") as family:
        change(family)
    # A last half behind the log's end also tells that the log has lost records.
    row = the_one([one for one in worse_than_notes(every_finding(root, FULL)) if one["code"] != "log-missing"])
    assert (row["code"], row["commit_log_offset"]) == ("database-entry", place)
    assert row["actual"].startswith(actual)
    assert {one["code"] for one in worse_than_notes(every_finding(root, QUICK))} <= {"log-missing"}


def test_a_key_of_a_half_that_is_there_is_no_finding(tmp_path: Path) -> None:
    root = copy_of(CLEAN, tmp_path)
    with changed_database(root / "rocksdbstore", "trans") as family:
        put(*FIRST, 524)(family)
    assert worse_than_notes(every_finding(root, FULL)) == []


def without_directory(directory: Path) -> None:
    shutil.rmtree(directory)


def without_current(directory: Path) -> None:
    (directory / "CURRENT").unlink()


def empty_current(directory: Path) -> None:
    (directory / "CURRENT").write_bytes(b"")


def current_in_a_directory(directory: Path) -> None:
    without_current(directory)
    (directory / "CURRENT").mkdir()


@pytest.mark.parametrize("damage", [without_directory, without_current, empty_current, current_in_a_directory])
def test_a_database_that_is_not_there_is_named_by_all(damage: Callable[[Path], None], tmp_path: Path) -> None:
    root = copy_of(CLEAN, tmp_path)
    damage(root / "rocksdbstore")
    store = open_store(root)
    reading = audit([store], settings_of(CLEAN))
    rows = {row["transaction_id"]: row for row in reading.table().to_pylist()}
    told = [finding for finding in reading.findings if finding.code == "database-unread"]
    assert [finding.file for finding in told] == [store.place("rocksdbstore")]
    for wanted in corpus.expected(CLEAN):
        row = rows[wanted["transaction_id"]]
        assert row["state"] in (wanted["state"], "UNDECIDABLE"), json.dumps(row)
        assert row["checks_count"] is None
    assert {row["state"] for row in rows.values()} == {"COMMITTED", "ROLLED_BACK", "PENDING", "UNDECIDABLE"}
    for level in (QUICK, FULL):
        row = the_one(worse_than_notes(every_finding(root, level)))
        assert (row["code"], row["file"]) == ("database-unread", store.place("rocksdbstore"))


def test_how_often_was_asked_is_known_by_the_keys_alone() -> None:
    rows = audit([open_store(unpacked(CLEAN))], settings_of(CLEAN)).table().to_pylist()
    for row in rows:
        counted = [int(entry["value"]) for entry in row["state_entries"]]
        assert row["checks_count"] == (max(counted) if counted else None)
    assert {row["state"] for row in rows if row["checks_count"] is None} >= {"COMMITTED", "ROLLED_BACK", "DISCARDED"}


def test_settings_of_the_last_moment_do_not_say_what_was_dropped_before(tmp_path: Path) -> None:
    """A transactionTimeOut that was set high at the end: by it nothing could have been dropped; much was."""
    root = copy_of(CLEAN, tmp_path)
    without_directory(root / "rocksdbstore")
    store = open_store(root)
    conf = {"transactionTimeOut": "600000", "transactionCheckMax": "5", "transactionCheckInterval": "1000"}
    states = {
        row["transaction_id"]: row["state"]
        for row in audit([store], lambda one: broker_settings(one, conf=conf, version="5.5.0")).table().to_pylist()
    }
    dropped = [row["transaction_id"] for row in corpus.expected(CLEAN) if row["state"] == "DISCARDED"]
    assert dropped
    assert {states[one] for one in dropped} == {"UNDECIDABLE"}
