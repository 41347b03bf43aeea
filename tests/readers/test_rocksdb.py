"""RocksDB databases as real brokers left them: every key read, the store untouched, what is wrong said in a line."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.model.errors import MissingLibrary
from rmqtx.readers.rocksdb.rocksdb import DEFAULT, open_database
from rmqtx.readers.rocksdb.rocksdb_transactions import (
    LAST_OFFSET,
    LAST_OFFSET_VALUE,
    TRANSACTION_KEY,
    TRANSACTION_VALUE,
    read_rocksdb_transactions,
    rocksdb_entries,
)
from rmqtx.readers.store.store import ROCKSDB_HALF_TOPIC, Store, open_store
from tests.brokers import corpus
from tests.forge.stores import copy_of

rocksdict = pytest.importorskip("rocksdict", reason="rocksdict is not installed: pip install 'rmqtx[rocksdb]'")


def unpacked(name: str, tmp_path: Path) -> Store:
    return open_store(copy_of(name, tmp_path))


def state_of(root: Path) -> dict[str, tuple[str, int]]:
    """Digest and time of everything below a directory."""
    return {
        str(path.relative_to(root)): (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
            path.stat().st_mtime_ns,
        )
        for path in sorted(root.rglob("*"))
    }


def with_database(tmp_path: Path, rows: dict[bytes, bytes]) -> Store:
    """A store whose database has these keys in the family of transactions."""
    directory = tmp_path / "store" / "rocksdbstore"
    directory.parent.mkdir()
    (tmp_path / "store" / "config").mkdir()
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    database = rocksdict.Rdict(str(directory), options)
    family = database.create_column_family("trans", rocksdict.Options(raw_mode=True))
    for key, value in rows.items():
        family[key] = value
    del family
    database.close()
    return open_store(tmp_path / "store")


def key_of(place: int, topic: str, transaction_id: str) -> bytes:
    return TRANSACTION_KEY.pack(half_commit_log_offset=place) + f"@{topic}@{transaction_id}".encode()


@pytest.mark.parametrize("name", [name for name in corpus.corpus_names("rocksdb") if "killed" not in name])
def test_after_a_clean_stop_the_keys_are_the_open_halves(name: str, tmp_path: Path) -> None:
    found = rocksdb_entries(unpacked(name, tmp_path))
    assert found.entries is not None
    assert found.is_complete
    assert found.findings == []
    open_rows = {
        row["half_copies"][-1]["commit_log_offset"]: row
        for row in corpus.expected(name)
        if row["open"] and "discard_copies" in row and in_rocksdb(name, row)
    }
    entries = {row["half_commit_log_offset"]: row for row in found.entries.to_pylist()}
    assert set(entries) == set(open_rows)
    for place, entry in entries.items():
        wanted = open_rows[place]
        assert (entry["topic"], entry["transaction_id"]) == (wanted["topic"], wanted["transaction_id"])
        # a resumed half begins anew, and what is sent while the broker stops reaches nobody
        assert entry["checks_count"] >= (0 if len(wanted["half_copies"]) > 1 else wanted["checks_seen"])
    assert found.last_offset == max(offsets_of_halves(name))


def in_rocksdb(name: str, row: dict[str, Any]) -> bool:
    return row["half_commit_log_offset"] in offsets_of_halves(name)


def offsets_of_halves(name: str) -> set[int]:
    """Every half that the broker served from the RocksDB half topic before the end of the store's log."""
    return {
        line["commit_log_offset"]
        for line in corpus.truth(name)
        if line["event"] == "after_record" and line["topic"] == ROCKSDB_HALF_TOPIC
    }


@pytest.mark.parametrize("name", [name for name in corpus.corpus_names("rocksdb") if "killed" in name])
def test_after_a_kill_the_database_is_that_of_the_last_clean_stop(name: str, tmp_path: Path) -> None:
    found = rocksdb_entries(unpacked(name, tmp_path))
    assert found.entries is not None
    assert not found.is_complete
    before, after = restart_times(name)
    all_sent = [line for line in corpus.truth(name) if line["event"] == "sent"]
    sent = {line["commit_log_offset"] for line in all_sent if line["time_ms"] < before}
    assert found.last_offset in offsets_of_halves(name)
    assert found.last_offset >= max(sent & offsets_of_halves(name))
    later = [line for line in all_sent if line["time_ms"] > after]
    places = {line["commit_log_offset"] for line in later} & offsets_of_halves(name)
    assert places
    assert found.last_offset < min(places)
    assert "did not stop cleanly" in read_rocksdb_transactions(unpacked(name, tmp_path)).notes[0].text


def restart_times(name: str) -> tuple[int, int]:
    """When the broker was stopped cleanly, and when it ran again."""
    times = [line["time_ms"] for line in corpus.truth(name) if line["event"] in ("stopped", "started")]
    return times[1], times[2]


@pytest.mark.parametrize("name", [*corpus.corpus_names("rocksdb"), *corpus.corpus_names("rocksdb_queues")])
def test_nothing_of_the_store_changes(name: str, tmp_path: Path) -> None:
    store = unpacked(name, tmp_path)
    before = state_of(Path(store.root))
    directories = [path.parent.relative_to(store.root) for path in Path(store.root).rglob("CURRENT")]
    assert directories
    for directory in directories:
        for _ in range(2):
            with open_database(store, *directory.parts) as database:
                list(database.items(DEFAULT))
    rocksdb_entries(store)
    assert state_of(Path(store.root)) == before


