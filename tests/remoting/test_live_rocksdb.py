"""A live broker with transactions in RocksDB: what both topics tell, and what only its table would."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqtx.readers.log.transaction_records import scan_halves, scan_ops
from rmqtx.readers.model import clock
from rmqtx.readers.old_tables import beside_tables
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import Store, open_store
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.connections.client import Client
from rmqtx.remoting.live import half_and_op_tables, lookups
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.transactions.reason_codes import REASONS
from tests.brokers import corpus
from tests.remoting.fake import FakeServer
from tests.remoting.store_broker import StoreBroker
from tests.remoting.test_live_questions import Row, Served
from tests.verdicts.transactions.test_forged_designs import InRocksdb

NAMES = ("rocksdb-5.4.0", "rocksdb-5.5.0", "rocksdb-killed-5.5.0", "rocksdb-both-5.5.0")
DECIDED = ("COMMITTED", "ROLLED_BACK")
#: What does not depend on the moment of the reading, nor on the table.
PLAIN = ("state", "half_copies", "op_marks", "final_records", "discard_copies", "topic", "producer_group", "keys")


def plain(row: Row, root: str) -> Row:
    kept: Row = json.loads(json.dumps({name: row[name] for name in PLAIN}).replace(json.dumps(root), '"ROOT"'))
    return kept


def without_table(store: Store, findings: object) -> None:
    """No table, as a live broker shows none."""


@pytest.mark.parametrize("name", NAMES)
def test_the_rows_are_those_of_the_files_without_the_table(
    name: str, tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside_tables, "rocksdb_state_entries", without_table)
    one = Served(name, tmp_path, client)
    with one.server:
        files = {row["transaction_id"]: row for row in audit([one.store], one.settings_of).table().to_pylist()}
        live = {row["transaction_id"]: row for row in lookups.audit([one.broker]).table().to_pylist()}
        assert live.keys() == files.keys()
        for key, row in live.items():
            mine, theirs = plain(row, one.broker.root), plain(files[key], one.store.root)
            if theirs["state"] in ("PENDING", "UNDECIDABLE"):  # the files end with their last record, this is now
                assert mine.pop("state") in ("PENDING", "UNDECIDABLE")
                theirs.pop("state")
            assert mine == theirs
        assert {row["state"] for row in live.values()} >= {*DECIDED, "UNDECIDABLE"}
        reading = lookups.pending([one.broker])
        assert {found.code for found in reading.findings if found.kind.severity == "error"} <= {"undecidable"}
        listed = reading.table().to_pylist()
        assert {row["transaction_id"] for row in listed} == {
            key for key, row in live.items() if row["state"] == "PENDING" or row["advice"] == "close"
        }
        told = [str(found.actual) for found in reading.findings if found.code == "undecidable"]
        assert all(REASONS["rocksdb_table_unread"].sentence in one for one in told)
        unknown = sum(row["state"] == "UNDECIDABLE" for row in live.values())
        assert sum(int(one.split(",")[0]) for one in told) == unknown
        assert "rocksdb-transactions" in {found.code for found in reading.findings}
        some = [*live][::5]
        looked = lookups.lookup([one.broker], some).table().to_pylist()
        assert {row["transaction_id"]: row["state"] for row in looked} == {key: live[key]["state"] for key in some}


@pytest.mark.parametrize("name", NAMES)
def test_halves_and_ops_of_both_designs_are_listed(name: str, tmp_path: Path, client: Client) -> None:
    one = Served(name, tmp_path, client)

    def found(rows: list[Row], *more: str) -> list[tuple[object, ...]]:
        return sorted(tuple(row[field] for field in ("commit_log_offset", "queue_offset", *more)) for row in rows)

    with one.server:
        halves, ops = (
            read(one.broker).table().to_pylist()
            for read in (half_and_op_tables.read_halves, half_and_op_tables.read_ops)
        )
    wanted = scan_ops(one.store).table().to_pylist()
    assert found(halves, "topic") == found(scan_halves(one.store).table().to_pylist(), "topic")
    fields = ("body_form", "half_queue_offsets", "half_commit_log_offset")
    assert found(ops, *fields) == found(wanted, *fields)
    marks = [mark for row in corpus.expected(name) for mark in row["op_marks"] if mark["half_queue_offset"] is None]
    places = {(mark["commit_log_offset"], mark["half_commit_log_offset"]) for mark in marks}
    told = {(row["commit_log_offset"], row["half_commit_log_offset"]) for row in ops if row["body_form"] == "offset"}
    assert told == places


def forged(client: Client, tmp_path: Path, booted_ms: int, *, age_ms: int) -> list[Row]:
    """What a live broker with one open and one decided half is said to have."""
    forge = InRocksdb(tmp_path / "store", segment_bytes=8192)
    forge.now_ms = clock.now_ms() - age_ms
    forge.put("T1")
    forge.ended(forge.put("T2"))
    store = open_store(forge.write(half_cursor=None, op_cursor=None))
    conf = {"transactionCheckMax": "5", "transactionCheckInterval": "30000", "transactionTimeOut": "6000"}
    settings = broker_settings(store, conf=conf, version="5.5.0")
    with FakeServer(StoreBroker(store, settings, "5.5.0", booted_ms)) as server:
        rows: list[Row] = lookups.audit([Broker(client, server.address, "broker-a", "c")]).table().to_pylist()
        return rows


@pytest.mark.parametrize(
    ("age_ms", "booted_ago_ms", "state"),
    [(60_000, 3_600_000, "PENDING"), (170_000, 3_600_000, "UNDECIDABLE"), (60_000, 30_000, "UNDECIDABLE")],
    ids=["younger than its checks", "older", "younger, of a broker that started since"],
)
def test_what_cannot_have_been_dropped_yet_is_pending(
    age_ms: int, booted_ago_ms: int, state: str, tmp_path: Path, client: Client
) -> None:
    booted_ms = clock.now_ms() - booted_ago_ms
    rows = forged(client, tmp_path, booted_ms, age_ms=age_ms)
    assert {row["transaction_id"]: row["state"] for row in rows} == {"T1": state, "T2": "ROLLED_BACK"}
