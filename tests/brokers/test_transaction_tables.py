"""Tables that the brokers' own class filled, in Derby and in a real MySQL 5.6, read and held against the log."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from readers.commit_log import scan_records
from readers.job_runner import run_job
from readers.splits import plan_splits
from readers.store import Store
from readers.transaction_table import TableAddress, TransactionTable, read_transaction_table
from readers.verify import Verify
from repairs.table_changes import apply_steps, undo_steps
from repairs.table_plans import TableStep
from tests.brokers import corpus, maven
from tests.brokers.transaction_tables import DATABASE, filled, filled_derby, mysql_server, operations
from tests.forge.stores import opened

NAME = "prepared-3.2.6"
pytestmark = [pytest.mark.broker, pytest.mark.skipif(maven.why_not() is not None, reason=str(maven.why_not()))]


def events(store: Store) -> Iterator[tuple[str, int, str]]:
    """What the class would have been told: prepared records, and those that ended them for the first time."""
    columns = ["commit_log_offset", "transaction_type", "prepared_transaction_offset", "producer_group"]
    waiting: set[int] = set()
    for row in scan_records(store, columns=columns).table().to_pylist():
        if row["transaction_type"] == "prepared":
            waiting.add(row["commit_log_offset"])
            yield "put", row["commit_log_offset"], row["producer_group"]
        elif row["prepared_transaction_offset"] in waiting and row["transaction_type"] != "none":
            waiting.remove(row["prepared_transaction_offset"])
            yield "remove", row["prepared_transaction_offset"], ""


def pending_rows() -> list[dict[str, object]]:
    found = [row for row in corpus.expected(NAME) if row["state"] == "PENDING"]
    pairs = sorted((row["half_commit_log_offset"], row["producer_group"]) for row in found)
    return [{"half_commit_log_offset": offset, "producer_group": group} for offset, group in pairs]


def table_codes(table: TransactionTable) -> list[str]:
    reading = run_job(Verify(transaction_table=table), plan_splits([opened(NAME)]))
    return [code for code in reading.table()["code"].to_pylist() if code.startswith("table-")]


def test_what_derby_exports_is_what_is_pending(tmp_path: Path) -> None:
    (tmp_path / "export.csv").write_text(filled_derby(operations(events(opened(NAME))), tmp_path))
    table = read_transaction_table(TableAddress(str(tmp_path / "export.csv")), "here")
    assert table.rows.to_pylist() == pending_rows()
    assert table_codes(table) == []


def test_a_table_in_mysql_is_read_over_the_wire(tmp_path: Path) -> None:
    for module in ("sqlalchemy", "pymysql"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not here (pip install sqlalchemy pymysql)")
    with mysql_server(tmp_path) as port:
        address = f"jdbc:mysql://127.0.0.1:{port}/{DATABASE}"
        exported = filled("com.mysql.jdbc.Driver", address, operations(events(opened(NAME))), tmp_path)
        assert exported.startswith("offset,producerGroup\n")
        there = TableAddress(f"mysql+pymysql://127.0.0.1:{port}/{DATABASE}")
        login = ("root", "")
        table = read_transaction_table(there, "here", login=login)
        undo = tmp_path / "rows.undo"
        steps = (TableStep("delete", int(table.offsets[0]), "shop", ""), TableStep("add", 1, "shop", ""))
        apply_steps(steps, there, login, undo, 0)
        changed = read_transaction_table(there, "here", login=login).offsets.tolist()
        assert changed == [1, *table.offsets.tolist()[1:]]
        assert undo_steps(undo.read_text(), "undo", login) == (there, 2)
        assert read_transaction_table(there, "here", login=login).rows == table.rows
    assert table.rows.to_pylist() == pending_rows()
    assert table_codes(table) == []
