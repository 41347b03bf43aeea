"""Rows of a database table that go and come by plan: all or none, and back."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from readers.errors import BadRequest, RmqtxError, StoreChanged
from readers.store import open_store
from readers.transaction_table import TableAddress, TransactionTable, read_transaction_table
from repairs import table_changes
from repairs.table_changes import apply_steps, undo_steps
from repairs.table_plans import ADD, DELETE, TablePlan, TableStep, read_plan, wanted_changes
from tests.brokers import corpus
from tests.forge.stores import copy_of, opened

NAME = "prepared-4.2.0"
NOBODY = (None, None)
Rows = list[tuple[int, str]]


def rows_by_state(state: str) -> Rows:
    found = [row for row in corpus.expected(NAME) if row["state"] == state]
    return sorted((row["half_commit_log_offset"], row["producer_group"]) for row in found)


def database(file: Path, rows: Rows) -> TableAddress:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE t_transaction(offset NUMERIC(20) PRIMARY KEY, producerGroup VARCHAR(64))")
        connection.executemany("INSERT INTO t_transaction VALUES (?, ?)", rows)
        connection.commit()
    return TableAddress(f"sqlite:///{file}")


def content(address: TableAddress) -> Rows:
    with closing(sqlite3.connect(address.location.removeprefix("sqlite:///"))) as connection:
        return list(connection.execute("SELECT offset, producerGroup FROM t_transaction ORDER BY offset"))


@pytest.fixture
def aged(tmp_path: Path) -> TableAddress:
    """A table as of some time ago: two pending ones are not in it yet, three decided ones still are."""
    return database(tmp_path / "t.db", rows_by_state("PENDING")[2:] + stale_rows())


def stale_rows() -> Rows:
    return rows_by_state("COMMITTED")[:2] + rows_by_state("ROLLED_BACK")[:1]


def table(address: TableAddress) -> TransactionTable:
    return read_transaction_table(address, "here")


def steps(address: TableAddress) -> tuple[TableStep, ...]:
    return wanted_changes(opened(NAME), table(address)).steps


def test_what_is_decided_goes_and_what_is_pending_comes(aged: TableAddress) -> None:
    found = steps(aged)
    assert {(s.half_commit_log_offset, s.producer_group) for s in found if s.action == DELETE} == set(stale_rows())
    added = {(step.half_commit_log_offset, step.producer_group) for step in found if step.action == ADD}
    assert added == set(rows_by_state("PENDING")[:2])
    assert [step.half_commit_log_offset for step in found] == sorted(step.half_commit_log_offset for step in found)


def test_undo_of_apply_is_what_was_there(aged: TableAddress, tmp_path: Path) -> None:
    before, found = content(aged), steps(aged)
    apply_steps(found, aged, NOBODY, tmp_path / "undo", 0)
    assert content(aged) == rows_by_state("PENDING")
    assert steps(aged) == ()
    text = (tmp_path / "undo").read_text()
    assert undo_steps(text, "undo", NOBODY) == (aged, len(found))
    assert content(aged) == before
    assert undo_steps(text, "undo", NOBODY) == (aged, 0)
    assert content(aged) == before


def test_a_plan_is_read_as_it_was_written(aged: TableAddress) -> None:
    plan = TablePlan("/some/store", aged, steps(aged))
    assert read_plan(plan.text(0), "plan") == plan


@pytest.mark.parametrize("number", range(5))
def test_a_row_that_is_not_as_planned_stops_all(aged: TableAddress, tmp_path: Path, number: int) -> None:
    found = steps(aged)
    step = found[number]
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection:
        if step.action == DELETE:
            statement = "UPDATE t_transaction SET producerGroup = 'x' WHERE offset = ?"
        else:
            statement = "INSERT INTO t_transaction VALUES (?, 'x')"
        connection.execute(statement, (step.half_commit_log_offset,))
        connection.commit()
    before = content(aged)
    with pytest.raises(StoreChanged, match=f"offset {step.half_commit_log_offset} is not as planned"):
        apply_steps(found, aged, NOBODY, tmp_path / "undo", 0)
    assert content(aged) == before
    assert not (tmp_path / "undo").exists()


def test_a_row_that_was_changed_since_stops_the_undoing(aged: TableAddress, tmp_path: Path) -> None:
    found = steps(aged)
    apply_steps(found, aged, NOBODY, tmp_path / "undo", 0)
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection:
        connection.execute("INSERT INTO t_transaction VALUES (?, 'x')", (stale_rows()[0][0],))
        connection.commit()
    before = content(aged)
    with pytest.raises(StoreChanged, match="was changed since"):
        undo_steps((tmp_path / "undo").read_text(), "undo", NOBODY)
    assert content(aged) == before


@pytest.mark.parametrize("survived", range(6))
def test_a_crash_leaves_all_rows_or_none_and_can_be_undone(
    aged: TableAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survived: int
) -> None:
    """The process ends at a step: the database takes back what was not committed."""
    before, found = content(aged), steps(aged)
    made: list[TableStep] = []
    real = table_changes._make

    def dying(step: TableStep, rows: table_changes.Rows) -> None:
        if len(made) == survived:
            raise KeyboardInterrupt
        made.append(step)
        real(step, rows)

    monkeypatch.setattr(table_changes, "_make", dying)
    if survived < len(found):
        with pytest.raises(KeyboardInterrupt):
            apply_steps(found, aged, NOBODY, tmp_path / "undo", 0)
        assert content(aged) == before
    else:
        apply_steps(found, aged, NOBODY, tmp_path / "undo", 0)
    monkeypatch.setattr(table_changes, "_make", real)
    undo_steps((tmp_path / "undo").read_text(), "undo", NOBODY)
    assert content(aged) == before


def test_of_a_damaged_log_no_row_is_added(aged: TableAddress, tmp_path: Path) -> None:
    root = copy_of(NAME, tmp_path / "damaged")
    offset = rows_by_state("COMMITTED")[5][0]
    with (root / "commitlog" / f"{0:020}").open("r+b") as log:
        log.seek(offset + 4)
        log.write(b"\0\0\0\0")
    found = wanted_changes(open_store(root), table(aged))
    assert found.is_damaged
    assert {step.action for step in found.steps} == {DELETE}


@pytest.mark.parametrize("text", ["", "x", "[]", '{"kind": "other"}', '{"kind": "rmqtx-table-plan", "version": 9}',
                                  '{"kind": "rmqtx-table-plan", "version": 1, "store": "s"}'])  # fmt: skip
def test_what_is_no_plan_is_one_line(text: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read_plan(text, "plan")
    assert "\n" not in str(caught.value)


def test_an_export_can_only_be_read(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("offset,producerGroup\n1,shop\n")
    with pytest.raises(RmqtxError, match="can only be read here"):
        apply_steps((), TableAddress(str(tmp_path / "t.csv")), NOBODY, tmp_path / "undo", 0)
