"""Logs of the other designs whose last records are lost: what stands beside them knows better than the log's end."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.log.record_layout import COMMIT, RECORD, ROLLBACK
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC, open_store
from rmqtx.verdicts.audit import local_audit
from tests.brokers import corpus
from tests.forge import damage
from tests.forge.stores import copy_of, settings_of
from tests.verdicts.transactions.test_forged_designs import Old

needs_rocksdict = pytest.mark.skipif(
    importlib.util.find_spec("rocksdict") is None, reason="rocksdict is not here (pip install rocksdict)"
)
STORES = [
    "prepared-3.2.6", "prepared-4.2.0", "prepared-killed-4.2.0", "statetable-3.1.4", "statetable-killed-3.1.4",
    "statetable-slave-3.1.4", "upgraded-3.1.4-3.2.6",
    *(pytest.param(name, marks=needs_rocksdict) for name in ("rocksdb-5.5.0", "rocksdb-killed-5.5.0",
                                                             "rocksdb-queues-5.5.0")),
]


def audited(root: Path, name: str) -> tuple[dict[str, dict[str, Any]], list[str]]:
    reading = local_audit.audit([open_store(root)], settings_of(name))
    rows = {row["transaction_id"]: row for row in reading.table().to_pylist()}
    return rows, [finding.code for finding in reading.findings]


def lose_the_end(root: Path, *, is_cut: bool) -> None:
    """The last two fifths of the records become zeros, as pages that were never written; or their files end there."""
    places = [(file, position) for file in damage.log_files(root) for position, _ in damage.records_in(file)]
    file, position = places[len(places) * 3 // 5]
    for later in damage.log_files(root):
        if later.name > file.name:
            damage.drop(later)
    if is_cut:
        damage.truncate(file, position)
    else:
        damage.zero_bytes(file, position, file.stat().st_size - position)


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("name", STORES)
def test_no_wrong_state_where_the_last_records_are_lost(name: str, is_cut: bool, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    lose_the_end(root, is_cut=is_cut)
    rows, codes = audited(root, name)
    for row in corpus.expected(name):
        wanted = row["state"] if isinstance(row["state"], list) else [row["state"]]
        if row["transaction_id"] in rows:
            assert rows[row["transaction_id"]]["state"] in [*wanted, "UNDECIDABLE"]
    unknown = [row["reason"] for row in rows.values() if row["state"] == "UNDECIDABLE"]
    assert unknown
    assert all("bytes of the log are missing" in reason for reason in unknown)
    assert len(unknown) < len(rows)
    assert "log-missing" in codes or not name.startswith(("prepared", "statetable", "upgraded"))


def test_a_redo_log_of_another_log_is_not_believed(tmp_path: Path) -> None:
    name, other = "statetable-killed-3.1.4", "statetable-3.1.4"
    root, stranger = copy_of(name, tmp_path / "own"), copy_of(other, tmp_path / "other")
    wanted = {identity: row["state"] for identity, row in audited(root, name)[0].items()}
    for directory in ("redolog", "statetable"):
        shutil.rmtree(root / "transaction" / directory)
        shutil.copytree(stranger / "transaction" / directory, root / "transaction" / directory)
    shutil.rmtree(root / "consumequeue")
    rows, codes = audited(root, name)
    states = {identity: row["state"] for identity, row in rows.items()}
    # Both logs begin with a prepared record at the same place: what the strange tables say of that one fits this log.
    first = min(rows, key=lambda identity: rows[identity]["half_copies"][0]["commit_log_offset"])
    assert states | {first: wanted[first]} == wanted
    assert "log-missing" not in codes


@needs_rocksdict
@pytest.mark.parametrize("topic", [ROCKSDB_OP_TOPIC, ROCKSDB_HALF_TOPIC])
def test_a_damaged_topic_leaves_a_transaction_in_rocksdb_unknown(topic: str, tmp_path: Path) -> None:
    """No checksum covers a topic, but the queue knows which record it is."""
    name = "rocksdb-5.5.0"
    root = copy_of(name, tmp_path)
    wanted = {row["transaction_id"]: row for row in corpus.expected(name)}
    before, _ = audited(root, name)
    state, field = ("ROLLED_BACK", "op_marks") if topic == ROCKSDB_OP_TOPIC else ("PENDING", "half_copies")
    identity, row = next((one, row) for one, row in before.items() if row["state"] == state and row[field])
    file = damage.log_files(root)[0]
    place = row[field][0]["commit_log_offset"]
    damage.flip_byte(file, file.read_bytes().index(topic.encode(), place) + 5, 0x01)
    rows, codes = audited(root, name)
    assert rows[identity]["state"] == "UNDECIDABLE"
    words = f"of {topic} points to commit-log offset {place}, where no record of this topic begins"
    assert words in rows[identity]["reason"]
    assert "slot-mismatch" in codes
    others = {one: row["state"] for one, row in rows.items() if one != identity}
    assert others == {one: row["state"] for one, row in before.items() if one != identity}
    assert set(rows) <= set(wanted)


def test_a_log_and_its_copy_deliver_once(tmp_path: Path) -> None:
    """A slave's log has its master's bytes: one record in two stores is one delivery."""
    forge = Old(tmp_path / "master")
    places = [forge.prepared(f"T{number}") for number in range(3)]
    forge.ended(places[0], COMMIT)
    for _ in range(2):
        forge.ended(places[1], COMMIT)
    forge.ended(places[2], ROLLBACK)
    master = forge.write(half_cursor=None, op_cursor=None)
    slave = tmp_path / "slave"
    shutil.copytree(master, slave)
    reading = local_audit.audit(
        [open_store(master), open_store(slave)], lambda one: broker_settings(one, version="4.2.0")
    )
    rows = {row["transaction_id"]: row for row in reading.table().to_pylist()}
    assert {name: (row["state"], row["flags"]) for name, row in rows.items()} == {
        "T0": ("COMMITTED", []), "T1": ("COMMITTED", ["duplicate_commit"]), "T2": ("ROLLED_BACK", []),
    }
    assert "committed 2 times" in rows["T1"]["reason"]
    assert [len(rows[name]["final_records"]) for name in ("T0", "T1", "T2")] == [2, 4, 0]


def test_what_a_slot_says_now_is_not_what_it_said_then(tmp_path: Path) -> None:
    name = "statetable-3.1.4"
    root = copy_of(name, tmp_path)
    times = sorted(row["decided_time_ms"] for row in audited(root, name)[0].values() if row["decided_time_ms"])
    reading = local_audit.audit([open_store(root)], settings_of(name), at_ms=times[len(times) // 2])
    rows = [row for row in reading.table().to_pylist() if row["state"] == "PENDING"]
    assert {(tuple(row["flags"]), row["advice"]) for row in rows} == {((), "wait")}
    decided = [row for row in rows if row["state_entries"][0]["value"] != "PREPARED"]
    assert decided
    for row in decided:
        slot = row["state_entries"][0]["key"]
        assert row["reason"].endswith(f"the broker checked it: slot {slot} of the state table was open")


def test_a_decided_slot_without_its_record_is_told(tmp_path: Path) -> None:
    """The log decides; but that no slot has the record would be wrong."""
    name = "statetable-3.1.4"
    root = copy_of(name, tmp_path)
    identity, row = next((one, row) for one, row in audited(root, name)[0].items() if row["state"] == "ROLLED_BACK")
    file = damage.log_files(root)[0]
    end = row["op_marks"][0]["commit_log_offset"]
    for field, length in (("sys_flag", 4), ("prepared_transaction_offset", 8)):  # now it is an ordinary message
        damage.write_bytes(file, end + RECORD.offsets[field], bytes(length))
    told = audited(root, name)[0][identity]
    assert (told["state"], told["flags"]) == ("UNDECIDABLE", [])
    assert f"the record at commit-log offset {end} is not a COMMIT or ROLLBACK record that ends" in told["reason"]
