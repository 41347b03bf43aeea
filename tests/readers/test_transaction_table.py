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

from rmqtx.readers.jobs.job_runner import run_job
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.model.errors import BadRequest, RmqtxError
from rmqtx.readers.model.tables import STATE_ENTRIES, TRANSACTIONS
from rmqtx.readers.old_tables.transaction_table import TableAddress, TransactionTable, read_transaction_table, table_of
from rmqtx.verdicts.verify.verify import Verify
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
    })
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
    }


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
    rows[10**9] = "shop"
    found = findings(NAME, as_table(sorted(rows.items())))
    told = {(row["code"], row["commit_log_offset"]) for row in found}
    assert told == {
        *(("table-row-stale", offset) for offset in stale), ("table-row-group", other),
        ("table-row-missing", missing), ("table-row-unknown", missing + 1), ("table-row-unknown", 10**9),
    }
    assert len(stale) == 2
    words = {row["commit_log_offset"]: row["actual"] for row in found}
    for state, record in (("COMMITTED", "COMMIT"), ("ROLLED_BACK", "ROLLBACK")):
        offset = ended[state]["half_commit_log_offset"]
        assert words[offset] == f"row {offset}, but the log has a {record} record"
    assert words[other] == f"row {other} of somebody"
    assert words[10**9].startswith("row 1000000000, and the log ends at ")


def test_values_that_are_no_offsets_are_told_and_left_out() -> None:
    offsets = ["12", "abc", None, "-3", "12.0", "99999999999999999999", "0017", "1.5"]
    offsets += ["1.23456789012e+11", "1e-1", "9e99"]
    table = table_of("given", offsets, [None] * len(offsets), "here")
    assert table.offsets.tolist() == [12, 17, 123456789012]
    actual = [finding.actual for finding in table.findings]
    assert actual == ["abc", "null", "-3", "99999999999999999999", "1.5", "1e-1", "9e99", "12"]
    assert table.findings[-1].expected == "each offset once"


def test_a_row_is_shown_with_its_transaction() -> None:
    copy = {"store": "s", "queue_id": 0, "queue_offset": 0, "commit_log_offset": 17, "store_time_ms": 1}
    rows = [dict.fromkeys(TRANSACTIONS.names) for _ in range(3)]
    for row, copies in zip(rows, ([copy], [], [{**copy, "commit_log_offset": 4}]), strict=True):
        row |= {"store": "s", "half_copies": copies, "state_entries": []}
    batch = pa.RecordBatch.from_pylist(rows, schema=TRANSACTIONS)
    given = table_of("given", ["17", "5"], ["shop", "x"], "s").with_entries(batch)
    assert given.schema == TRANSACTIONS
    assert given["state_entries"].to_pylist() == [
        [{"store": "s", "kind": "database", "key": "17", "value": "shop", "position_bytes": None}], [], []
    ]
    assert table_of("given", ["5"], ["x"], "s").with_entries(batch) is batch


@pytest.mark.parametrize(
    ("address", "words"),
    [
        (TableAddress("t.xlsx"), "neither .parquet nor .csv"),
        (TableAddress("nothing.csv"), "does not exist"),
        (TableAddress("sqlite:///nothing.db"), "does not exist"),
        (TableAddress("nosuch://host/db"), "nosuch|SQLAlchemy is not installed"),
    ],
)
def test_what_cannot_be_read_is_one_line(address: TableAddress, words: str) -> None:
    with pytest.raises(RmqtxError, match=words) as caught:
        read_transaction_table(address, "here")
    assert "\n" not in str(caught.value)


def strange_columns(kind: str) -> pa.Table:
    offsets: dict[str, list[Any]] = {
        "floats": [0.0, 123456789012.0, None], "bytes": [b"0", b"123456789012", b"\xff"],
        "lists": [[0], [1], None], "times": [0, 1, None],
    }
    types = {"times": pa.timestamp("ns"), "lists": pa.list_(pa.int64())}
    return pa.table({
        "offset": pa.array(offsets[kind], types.get(kind)), "producerGroup": pa.array([b"shop", b"\xff", None]),
    })


@pytest.mark.parametrize(
    ("kind", "rows", "invalid"),
    [("floats", [0, 123456789012], 1), ("bytes", [0, 123456789012], 1), ("times", [], 3)],
)
def test_columns_of_other_types_are_read_as_what_they_say(
    tmp_path: Path, kind: str, rows: list[int], invalid: int
) -> None:
    pq.write_table(strange_columns(kind), tmp_path / "t.parquet")
    table = read_transaction_table(TableAddress(str(tmp_path / "t.parquet")), "here")
    assert table.offsets.tolist() == rows
    assert len(table.findings) == invalid
    assert table.rows["producer_group"].to_pylist() == ["shop", "\\xff"][: len(rows)]


def test_a_column_of_lists_is_one_line(tmp_path: Path) -> None:
    pq.write_table(strange_columns("lists"), tmp_path / "t.parquet")
    with pytest.raises(BadRequest, match="a column has type list<"):
        read_transaction_table(TableAddress(str(tmp_path / "t.parquet")), "here")


def test_an_export_in_another_encoding_is_read(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"offset,producerGroup\n0,K\xf6ln\n")
    table = read_transaction_table(TableAddress(str(tmp_path / "t.csv")), "here")
    assert table.rows.to_pylist() == [{"half_commit_log_offset": 0, "producer_group": "K\\xf6ln"}]


def test_a_damaged_export_is_one_line(tmp_path: Path) -> None:
    table = pa.table({"offset": list(range(50_000)), "producerGroup": [f"shop{one}" for one in range(50_000)]})
    pq.write_table(table, tmp_path / "t.parquet", compression="zstd")
    data = bytearray((tmp_path / "t.parquet").read_bytes())
    middle = len(data) // 2
    data[middle : middle + 1000] = bytes(1000)
    (tmp_path / "t.parquet").write_bytes(data)
    with pytest.raises(RmqtxError, match="cannot read "):
        read_transaction_table(TableAddress(str(tmp_path / "t.parquet")), "here")


def test_any_value_of_sqlite_is_a_row_or_a_finding(tmp_path: Path) -> None:
    rows = [("abc", "shop"), (0, "shop"), (4332.0, 5), (None, None), (-1, "x"), (1e30, "z"), (b"\xff", b"\xfe")]
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection:
        connection.execute("CREATE TABLE t_transaction(offset INTEGER, producerGroup INTEGER)")
        connection.executemany("INSERT INTO t_transaction VALUES (?, ?)", rows)
        connection.commit()
    table = read_transaction_table(TableAddress(f"sqlite:///{tmp_path / 't.db'}"), "here")
    assert [tuple(row.values()) for row in table.rows.to_pylist()] == [(0, "shop"), (4332, "5")]
    assert [one.actual for one in table.findings] == ["abc", "null", "-1", "1.0e+30", "\\xff"]


def test_a_column_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    address = as_csv([(1, "shop")], tmp_path)
    words = "no column phy - give the column with --offset-column; there are: OFFSET, PRODUCERGROUP"
    with pytest.raises(BadRequest, match=words):
        read_transaction_table(TableAddress(address.location, offset_column="phy"), "here")
