"""The database table of open transactions: however it is kept, against the log, and beside verdicts."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from readers.errors import BadRequest, RmqtxError
from readers.job_runner import run_job
from readers.splits import plan_splits
from readers.tables import STATE_ENTRIES, TRANSACTIONS
from readers.transaction_table import (
    TableAddress,
    TransactionTable,
    read_transaction_table,
    table_of,
    with_database_entries,
)
from readers.verify import Verify
from tests.brokers import corpus
from tests.forge.stores import opened

STORES = corpus.corpus_names(design="prepared_records")
NAME = "prepared-3.2.6"
SCHEMA = "CREATE TABLE t_transaction(offset NUMERIC(20) PRIMARY KEY, producerGroup VARCHAR(64))"
Rows = list[tuple[int, str]]


def pending_rows(name: str) -> Rows:
    """What the class keeps of a store: the pending ones."""
    found = [row for row in corpus.expected(name) if row["state"] == "PENDING" and "design" in row]
    return sorted((row["half_commit_log_offset"], row["producer_group"]) for row in found)


def as_sqlite(rows: Rows, directory: Path) -> TableAddress:
    with closing(sqlite3.connect(directory / "t.db")) as database:
        database.execute(SCHEMA)
        database.executemany("INSERT INTO t_transaction VALUES (?, ?)", rows)
        database.commit()
    return TableAddress(f"sqlite:///{directory / 't.db'}")


def as_renamed_sqlite(rows: Rows, directory: Path) -> TableAddress:
    with closing(sqlite3.connect(directory / "t.db")) as database:
        database.execute('CREATE TABLE "open ones"("the offset" TEXT, "group" TEXT, more INTEGER)')
        database.executemany('INSERT INTO "open ones" VALUES (?, ?, 1)', [(f"{one}.000", group) for one, group in rows])
        database.commit()
    return TableAddress(f"sqlite:///{directory / 't.db'}", "open ones", "the offset", "group")


def as_csv(rows: Rows, directory: Path) -> TableAddress:
    lines = ["OFFSET,PRODUCERGROUP", *(f"{one},{group}" for one, group in reversed(rows))]
    (directory / "t.csv").write_text("\n".join(lines) + "\n")
    return TableAddress(str(directory / "t.csv"))


def as_parquet(rows: Rows, directory: Path) -> TableAddress:
    table = pa.table({
        "offset": pa.array([Decimal(one) for one, _ in rows], pa.decimal128(20, 0)),
        "producerGroup": [group for _, group in rows],
    })  # fmt: skip
    pq.write_table(table, directory / "t.parquet")
    return TableAddress(str(directory / "t.parquet"))


WAYS = [as_sqlite, as_renamed_sqlite, as_csv, as_parquet]


def findings(name: str, table: TransactionTable) -> list[dict[str, Any]]:
    reading = run_job(Verify(transaction_table=table), plan_splits([opened(name)]))
    rows: list[dict[str, Any]] = reading.table().to_pylist()
    return [row for row in rows if row["code"].startswith("table-row-")]


def as_table(rows: Rows, name: str = NAME) -> TransactionTable:
    return table_of("given", [str(one) for one, _ in rows], [group for _, group in rows], opened(name).root)


@pytest.mark.parametrize("way", WAYS)
def test_the_rows_are_the_same_however_they_are_kept(way: Callable[[Rows, Path], TableAddress], tmp_path: Path) -> None:
    rows = pending_rows(NAME)
    assert len(rows) > 5
    address = way(rows, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    table = read_transaction_table(address, "here")
    assert [tuple(row.values()) for row in table.rows.to_pylist()] == rows
    assert table.findings == ()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    entries = table.entries("here")
    assert entries.schema == STATE_ENTRIES
    assert entries.to_pylist()[0] == {
        "store": "here", "half_commit_log_offset": rows[0][0], "kind": "database", "key": str(rows[0][0]),
        "value": rows[0][1], "position_bytes": None,
    }  # fmt: skip


@pytest.mark.parametrize("name", [name for name in STORES if not name.startswith("upgraded")])
def test_a_table_of_the_pending_ones_agrees_with_the_log(name: str) -> None:
    assert findings(name, as_table(pending_rows(name), name)) == []


def test_each_way_of_being_wrong_is_told() -> None:
    rows = dict(pending_rows(NAME))
    missing = sorted(rows)[2]
    del rows[missing]
    other = sorted(rows)[3]
    rows[other] = "somebody"
    ended = {row["state"]: row for row in corpus.expected(NAME) if row["state"] != "PENDING"}
    stale = {row["half_commit_log_offset"] for row in ended.values()}
    rows |= {row["half_commit_log_offset"]: row["producer_group"] for row in ended.values()}
    rows[missing + 1] = "shop"
    found = findings(NAME, as_table(sorted(rows.items())))
    told = {(row["code"], row["commit_log_offset"]) for row in found}
    assert told == {
        *(("table-row-stale", offset) for offset in stale), ("table-row-group", other),
        ("table-row-missing", missing), ("table-row-unknown", missing + 1),
    }  # fmt: skip
    assert len(stale) == 2
    words = {row["actual"] for row in found if row["code"] == "table-row-stale"}
    assert words == {"a row, and a COMMIT record in the log", "a row, and a ROLLBACK record in the log"}


def test_values_that_are_no_offsets_are_told_and_left_out() -> None:
    offsets = ["12", "abc", None, "-3", "12.0", "99999999999999999999", "0017", "1.5"]
    table = table_of("given", offsets, [None] * 8, "here")
    assert table.offsets.tolist() == [12, 17]
    actual = [finding.actual for finding in table.findings]
    assert actual == ["abc", "None", "-3", "99999999999999999999", "1.5", "12"]
    assert table.findings[-1].expected == "each offset once"


def test_a_row_is_shown_with_its_transaction() -> None:
    copy = {"store": "s", "queue_id": 0, "queue_offset": 0, "commit_log_offset": 17, "store_time_ms": 1}
    rows = [dict.fromkeys(TRANSACTIONS.names) for _ in range(3)]
    for row, copies in zip(rows, ([copy], [], [{**copy, "commit_log_offset": 4}]), strict=True):
        row |= {"store": "s", "half_copies": copies, "state_entries": []}
    batch = pa.RecordBatch.from_pylist(rows, schema=TRANSACTIONS)
    given = with_database_entries(batch, table_of("given", ["17", "5"], ["shop", "x"], "s"))
    assert given.schema == TRANSACTIONS
    assert given["state_entries"].to_pylist() == [
        [{"store": "s", "kind": "database", "key": "17", "value": "shop", "position_bytes": None}], [], []
    ]
    assert with_database_entries(batch, table_of("given", ["5"], ["x"], "s")) is batch


@pytest.mark.parametrize(
    ("address", "words"),
    [
        (TableAddress("t.xlsx"), "neither .parquet nor .csv"),
        (TableAddress("nothing.csv"), "does not exist"),
        (TableAddress("sqlite:///nothing.db"), "does not exist"),
        (TableAddress("nosuch://host/db"), "nosuch|SQLAlchemy, which is not installed"),
    ],
)
def test_what_cannot_be_read_is_one_line(address: TableAddress, words: str) -> None:
    with pytest.raises(RmqtxError, match=words) as caught:
        read_transaction_table(address, "here")
    assert "\n" not in str(caught.value)


def test_a_column_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    address = as_csv([(1, "shop")], tmp_path)
    with pytest.raises(BadRequest, match=r"no column phy - --offset-column names it; there are: OFFSET, PRODUCERGROUP"):
        read_transaction_table(TableAddress(address.location, offset_column="phy"), "here")
