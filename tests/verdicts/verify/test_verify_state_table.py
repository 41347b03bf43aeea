"""What `verify` reports about the tables of 3.1 beside a damaged log: the states of an audit, and advice that works."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqtx.readers.jobs.job_runner import run_job
from rmqtx.readers.log.record_layout import PREPARED
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.old_tables.transaction_table import table_of
from rmqtx.readers.store.store import open_store
from rmqtx.repairs.rebuild.rebuild import rebuild
from rmqtx.repairs.records.store_sizes import store_sizes
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.simulation.simulation_without_queue import beside_tables
from rmqtx.verdicts.verify.verify import Verify
from tests.brokers import corpus
from tests.forge.stores import copy_of, settings_of, unpacked

CLEAN, LEFT_BEHIND = "statetable-3.1.4", "upgraded-3.1.4-3.2.6"
STATE_TABLES = corpus.corpus_names(design="state_table")
_PAGE = 4096
_GROUP_KEY = b"PGROUP\x01"
Row = dict[str, Any]


def findings(root: Path, version: str | None = None) -> list[Row]:
    rows: list[Row] = run_job(Verify(version=version), plan_splits([open_store(root)])).table().to_pylist()
    return rows


def states(name: str, root: Path) -> dict[int, str]:
    """The state of each transaction in an audit, by the place of its prepared record."""
    reading = audit([open_store(root)], settings_of(name))
    rows = pa.Table.from_batches(list(reading.batches)).to_pylist()
    return {copy["commit_log_offset"]: row["state"] for row in rows for copy in row["half_copies"]}


def _log(root: Path) -> Path:
    return sorted((root / "commitlog").iterdir())[0]


def zero_a_page(root: Path) -> None:
    data = bytearray(_log(root).read_bytes())
    begin = len(data.rstrip(b"\0")) // 2 // _PAGE * _PAGE
    data[begin : begin + _PAGE] = bytes(_PAGE)
    _log(root).write_bytes(data)


def cut_the_end(root: Path) -> None:
    data = _log(root).read_bytes()
    end = len(data.rstrip(b"\0")) * 2 // 3
    _log(root).write_bytes(data[:end] + bytes(len(data) - end))


def flip_a_body_length(root: Path) -> None:
    data = bytearray(_log(root).read_bytes())
    place = int(data.rindex(_GROUP_KEY)) // 2
    begin = data.rindex(b"\xda\xa3\x20\xa7", 0, place) - 4  # the magic of a record
    data[begin + 84] ^= 0x40
    _log(root).write_bytes(data)


@pytest.mark.parametrize("damage", [zero_a_page, cut_the_end, flip_a_body_length])
@pytest.mark.parametrize("name", STATE_TABLES)
def test_a_finding_about_a_transaction_agrees_with_its_state(
    tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    root = copy_of(name, tmp_path)
    damage(root)
    state_of = states(name, root)
    for row in findings(root):
        if row["code"] == "table-slot-unproved":
            assert state_of[row["commit_log_offset"]] == "UNDECIDABLE", row
            assert "UNDECIDABLE" in row["meaning"]
        if row["code"].startswith("table-"):
            assert "pending" not in row["meaning"]
            assert "open prepared" not in f"{row['expected']} {row['actual']}"


def test_a_slot_that_only_the_lost_page_explains_is_reported(tmp_path: Path) -> None:
    root = copy_of(CLEAN, tmp_path)
    zero_a_page(root)
    assert [row["code"] for row in findings(root)].count("table-slot-unproved") == 1


# ---- a producer group that cannot be read


def _without_a_group(to: Path) -> tuple[Path, int]:
    """A store with a prepared record whose properties have no producer group, and the place of that record."""
    root = copy_of(CLEAN, to)
    data = bytearray(_log(root).read_bytes())
    key = data.index(_GROUP_KEY)
    data[key : key + 6] = b"QGROUP"
    _log(root).write_bytes(data)
    return root, data.rindex(b"\xda\xa3\x20\xa7", 0, key) - 4


def test_an_unknown_producer_group_is_no_number(tmp_path: Path) -> None:
    root, offset = _without_a_group(tmp_path)
    (row,) = (row for row in findings(root) if row["code"] == "table-slot-mismatch")
    assert row["commit_log_offset"] == offset
    assert row["expected"].startswith("unknown: ")
    assert not row["advice"].startswith("rmqtx rebuild")  # a slot needs the hash of the group
    assert not any(str(1 << 40) in f"{row['expected']}{row['actual']}" for row in findings(root))


def test_a_simulation_does_not_call_it_another_record(tmp_path: Path) -> None:
    root, _ = _without_a_group(tmp_path)
    store = open_store(root)
    assert [one.actual for one in beside_tables(store, settings_of(CLEAN)(store), {}).findings] == []  # it is decided
    (table,) = [file for file in (root / "transaction" / "statetable").iterdir() if int(file.name) == 0]
    data = bytearray(table.read_bytes())
    data[20:24] = PREPARED.to_bytes(4, "big")  # the state of slot 0
    table.write_bytes(data)
    store = open_store(root)
    (finding,) = beside_tables(store, settings_of(CLEAN)(store), {}).findings
    assert finding.code == "table-slot-mismatch"
    assert str(finding.actual).startswith("unknown: ")


def test_a_row_of_a_database_with_the_group_of_an_unreadable_one_is_unknown(tmp_path: Path) -> None:
    root, offset = _without_a_group(tmp_path)
    table = table_of("export.csv", [str(offset)], ["shop"], str(root))
    reading = run_job(Verify(transaction_table=table), plan_splits([open_store(root)]))
    (row,) = (row for row in reading.table().to_pylist() if row["code"] == "table-row-group")
    assert row["expected"].startswith("unknown: ")


def test_prepared_records_without_a_row_are_not_all_pending_where_the_log_is_damaged(tmp_path: Path) -> None:
    table = table_of("export.csv", [], [], "store")
    whole, damaged = unpacked("prepared-3.2.6"), copy_of("prepared-3.2.6", tmp_path)
    zero_a_page(damaged)
    texts = {}
    for root in (whole, damaged):
        rows = run_job(Verify(transaction_table=table), plan_splits([open_store(root)])).table().to_pylist()
        (texts[root],) = (row["meaning"] for row in rows if row["code"] == "table-row-missing")
    assert "UNDECIDABLE" not in texts[whole]
    assert "UNDECIDABLE" in texts[damaged]
    assert "UNDECIDABLE" in states("prepared-3.2.6", damaged).values()
    assert "UNDECIDABLE" not in states("prepared-3.2.6", whole).values()


# ---- advice


def _rebuilds(rows: list[Row]) -> set[str]:
    return {row["code"] for row in rows if (row["advice"] or "").startswith("rmqtx rebuild")}


def _without_the_table(root: Path) -> None:
    for path in (root / "transaction" / "statetable").iterdir():
        path.unlink()


def _with_a_wrong_slot(root: Path) -> None:
    path = sorted((root / "transaction" / "statetable").iterdir())[0]
    data = bytearray(path.read_bytes())
    data[8] ^= 1  # the length of the record of slot 0
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [_without_the_table, _with_a_wrong_slot])
def test_a_rebuild_is_advised_where_it_removes_the_finding(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    root = copy_of(CLEAN, tmp_path / "damaged")
    damage(root)
    advised = _rebuilds(findings(root))
    assert advised
    store = open_store(root)
    rebuild(["statetable"], store, tmp_path / "new", store_sizes(store))
    assert not advised & {row["code"] for row in findings(tmp_path / "new")}


def test_no_rebuild_is_advised_where_the_log_lacks_the_records(tmp_path: Path) -> None:
    root = copy_of(CLEAN, tmp_path)
    cut_the_end(root)
    rows = findings(root)
    assert {"table-slot-mismatch", "redo-entry-mismatch"} <= {row["code"] for row in rows}
    assert not _rebuilds(rows)
    assert not _rebuilds(findings(_lost_table(tmp_path / "second")))


def _lost_table(to: Path) -> Path:
    root = copy_of(CLEAN, to)
    zero_a_page(root)
    _without_the_table(root)
    assert "table-missing" in {row["code"] for row in findings(root)}
    return root


def test_no_rebuild_is_advised_without_a_log(tmp_path: Path) -> None:
    root = copy_of(CLEAN, tmp_path)
    (root / "transaction" / "statetable" / f"{480:020}").unlink()
    assert "table-gap" in _rebuilds(findings(root))
    _log(root).unlink()
    rows = findings(root)
    assert "table-gap" in {row["code"] for row in rows}
    assert not _rebuilds(rows)


@pytest.mark.parametrize(("name", "version"), [(LEFT_BEHIND, None), (CLEAN, "3.2.6"), (CLEAN, "4.2.0")])
def test_no_rebuild_is_advised_for_a_broker_that_reads_no_table(
    tmp_path: Path, name: str, version: str | None
) -> None:
    root = copy_of(name, tmp_path)
    _with_a_wrong_slot(root)
    rows = findings(root, version)
    (row,) = (row for row in rows if row["code"] == "table-slot-mismatch")
    assert "no broker reads" in row["meaning"]
    assert not _rebuilds(rows)
