"""Ledgers in files: read as they are, refused in one line where they are none."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmqtx.readers.ledger.ledger import Ledger, open_ledger
from rmqtx.readers.model.errors import BadRequest, BadText, RmqtxError, UnreadableFile
from rmqtx.verdicts.ledger.join import Match, Term, named_pattern, plain_texts
from tests.forge.stores import contents


def rows(ledger: Ledger, *columns: str) -> list[dict[str, object]]:
    table = pa.Table.from_batches(list(ledger.batches(list(columns))))
    found: list[dict[str, object]] = table.to_pylist()
    return found


def database(path: Path, *statements: str) -> str:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return f"sqlite:///{path}"


def test_the_zeros_of_a_key_in_csv_stay(tmp_path: Path) -> None:
    file = tmp_path / "orders.csv"
    file.write_text("id,amount,paid\n007,12,true\n,13,false\n")
    ledger = open_ledger(str(file), None, ("id",))
    assert rows(ledger, "id", "amount") == [{"id": "007", "amount": 12}, {"id": None, "amount": 13}]
    assert ledger.schema.field("paid").type == pa.bool_()


def test_a_directory_of_files_is_one_ledger(tmp_path: Path) -> None:
    for number in range(3):
        pq.write_table(pa.table({"id": [f"{number}"]}), tmp_path / f"part-{number}.parquet")
    assert [row["id"] for row in rows(open_ledger(str(tmp_path)), "id")] == ["0", "1", "2"]


def test_long_texts_and_dictionaries_are_texts(tmp_path: Path) -> None:
    file = tmp_path / "orders.parquet"
    pq.write_table(
        pa.table({"a": pa.array(["x"], pa.large_string()), "b": pa.array(["y"]).dictionary_encode()}), file
    )
    ledger = open_ledger(str(file))
    assert {field.type for field in ledger.schema} == {pa.string()}
    assert rows(ledger, "a", "b") == [{"a": "x", "b": "y"}]


def test_the_only_table_of_sqlite_needs_no_name(tmp_path: Path) -> None:
    table = "CREATE TABLE o (id TEXT, n INT, r REAL, w)"
    place = database(tmp_path / "a.db", table, "INSERT INTO o VALUES ('a', 1, .5, 2)")
    assert rows(open_ledger(place), "id", "n", "r", "w") == [{"id": "a", "n": 1, "r": 0.5, "w": "2"}]


def test_a_view_and_strange_names_are_read(tmp_path: Path) -> None:
    place = database(
        tmp_path / "a #1?.db", 'CREATE TABLE "or""ders" ("the id" TEXT)', """INSERT INTO "or""ders" VALUES ('x')""",
        'CREATE VIEW seen AS SELECT "the id" || 1 AS id FROM "or""ders"',
    )
    assert rows(open_ledger(place, 'or"ders'), "the id") == [{"the id": "x"}]
    assert rows(open_ledger(place, "seen"), "id") == [{"id": "x1"}]


def test_reading_changes_no_database(tmp_path: Path) -> None:
    place = database(tmp_path / "a.db", "PRAGMA journal_mode=DELETE", "CREATE TABLE o (id TEXT)")
    before = contents(tmp_path)
    list(open_ledger(place).batches(["id"]))
    assert contents(tmp_path) == before


def test_a_value_that_is_not_of_its_column_is_said(tmp_path: Path) -> None:
    place = database(tmp_path / "a.db", "CREATE TABLE o (n INT)", "INSERT INTO o VALUES ('many')")
    with pytest.raises(BadText, match="a value of column n is not int64"):
        list(open_ledger(place).batches(["n"]))


def wrong(tmp_path: Path, name: str) -> None:
    if name == "none":
        open_ledger(str(tmp_path / "none.csv"))
    elif name == "not parquet":
        (tmp_path / "a.parquet").write_text("no")
        open_ledger(str(tmp_path / "a.parquet"))
    elif name == "not sqlite":
        (tmp_path / "a.db").write_text("no database at all, but long enough to be looked at" * 30)
        open_ledger(f"sqlite:///{tmp_path / 'a.db'}")
    elif name == "suffix":
        (tmp_path / "a.txt").write_text("a")
        open_ledger(str(tmp_path / "a.txt"))
    elif name == "empty csv":
        (tmp_path / "a.csv").write_text("")
        open_ledger(str(tmp_path / "a.csv"))
    elif name == "late text":
        (tmp_path / "a.csv").write_text("id,n\n" + "x,1\n" * 400_000 + "x,many\n")
        list(open_ledger(str(tmp_path / "a.csv")).batches(["n"]))
    elif name == "table":
        open_ledger(database(tmp_path / "a.db", "CREATE TABLE o (id)", "CREATE TABLE p (id)"))
    elif name == "scheme":
        open_ledger("mysql://secret@db/x")
    elif name == "jdbc":
        open_ledger("jdbc:mysql://db/x")


@pytest.mark.parametrize(
    ("name", "kind", "told"),
    [
        ("none", UnreadableFile, "does not exist"),
        ("not parquet", UnreadableFile, " as parquet: "),
        ("not sqlite", UnreadableFile, "as SQLite: "),
        ("suffix", BadRequest, "is neither .parquet nor .csv"),
        ("empty csv", UnreadableFile, " as csv: "),
        ("late text", BadText, ": In CSV column"),
        ("table", BadRequest, "there are: o, p"),
        ("scheme", BadRequest, "mysql: not supported as a ledger"),
        ("jdbc", BadRequest, "jdbc: not supported as a ledger"),
    ],
)
def test_what_is_no_ledger_says_so_in_one_line(name: str, kind: type[RmqtxError], told: str, tmp_path: Path) -> None:
    with pytest.raises(kind) as error:
        wrong(tmp_path, name)
    assert told in str(error.value)
    assert "\n" not in str(error.value)
    assert "secret" not in str(error.value)


# -- matching


def test_equal_values_are_equal_texts() -> None:
    assert plain_texts(pa.array([42, None])).to_pylist() == ["42", None]
    assert plain_texts(pa.array([42.0, 4.25])).to_pylist() == ["42", "4.25"]
    assert plain_texts(pa.array([42, 7]).cast(pa.decimal128(38, 10))).to_pylist() == ["42", "7"]
    assert plain_texts(pa.array(["A1  ", " B"])).to_pylist() == ["A1", " B"]  # CHAR(n) is filled up with blanks
    assert plain_texts(pa.array([b"A1"])).to_pylist() == ["A1"]


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        ("order-([0-9]+)", "order-(?P<key>[0-9]+)"),
        ("[0-9]+", "(?P<key>[0-9]+)"),
        (r"\(([a-z]+)-(\d+)\)", r"\((?P<key>[a-z]+)-(?:\d+)\)"),
        ("[(](x)", "[(](?P<key>x)"),
        ("(?:a|b)(c)", "(?:a|b)(?P<key>c)"),
    ],
)
def test_the_first_group_is_what_is_compared(pattern: str, named: str) -> None:
    assert named_pattern(pattern) == named


def test_what_is_no_expression_is_refused() -> None:
    with pytest.raises(BadRequest, match="is not a regular expression"):
        named_pattern("order-([0-9")


def test_keys_of_transactions() -> None:
    rows = pa.RecordBatch.from_pydict({"keys": ["o-1 c-9  o-1", None, "", "x"], "topic": ["a", "b", "c", None]})
    numbers, keys = Match((Term("keys", "id"),)).keys_of(rows)
    assert list(zip(numbers.tolist(), keys.to_pylist(), strict=True)) == [(0, "o-1"), (0, "c-9"), (3, "x")]
    numbers, keys = Match((Term("keys", "id", "^o-(.)"), Term("topic", "t"))).keys_of(rows)
    assert list(zip(numbers.tolist(), keys.to_pylist(), strict=True)) == [(0, "1\x1fa")]
