"""Queues in RocksDB against the log: nothing in what brokers left, and each change is told at its place."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.compute as pc
import pytest

from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.rocksdb.rocksdb_queues import SLOT_VALUE, slot_key
from rmqtx.readers.store.store import CHECK_GROUP, HALF_TOPIC, OP_TOPIC, open_store
from rmqtx.repairs.rebuild.rebuild import rebuild
from rmqtx.repairs.records.store_sizes import store_sizes
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import pending
from rmqtx.verdicts.verify.verify import FULL, QUICK
from rmqtx_cli.pages.stores_table import is_doubt, store_row
from tests.brokers import corpus
from tests.forge.rocksdb import changed_database
from tests.forge.stores import copy_of, settings_of, unpacked
from tests.verdicts.verifying import every_finding, the_one, worse_than_notes

NAMES = [name for name in corpus.corpus_names("rocksdb_queues") if "configs" not in name]
CLEAN = "rocksdb-queues-5.5.0"
KEY = slot_key(HALF_TOPIC, 0, 5)
Change = Callable[[bytes], bytes | None]


@pytest.mark.parametrize("name", NAMES)
def test_what_a_broker_left_is_sound(name: str) -> None:
    rows = every_finding(unpacked(name), FULL)
    assert worse_than_notes(rows) == []
    codes = {row["code"] for row in rows}
    assert "queues-unchecked" not in codes
    assert ("slot-pending" in codes) == ("killed" in name)
    if "killed" in name:
        pending = the_one([row for row in rows if row["code"] == "slot-pending"])
        count = len([line for line in corpus.truth(name) if line["event"] == "after_record"])
        assert f"{count} records" in pending["expected"]  # nothing had been flushed


def test_a_quick_look_does_not_compare_them() -> None:
    codes = [row["code"] for row in every_finding(unpacked(CLEAN), QUICK)]
    assert codes.count("queues-unchecked") == 1


def other(**fields: int) -> Change:
    return lambda value: SLOT_VALUE.pack(**{**SLOT_VALUE.unpack(value), **fields})


@pytest.mark.parametrize(
    ("change", "codes"),
    [
        (lambda _value: None, ["slot-missing"]),
        (other(commit_log_offset=7), ["slot-mismatch"]),
        (other(record_length_bytes=7), ["slot-mismatch"]),
        (other(tags_code=7), ["slot-tags-mismatch"]),
        (lambda value: value[:-1], ["database-entry", "slot-missing"]),
    ],
    ids=["gone", "offset", "length", "tags", "short"],
)
def test_a_slot(change: Change, codes: list[str], tmp_path: Path) -> None:
    root = copy_of(CLEAN, tmp_path)
    with changed_database(root / "consumequeue") as database:
        value = change(database[KEY])
        if value is None:
            del database[KEY]
        else:
            database[KEY] = value
    rows = worse_than_notes(every_finding(root))
    assert sorted(row["code"] for row in rows) == codes
    told = next(row for row in rows if row["code"].startswith("slot"))
    assert f"slot 5 of queue 0 of {HALF_TOPIC}" in told["expected"] + told["actual"]
    assert told["file"] == str(root / "consumequeue")


@pytest.mark.parametrize(("offset", "code"), [(1 << 40, "slot-dangling"), (0, "slot-mismatch")])
def test_a_slot_of_no_record(offset: int, code: str, tmp_path: Path) -> None:
    root = copy_of(CLEAN, tmp_path)
    with changed_database(root / "consumequeue") as database:
        database[slot_key("orders", 3, 70)] = SLOT_VALUE.pack(commit_log_offset=offset, record_length_bytes=9)
    row = the_one(worse_than_notes(every_finding(root)))
    assert row["code"] == code
    assert "slot 70 of queue 3 of orders" in row["expected"] + row["actual"]


def test_a_database_that_cannot_be_read_is_said_to_be(tmp_path: Path) -> None:
    root = copy_of(CLEAN, tmp_path)
    for path in (root / "consumequeue").glob("MANIFEST-*"):
        path.write_bytes(b"nothing of that kind")
    assert "database-unread" in {row["code"] for row in worse_than_notes(every_finding(root))}


@pytest.mark.parametrize("name", [CLEAN, "rocksdb-queues-killed-5.5.0", "rocksdb-single-5.5.0"])
@pytest.mark.parametrize("is_renamed", [True, False])
def test_a_missing_database_of_queues_is_an_error_of_every_command(
    tmp_path: Path, name: str, is_renamed: bool
) -> None:
    root = copy_of(name, tmp_path)
    (root / "consumequeue").rename(root / "consumequeue.old")
    if not is_renamed:
        shutil.rmtree(root / "consumequeue.old")
    rows = every_finding(root, FULL)
    assert the_one([row for row in rows if row["severity"] != "note"])["code"] == "queue-database-missing"
    assert {row["code"] for row in rows if row["code"].startswith("start-")} == {"start-unforeseen"}
    store = open_store(root)
    for reading in (pending([store], settings_of(name)), audit([store], settings_of(name))):
        table = reading.table()
        assert "queue-database-missing" in {one.code for one in reading.findings}
        assert set(table.filter(pc.equal(table["state"], "PENDING"))["next_event"].to_pylist()) == {"unknown"}
    _, findings = store_row(store, settings_of(name)(store))
    assert "queue-database-missing" in {one.code for one in findings if is_doubt(one)}
    with pytest.raises(BadRequest, match="its broker does not read queue files"):
        rebuild(["queues"], store, tmp_path / "new", store_sizes(store, None))


@pytest.mark.parametrize(
    ("name", "directory"), [(CLEAN, "consumequeue"), ("rocksdb-separate-5.5.0", "consumequeue_rocksdb"),
                            ("rocksdb-combined-5.4.0", "consumequeue")],
)
@pytest.mark.parametrize("lost", ["*.sst", "CURRENT"])
def test_a_broker_does_not_start_on_an_unreadable_database(
    tmp_path: Path, name: str, directory: str, lost: str
) -> None:
    """5.4.0 and 5.5.0 exited with status 253."""
    root = copy_of(name, tmp_path)
    for file in (root / directory).glob(lost):
        file.unlink()
    row = the_one([row for row in every_finding(root, FULL) if row["code"] == "start-refused"])
    assert row["file"] == str(root / directory)
    reading = pending([open_store(root)], settings_of(name))
    assert set(reading.table()["discard_at_ms"].to_pylist()) == {None}
    assert "start-refused" in {one.code for one in reading.findings}


def test_queues_are_not_rebuilt_in_files_for_a_broker_that_is_set_to_rocksdb(tmp_path: Path) -> None:
    store = open_store(unpacked("common-5.5.0"))
    with pytest.raises(BadRequest, match="its broker does not read queue files"):
        rebuild(["queues"], store, tmp_path / "new", store_sizes(store, None), conf={"storeType": "defaultRocksDB"})
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("has_files", [True, False])
@pytest.mark.parametrize("topic", [HALF_TOPIC, OP_TOPIC])
def test_a_check_cursor_beyond_the_end_is_an_error_of_every_command(
    topic: str, has_files: bool, tmp_path: Path
) -> None:
    """Only queues in files were compared with the cursors."""
    root = copy_of("rocksdb-separate-5.5.0", tmp_path)
    if not has_files:
        for one in (HALF_TOPIC, OP_TOPIC):
            shutil.rmtree(root / "consumequeue" / one)
    file = root / "config" / "consumerOffset.json"
    text = file.read_text(encoding="utf-8")
    key = f'"{topic}@{CHECK_GROUP}":{{'
    assert key in text
    file.write_text(re.sub(re.escape(key) + r"\s*0:\d+", f"{key}0:9000", text), encoding="utf-8")
    store = open_store(root)
    settings = settings_of("rocksdb-separate-5.5.0")
    read = audit([store], settings)
    read.table()
    listed = pending([store], settings)
    listed.table()
    for found in (
        {one.code for one in read.findings}, {one.code for one in listed.findings},
        {row["code"] for row in every_finding(root)}, {one.code for one in store_row(store, settings(store))[1]},
    ):
        assert "cursor-beyond-end" in found