def test_keys_come_in_order_and_ranges_end_before_their_end(tmp_path: Path) -> None:
    keys = [key_of(place, "orders", f"id{place}") for place in (1, 255, 256, 70_000)]
    store = with_database(tmp_path, {key: TRANSACTION_VALUE.pack(checks_count=1) for key in reversed(keys)})
    with open_database(store, "rocksdbstore") as database:
        assert [key for key, _ in database.items("trans")] == keys
        assert [key for key, _ in database.items("trans", keys[1], keys[3])] == keys[1:3]
        assert database.get("trans", keys[2]) == TRANSACTION_VALUE.pack(checks_count=1)
        assert database.get("trans", keys[2][:-1]) is None
        assert list(database.items("no such family")) == []


def test_a_key_that_the_broker_cannot_read_is_a_row_without_words(tmp_path: Path) -> None:
    rows = {
        key_of(7, "orders", "a@b"): TRANSACTION_VALUE.pack(checks_count=3, record_length_bytes=500),
        key_of(9, "orders", "c"): b"short",
        b"tiny": bytes(8),
        LAST_OFFSET: LAST_OFFSET_VALUE.pack(half_commit_log_offset=9),
    }
    found = rocksdb_entries(with_database(tmp_path, rows))
    assert found.entries is not None
    (row,) = found.entries.to_pylist()
    assert (row["half_commit_log_offset"], row["topic"], row["transaction_id"]) == (7, None, None)
    assert (row["key"], row["checks_count"], row["record_length_bytes"]) == ("7@orders@a@b", 3, 500)
    assert [finding.code for finding in found.findings] == ["database-entry"] * 2
    assert found.last_offset == 9


def test_without_the_library_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = with_database(tmp_path, {})
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    found = rocksdb_entries(store)
    assert found.entries is None
    (finding,) = found.findings
    assert finding.code == "database-unread"
    assert "pip install 'rmqtx[rocksdb]'" in finding.line()
    assert "\n" not in finding.line()
    with pytest.raises(MissingLibrary, match="pip install"):  # there is nothing else to list
        read_rocksdb_transactions(store)


@pytest.mark.parametrize("pattern", ["MANIFEST-*", "*.sst", "CURRENT"])
def test_a_damaged_database_is_one_line(pattern: str, tmp_path: Path) -> None:
    name = next(name for name in corpus.corpus_names("rocksdb") if "killed" not in name)
    store = unpacked(name, tmp_path)
    for path in Path(store.root, "rocksdbstore").glob(pattern):
        data = bytearray(path.read_bytes())
        data[: len(data) // 2] = bytes(len(data) // 2)
        path.write_bytes(data)
    found = rocksdb_entries(store)
    assert found.entries is None
    (finding,) = found.findings
    assert finding.code == "database-unread"
    assert str(store.root) in finding.line()
    assert "rmqtx-rocksdb-" not in finding.line()  # no name of a folder that is gone
    assert "\n" not in finding.line()


@pytest.mark.parametrize("change", ["kind", "garbage"])
def test_a_manifest_on_which_rocksdb_would_never_come_back(change: str, tmp_path: Path) -> None:
    """Found by mutation: opening it took for ever with RocksDB 9.8."""
    store = unpacked("rocksdb-5.5.0", tmp_path)
    (path,) = Path(store.root, "rocksdbstore").glob("MANIFEST-*")
    data = bytearray(path.read_bytes())
    if change == "kind":
        data[6] = 5
    else:
        data += b"\x11\x22\x33\x44\x18\xc8\x05" + bytes(43)
    path.write_bytes(data)
    (finding,) = rocksdb_entries(store).findings
    assert finding.code == "database-unread"
    assert f"{path.name} is damaged at byte" in finding.line()


def test_a_manifest_that_is_being_written_is_read_up_to_there(tmp_path: Path) -> None:
    store = unpacked("rocksdb-5.5.0", tmp_path)
    before = rocksdb_entries(store).entries
    (path,) = Path(store.root, "rocksdbstore").glob("MANIFEST-*")
    path.write_bytes(path.read_bytes() + b"\x11\x22\x33\x44\x40\x00\x01" + bytes(range(20)))  # 64 bytes to come
    (found,) = rocksdb_entries(open_store(store.root)).findings
    assert found.code == "database-unread"  # after a clean stop no record was being written
    (Path(store.root) / "abort").touch()
    read = rocksdb_entries(open_store(store.root))
    assert read.findings == []
    assert read.entries == before


def test_no_database_is_no_finding(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    found = rocksdb_entries(open_store(tmp_path))
    assert found.entries is None
    assert found.findings == []


def test_a_database_that_loses_files_while_it_is_opened_is_said_to_be_unreadable(tmp_path: Path) -> None:
    store = with_database(tmp_path, {key_of(1, "a", "b"): TRANSACTION_VALUE.pack()})
    shutil.rmtree(Path(store.root, "rocksdbstore"))
    Path(store.root, "rocksdbstore").mkdir()
    Path(store.root, "rocksdbstore", "CURRENT").write_text("MANIFEST-000005\n")
    (finding,) = rocksdb_entries(open_store(store.root)).findings
    assert finding.code == "database-unread"


def test_a_table_that_does_not_say_how_far_it_goes_decides_nothing(tmp_path: Path) -> None:
    """Else whatever is not in it, the dropped ones too, would be behind its last half, and open."""
    store = with_database(tmp_path, {key_of(1, "a", "b"): TRANSACTION_VALUE.pack(), LAST_OFFSET: b"short"})
    found = rocksdb_entries(store)
    assert found.entries is None
    (finding,) = found.findings
    assert finding.code == "database-unread"
    assert "lastOffsetPy has 5 bytes, not 8" in finding.line()
