"""Queues in RocksDB against the log: nothing in what brokers left, and each change is told at its place."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.rocksdb.rocksdb_queues import SLOT_VALUE, slot_key
from rmqtx.readers.store.store import HALF_TOPIC
from rmqtx.verdicts.verify.verify import FULL, QUICK
from tests.brokers import corpus
from tests.forge.stores import copy_of, unpacked
from tests.verdicts.verifying import every_finding, the_one, worse_than_notes

rocksdict = pytest.importorskip("rocksdict", reason="rocksdict is not installed: pip install 'rmqtx[rocksdb]'")

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


@contextlib.contextmanager
def changing(root: Path) -> Any:
    """The database of the queues, opened to be changed as no broker would."""
    directory = str(root / "consumequeue")
    families = rocksdict.Rdict.list_cf(directory, rocksdict.Options(raw_mode=True))
    options = {name: rocksdict.Options(raw_mode=True) for name in families if name != "default"}
    database = rocksdict.Rdict(directory, rocksdict.Options(raw_mode=True), options)
    yield database
    database.close()
    (root / "consumequeue" / "rocksdict-config.json").unlink()


def other(**fields: int) -> Change:
    return lambda value: SLOT_VALUE.pack(**{**SLOT_VALUE.unpack(value), **fields})


@pytest.mark.parametrize(
    ("change", "codes"),
    [
        (lambda _value: None, ["slot-missing"]),
        (other(commit_log_offset=7), ["slot-mismatch"]),
        (other(record_length_bytes=7), ["slot-mismatch"]),
        (other(tags_code=7), ["slot-mismatch"]),
        (lambda value: value[:-1], ["database-entry", "slot-missing"]),
    ],
    ids=["gone", "offset", "length", "tags", "short"],
)
def test_a_slot(change: Change, codes: list[str], tmp_path: Path) -> None:
    root = copy_of(CLEAN, tmp_path)
    with changing(root) as database:
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
    with changing(root) as database:
        database[slot_key("orders", 3, 70)] = SLOT_VALUE.pack(commit_log_offset=offset, record_length_bytes=9)
    row = the_one(worse_than_notes(every_finding(root)))
    assert row["code"] == code
    assert "slot 70 of queue 3 of orders" in row["expected"] + row["actual"]


def test_a_database_that_cannot_be_read_is_said_to_be(tmp_path: Path) -> None:
    root = copy_of(CLEAN, tmp_path)
    for path in (root / "consumequeue").glob("MANIFEST-*"):
        path.write_bytes(b"nothing of that kind")
    assert "database-unread" in {row["code"] for row in worse_than_notes(every_finding(root))}
