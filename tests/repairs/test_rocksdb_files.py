"""Acts on the files of a stopped broker with transactions in RocksDB; real ones: tests/brokers/test_rocksdb_acts.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtx.readers.store.store import ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC, open_store
from rmqtx.repairs.acts.log_tail import log_end
from rmqtx.repairs.acts.orders import Conduct
from rmqtx.repairs.changes.execution import Destination
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.records.record_writer import draft_of
from tests.brokers.corpus import expected, recipe
from tests.forge.stores import copy_of
from tests.repairs.acting import act, medium_of, rows_of
from tests.repairs.log_records import records

#: Without it the table is not read, and nothing is decided offline: evidence-incomplete.
pytest.importorskip("rocksdict", reason="rocksdict is not installed: pip install 'rmqtx[rocksdb]'")
NAMES = ("rocksdb-5.4.0", "rocksdb-5.5.0", "rocksdb-killed-5.4.0", "rocksdb-killed-5.5.0")


def some(name: str, state: str, count: int) -> list[str]:
    """Ids of transactions in a state, one half each, whose producer asked for no time."""
    rows = [row for row in expected(name) if row["state"] == state and len(row["half_copies"]) == 1]
    return [row["transaction_id"] for row in rows if "immune" not in row["flags_at_least"]][:count]


@pytest.mark.parametrize("name", NAMES)
def test_each_decision_appends_what_its_broker_would_have_written(
    name: str, tmp_path: Path, journal: Journal
) -> None:
    version = recipe(name)["version"]
    root, target = copy_of(name, tmp_path / "source"), tmp_path / "target"
    open_ids, dropped = some(name, "PENDING", 3), some(name, "DISCARDED", 1)
    orders = dict(zip(open_ids, (ActKind.COMMIT, ActKind.ROLLBACK, ActKind.DISCARD), strict=True))
    orders |= dict.fromkeys(dropped, ActKind.COMMIT)
    end = log_end(open_store(root)).offset
    receipts = act(
        medium_of(root, version, Destination(copy=target)), journal, orders, Conduct(overrides=("immunity",))
    )
    assert {receipt.transaction_id: receipt.outcome for receipt in receipts} == dict.fromkeys(orders, "proved")
    rows = rows_of(target, version)
    assert [rows[one]["state"] for one in open_ids] == ["COMMITTED", "ROLLED_BACK", "ROLLED_BACK"]
    assert {rows[one]["state"] for one in dropped} == {"COMMITTED"}
    appended = [record for record in records(open_store(target)) if int.from_bytes(record[28:36], "big") >= end]
    topics = [draft_of(record).topic for record in appended]
    assert topics.count(ROCKSDB_OP_TOPIC) == len(orders)
    assert len(topics) == len(orders) + 1 + len(dropped)
    assert (target / "abort").exists()
    saved = [receipt.saved_message for receipt in receipts if receipt.action == ActKind.DISCARD]
    assert [Path(str(one)).is_file() for one in saved] == [True]


def test_what_was_dropped_is_put_into_rocksdb_again(tmp_path: Path, journal: Journal) -> None:
    name = "rocksdb-5.5.0"
    root, target = copy_of(name, tmp_path / "source"), tmp_path / "target"
    (one,) = some(name, "DISCARDED", 1)
    (receipt,) = act(medium_of(root, "5.5.0", Destination(copy=target)), journal, {one: ActKind.RESUME})
    assert receipt.outcome == "accepted"
    row = rows_of(target, "5.5.0")[one]
    assert (row["state"], len(row["half_copies"]), "resumed" in row["flags"]) == ("PENDING", 2, True)
    added = [record for record in records(open_store(target))
             if int.from_bytes(record[28:36], "big") == row["half_copies"][-1]["commit_log_offset"]]
    assert [draft_of(record).topic for record in added] == [ROCKSDB_HALF_TOPIC]


def test_a_broker_that_keeps_the_table_shut_is_not_given_ops_for_it(tmp_path: Path, journal: Journal) -> None:
    name = "rocksdb-5.5.0"
    root = copy_of(name, tmp_path / "source")
    (one,) = some(name, "PENDING", 1)
    medium = medium_of(root, "5.5.0", Destination(copy=tmp_path / "target"), {"transRocksDBEnable": "false"})
    (receipt,) = act(medium, journal, {one: ActKind.ROLLBACK}, Conduct(overrides=("immunity",)))
    assert receipt.outcome == "refused_by_guard"
    assert "transRocksDBEnable=false" in receipt.notes[0]
    assert not (tmp_path / "target").exists()
