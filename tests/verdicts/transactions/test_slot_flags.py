"""Prepared records and their slots of the state table (3.1), each as it should be and as it should not."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rmqtx.readers.log.record_layout import COMMIT, PREPARED, ROLLBACK
from rmqtx.readers.old_tables import beside_tables
from rmqtx.readers.old_tables.state_table import STATE_SLOT
from rmqtx.readers.store.store import ROCKSDB_OP_TOPIC, open_store
from tests.forge.logs import java_hash
from tests.forge.records import Message
from tests.verdicts.transactions.test_forged_designs import InRocksdb, Old, message_id, table_of, verdicts

NAMES = ("answered", "renumbered", "forgotten", "committed", "immune", "rolled back")


@pytest.fixture
def store(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A store with a prepared record of each kind, and their ids."""
    forge = Old(tmp_path / "store", segment_bytes=8192)
    places = {}
    for name in NAMES:
        words = [("KEYS", "K"), ("TRAN_MSG", "true"), ("PGROUP", "shop")]
        words += [("CHECK_IMMUNITY_TIME_IN_SECONDS", "999999")] if name == "immune" else []
        places[name] = forge.append(Message(properties=tuple(words), sys_flag=PREPARED))
    forge.ended(places["committed"], COMMIT)
    forge.ended(places["rolled back"], ROLLBACK)
    root = forge.write(half_cursor=None, op_cursor=None)
    numbers = {name: forge.queue_offset(places[name]) for name in NAMES if name != "forgotten"}
    numbers |= {"renumbered": 2, "rolled back": 1}
    table = bytearray(STATE_SLOT.size_bytes * 20)
    for name, number in numbers.items():
        length = len(forge._halves[places[name]].record(0))
        struct.pack_into(">qiiii", table, number * STATE_SLOT.size_bytes, places[name], length, 1_700_000_000,
                         java_hash("shop"), PREPARED)
    directory = root / "transaction" / "statetable"
    directory.mkdir(parents=True)
    (directory / f"{0:020d}").write_bytes(table)
    return root, {name: message_id(place) for name, place in places.items()}


def told(root: Path, ids: dict[str, str], version: str) -> dict[str, tuple[str, list[str], str]]:
    rows = verdicts(open_store(root), version)
    return {name: (rows[one]["state"], rows[one]["flags"], rows[one]["advice"]) for name, one in ids.items()}


def test_what_3_1_asks_and_takes(store: tuple[Path, dict[str, str]]) -> None:
    root, ids = store
    assert told(root, ids, "3.1.4") == {
        "answered": ("PENDING", [], "wait"),
        "renumbered": ("PENDING", ["unanswerable"], "decide"),
        "forgotten": ("PENDING", ["never_asked"], "decide"),
        "committed": ("COMMITTED", ["open_after_decision"], "none"),
        "rolled back": ("ROLLED_BACK", ["open_after_decision", "unanswerable"], "none"),
        "immune": ("PENDING", [], "wait"),
    }


def test_a_broker_that_was_killed_numbers_anew(store: tuple[Path, dict[str, str]]) -> None:
    """Without a redo log nothing tells the new numbers, so none is known to be refused."""
    root, ids = store
    (root / "abort").write_bytes(b"")
    flags = {name: flags for name, (_, flags, _) in told(root, ids, "3.1.4").items()}
    assert "unanswerable" not in {flag for some in flags.values() for flag in some}


@pytest.mark.parametrize("version", ["3.2.6", "4.2.0", "4.9.7"])
def test_a_later_broker_asks_nobody(store: tuple[Path, dict[str, str]], version: str) -> None:
    root, ids = store
    found = told(root, ids, version)
    assert {flag for _, flags, _ in found.values() for flag in flags} == set()
    assert {advice for state, _, advice in found.values() if state == "PENDING"} == {"decide"}


def test_an_op_of_another_id_ends_no_half_in_rocksdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker takes out the key of offset, topic and id: of another id that is none."""
    forge = InRocksdb(tmp_path / "store", segment_bytes=8192)
    half = forge.put("T1")
    words = (("TAGS", "d"), ("__transactionId__", "T2"), ("TRANS_OFFSET", str(half)), ("REAL_TOPIC", "orders"))
    forge.append(Message(topic=ROCKSDB_OP_TOPIC, body=b"\0", properties=words))
    root = forge.write(half_cursor=None, op_cursor=None)
    monkeypatch.setattr(beside_tables, "rocksdb_state_entries", table_of({half: 1}, half))
    rows = verdicts(open_store(root), "5.5.0")
    assert {one: row["state"] for one, row in rows.items()} == {"T1": "PENDING"}
