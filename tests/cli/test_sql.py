"""`rmqtx sql`: the tables of a store in DuckDB; what is read, what is refused, and the status."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import rmqtx as library
from rmqtx.readers.model.exit_status import DONE, FINDINGS, INCOMPLETE, UNREADABLE, USAGE
from rmqtx_cli.commands.reading import sql
from tests.cli.conftest import Run
from tests.forge.damage import zero_bytes
from tests.forge.stores import contents, copy_of, unpacked

NAME = "common-5.3.3"


@pytest.fixture
def store() -> Path:
    return unpacked(NAME)


def rows(rmqtx: Run, statement: str, *words: object) -> list[dict[str, Any]]:
    result = rmqtx("sql", statement, *words, "--json")
    assert result.status == DONE, result.err
    found: list[dict[str, Any]] = json.loads(result.out)
    return found


def test_each_table_has_the_rows_of_its_command(rmqtx: Run, store: Path) -> None:
    stores = library.open(store)
    expected: dict[str, library.Rows[Any]] = {
        "transactions": stores.audit(), "halves": stores.halves(), "ops": stores.ops(), "records": stores.records(),
        "findings": stores.verify(), "causes": stores.diagnose(), "trace": stores.trace(),
    }
    for name, answer in expected.items():
        assert rows(rmqtx, f"SELECT count(*) AS n FROM {name}", store) == [{"n": answer.to_arrow().num_rows}]
    states = rows(rmqtx, "SELECT state, count(*) AS n FROM transactions GROUP BY ALL ORDER BY ALL", store)
    found = expected["transactions"].to_arrow()["state"].value_counts().to_pylist()
    assert {one["state"]: one["n"] for one in states} == {one["values"]: one["counts"] for one in found}


def test_a_query_reads_only_the_tables_and_columns_that_it_uses(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    duckdb = pytest.importorskip("duckdb")
    asked: list[tuple[str, list[str]]] = []
    stores = library.open(store)
    for name in ("audit", "records"):
        real = getattr(stores, name)

        def watched(real: Any = real, name: str = name, **named: Any) -> Any:
            asked.append((name, named["columns"]))
            return real(**named)

        monkeypatch.setattr(stores, name, watched)
    connection = duckdb.connect()
    for name, table in stores.tables().items():
        connection.register(name, table)
    connection.sql("SELECT topic FROM records WHERE length_bytes > 100").fetchall()
    connection.sql("SELECT count(*) FROM transactions WHERE state = 'PENDING'").fetchall()
    (_, of_records), (_, of_transactions) = asked
    assert ({*of_records}, "state" in of_transactions) == ({"topic", "length_bytes"}, True)
    assert len(of_transactions) <= len(["state", "and one to count"])


def test_a_ledger_is_joined_and_each_format_has_a_form_for_each_type(rmqtx: Run, store: Path, tmp_path: Path) -> None:
    (tmp_path / "ledger.csv").write_text("order_id,status\nkey-pending.0,PAID\n")
    first = next(one for one in library.open(store).pending())
    (tmp_path / "ledger.csv").write_text(f"order_id,status\n{first.keys},PAID\n")
    joined = f"SELECT transaction_id FROM transactions JOIN '{tmp_path}/ledger.csv' o ON keys = o.order_id"
    assert rows(rmqtx, joined, store) == [{"transaction_id": first.transaction_id}]
    types = (
        "SELECT sum(length_bytes) AS total, 1.50::DECIMAL(5,2) AS d, INTERVAL 1 DAY AS i, DATE '2026-01-02' AS day, "
        "[1, NULL] AS l, {'a': 'b'} AS s, 'x'::BLOB AS b, TIME '01:02:03' AS t, 1 AS one, 2 AS one FROM records"
    )
    (row,) = rows(rmqtx, types, store)
    total = sum(one.length_bytes or 0 for one in library.open(store).records())
    assert row == {
        "total": total, "d": 1.5, "i": "1 day", "day": "2026-01-02", "l": [1, None], "s": {"a": "b"}, "b": "eA==",
        "t": "01:02:03", "one": 1, "one_1": 2,
    }
    for suffix in ("csv", "jsonl", "parquet", "arrow", "txt"):
        assert rmqtx("sql", types, store, "-o", tmp_path / f"rows.{suffix}").status == DONE
    assert pq.read_table(tmp_path / "rows.parquet").num_rows == 1


def test_damage_makes_the_answer_incomplete_also_where_no_row_shows_it(rmqtx: Run, tmp_path: Path) -> None:
    root = copy_of(NAME, tmp_path / "store")
    zero_bytes(next((root / "commitlog").iterdir()), 8192, 4096)
    for statement in ("SELECT count(*) FROM transactions WHERE state = 'COMMITTED'", "SELECT count(*) FROM halves"):
        result = rmqtx("sql", statement, root)
        assert (result.status, "record-damaged" in result.err) == (INCOMPLETE, True)
    assert rmqtx("sql", "SELECT * FROM findings", root, "-q").status == FINDINGS
    assert rmqtx("sql", "SELECT 1", root).status == DONE


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("SELEC 1", "syntax error"), ("SELECT * FROM transaction", "transactions"),
        ("SELECT stat FROM transactions", "stat"), ("COPY (SELECT 1) TO 'x.csv'", "only queries are possible"),
        ("CREATE TABLE x AS SELECT 1", "only queries are possible"), ("SET threads = 1", "only queries are possible"),
        ("SELECT 1; DROP VIEW ops", "only queries are possible"), ("SELECT * FROM sys", "sys"),
        ("SELECT * FROM 'https://127.0.0.1/a.csv'", "httpfs"),
    ],
)
def test_what_is_no_query_is_one_line(rmqtx: Run, store: Path, statement: str, words: str) -> None:
    before = contents(store)
    result = rmqtx("sql", statement, store)
    assert (result.status, result.out, result.err.count("\n")) == (USAGE, "", 1), result.err
    assert words in result.err
    assert contents(store) == before


def test_an_error_of_a_store_is_that_of_other_commands(rmqtx: Run, store: Path, tmp_path: Path) -> None:
    assert rmqtx("sql", "SELECT 1", tmp_path / "missing").status == UNREADABLE
    assert rmqtx("sql", "SELECT 1").status == USAGE
    assert rmqtx("sql", "SELECT 1", store, "-o", store / "rows.csv").status == USAGE
    assert rmqtx("sql", "SELECT 1; SELECT 2", store, "-o", tmp_path / "rows.csv").status == USAGE


def test_an_error_while_a_table_is_read_keeps_its_status(
    rmqtx: Run, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise library.UnreadableFile("cannot read the log: permission denied")

    monkeypatch.setattr("rmqtx.api.stores.scan_ops", fail)
    result = rmqtx("sql", "SELECT count(*) FROM ops", store)
    assert (result.status, result.err) == (UNREADABLE, "rmqtx: cannot read the log: permission denied\n")


def test_without_duckdb_a_line_advises_the_extra(
    rmqtx: Run, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    result = rmqtx("sql", "SELECT 1", store)
    assert result.status == UNREADABLE
    assert result.err == "rmqtx: duckdb is not installed - pip install 'rmqtx[sql]'\n"


def test_statements_are_read_from_a_pipe_and_typed_at_a_prompt(
    rmqtx: Run, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "from rmqtx_cli.main import run; run()"
    ran = subprocess.run(
        [sys.executable, "-c", program, "sql", str(store), "--format", "csv"], input="SELECT 1 AS a;\nSELECT 2 AS b",
        capture_output=True, text=True, check=False,
    )
    assert (ran.returncode, ran.stdout) == (DONE, "a\n1\nb\n2\n"), ran.stderr
    lines = iter(["SELECT 1", "AS a;", "SELEC;", "", "SELECT 2 AS b;", ".quit", "SELECT 3 AS c;"])
    monkeypatch.setattr(sql, "typed", lambda prompt: next(lines, None))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    result = rmqtx("sql", store, "--format", "csv")
    assert (result.status, result.out) == (DONE, "a\n1\nb\n2\n")
    assert "tables: transactions, halves" in result.err
    assert "syntax error" in result.err


def test_the_first_word_is_a_statement_or_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "with blank").mkdir()
    assert sql._parted(["SELECT 1", "a"]) == ("SELECT 1", ["a"])
    assert sql._parted(["with blank", "a"]) == (None, ["with blank", "a"])
    assert sql._parted(["/a b/store"]) == (None, ["/a b/store"])
    assert sql._parted(["s3://a b/store"]) == (None, ["s3://a b/store"])
    assert sql._parted(["FROM ops", "a", "b"]) == ("FROM ops", ["a", "b"])
