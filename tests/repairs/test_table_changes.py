"""Rows of a database table that go and come by plan: all or none, and back."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from readers.model.errors import BadRequest, BadText, RmqtxError, StoreChanged, UnwritableFile
from readers.old_tables.transaction_table import TableAddress, TransactionTable, read_transaction_table
from readers.store.store import open_store
from repairs.receipts.journal import Journal
from repairs.transaction_table import changes
from repairs.transaction_table.changes import AFTER, BEFORE, apply_steps, standing_of_rows, undo_steps
from repairs.transaction_table.plan import ADD, DELETE, TablePlan, TableStep, read_plan, wanted_changes
from repairs.transaction_table.receipts import TableReceipt
from repairs.transaction_table.rows import Rows
from repairs.transaction_table.undo import Row, read_undo
from tests.brokers import corpus
from tests.forge.stores import copy_of, opened

NAME = "prepared-4.2.0"
NOBODY = (None, None)
Content = list[tuple[int, str]]


def rows_by_state(state: str) -> Content:
    found = [row for row in corpus.expected(NAME) if row["state"] == state]
    return sorted((row["half_commit_log_offset"], row["producer_group"]) for row in found)


def database(file: Path, rows: Content) -> TableAddress:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE t_transaction(offset NUMERIC(20) PRIMARY KEY, producerGroup VARCHAR(64))")
        connection.executemany("INSERT INTO t_transaction VALUES (?, ?)", rows)
        connection.commit()
    return TableAddress(f"sqlite:///{file}")


def content(address: TableAddress) -> Content:
    with closing(sqlite3.connect(address.location.removeprefix("sqlite:///"))) as connection:
        return list(connection.execute("SELECT offset, producerGroup FROM t_transaction ORDER BY offset"))


@pytest.fixture
def aged(tmp_path: Path) -> TableAddress:
    """A table as of some time ago: two pending ones are not in it yet, three decided ones still are."""
    return database(tmp_path / "t.db", rows_by_state("PENDING")[2:] + stale_rows())


def stale_rows() -> Content:
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


def test_undoing_brings_back_every_column_as_it_was(tmp_path: Path) -> None:
    """Tables that somebody made by hand have more columns, and offsets of other types."""
    rows = [("0687.00", "shop", 1.5, b"\xff", None), ("1", "x", 0.1 + 0.2, b"", "text")]
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection:
        connection.execute("CREATE TABLE t_transaction(offset TEXT, producerGroup TEXT, a REAL, b BLOB, c TEXT)")
        connection.executemany("INSERT INTO t_transaction VALUES (?, ?, ?, ?, ?)", rows)
        connection.commit()
    address = TableAddress(f"sqlite:///{tmp_path / 't.db'}")
    found = tuple(step for step in steps(address) if step.action == DELETE)
    assert [step.half_commit_log_offset for step in found] == [687]
    apply_steps(found, address, NOBODY, tmp_path / "undo", 0)
    undo_steps((tmp_path / "undo").read_text(), "undo", NOBODY)
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection:
        assert sorted(connection.execute("SELECT * FROM t_transaction")) == rows


def test_an_offset_that_stands_there_twice_is_left_alone(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection:
        connection.execute("CREATE TABLE t_transaction(offset INTEGER, producerGroup TEXT)")
        connection.executemany("INSERT INTO t_transaction VALUES (?, 'shop')", [(687,), (687,)])
        connection.commit()
    address = TableAddress(f"sqlite:///{tmp_path / 't.db'}")
    assert table(address).repeated == {687}
    assert {step.action for step in steps(address)} == {ADD}


def test_the_same_command_completes_what_was_interrupted(aged: TableAddress, tmp_path: Path) -> None:
    found, undo = steps(aged), tmp_path / "undo"

    def interrupted() -> None:
        raise KeyboardInterrupt

    for receipt in ("first", "second"):
        with pytest.raises(KeyboardInterrupt):
            apply_steps(found, aged, NOBODY, undo, 0, receipts=(receipt,), begun=interrupted)
    assert standing_of_rows(found, aged, NOBODY) == BEFORE
    apply_steps(found, aged, NOBODY, undo, 0, receipts=("third",))
    assert standing_of_rows(found, aged, NOBODY) == AFTER
    assert read_undo(undo.read_text(), "undo").receipts == ("first", "second", "third")
    assert [file.name for file in tmp_path.iterdir() if "undo" in file.name] == ["undo"]


@pytest.mark.parametrize("text", ["", "mine", '{"kind": "rmqtx-table-undo", "version": 1}'])
def test_an_undo_file_of_something_else_is_kept(aged: TableAddress, tmp_path: Path, text: str) -> None:
    (tmp_path / "undo").write_text(text)
    before = content(aged)
    with pytest.raises(BadRequest, match="is there already"):
        apply_steps(steps(aged), aged, NOBODY, tmp_path / "undo", 0)
    assert content(aged) == before
    assert (tmp_path / "undo").read_text() == text


@pytest.mark.parametrize("row", ['[1]', '{"offset": {"bytes": "x"}}', '{"offset": {"code": "1"}}', '{"offset": {}}'])
def test_a_row_that_cannot_be_put_back_is_one_line(aged: TableAddress, tmp_path: Path, row: str) -> None:
    apply_steps(steps(aged), aged, NOBODY, tmp_path / "undo", 0)
    head, *others = (tmp_path / "undo").read_text().splitlines()
    first = json.loads(others[0]) | {"row": json.loads(row)}
    with pytest.raises(BadText) as caught:
        undo_steps("\n".join([head, json.dumps(first)]), "undo", NOBODY)
    assert "\n" not in str(caught.value)


def receipt_of(aged: TableAddress, journal: Journal) -> TableReceipt:
    plan = TablePlan("/some/store", aged, steps(aged))
    return TableReceipt(journal, plan, file="rows.plan", text="the plan", reason="ticket 7")


def test_a_receipt_is_on_the_disk_before_the_first_row(aged: TableAddress, tmp_path: Path) -> None:
    journal, found = Journal(tmp_path / "receipts.jsonl"), steps(aged)
    act = receipt_of(aged, journal)
    with act.ended(NOBODY):
        apply_steps(found, aged, NOBODY, tmp_path / "undo", 0, receipts=(act.receipt.receipt_id,), begun=act.begin)
    kinds = [json.loads(line)["line"] for line in journal.path.read_text().splitlines()]
    assert kinds == ["begun", "ended"]
    (receipt,) = journal.read().receipts
    assert (receipt.action, receipt.outcome, receipt.transaction_id) == ("table change", "proved", None)
    assert receipt.reason == "ticket 7"
    asked = [(one["request"], int(one["fields"]["offset"])) for one in receipt.requests]
    assert asked == [("DELETE" if s.action == DELETE else "INSERT", s.half_commit_log_offset) for s in found]


@pytest.mark.parametrize(("survived", "outcome"), [(0, "not_sent"), (3, "not_sent"), (5, "proved")])
def test_where_the_database_fails_the_table_says_what_became_of_it(
    aged: TableAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survived: int, outcome: str
) -> None:
    """It fails at a step, or, behind the last one, when it is asked what is there."""
    journal, made = Journal(tmp_path / "receipts.jsonl"), 0
    act = receipt_of(aged, journal)
    real, proof = changes._make, changes._prove

    def failing(*given: Any) -> None:
        nonlocal made
        if made == survived:
            raise UnwritableFile("the server has gone away")
        made += 1
        real(*given)

    def unproved(*_: Any) -> None:
        raise UnwritableFile("the server has gone away")

    monkeypatch.setattr(changes, "_make", failing)
    monkeypatch.setattr(changes, "_prove", unproved if survived == 5 else proof)
    with pytest.raises(UnwritableFile), act.ended(NOBODY):
        apply_steps(steps(aged), aged, NOBODY, tmp_path / "undo", 0, begun=act.begin)
    (receipt,) = journal.read().receipts
    assert receipt.outcome == outcome
    assert receipt.notes[-1] == "interrupted: the server has gone away"


def test_without_a_journal_no_row_is_changed(aged: TableAddress, tmp_path: Path) -> None:
    before, journal = content(aged), Journal(tmp_path / "t.db" / "receipts.jsonl")
    act = receipt_of(aged, journal)
    with pytest.raises(UnwritableFile, match="nothing is done without a receipt"), act.ended(NOBODY):
        apply_steps(steps(aged), aged, NOBODY, tmp_path / "undo", 0, begun=act.begin)
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
    real = changes._make

    def dying(step: TableStep, rows: Rows, row: Row | None = None) -> None:
        if len(made) == survived:
            raise KeyboardInterrupt
        made.append(step)
        real(step, rows, row)

    monkeypatch.setattr(changes, "_make", dying)
    if survived < len(found):
        with pytest.raises(KeyboardInterrupt):
            apply_steps(found, aged, NOBODY, tmp_path / "undo", 0)
        assert content(aged) == before
    else:
        apply_steps(found, aged, NOBODY, tmp_path / "undo", 0)
    monkeypatch.setattr(changes, "_make", real)
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
    with pytest.raises(BadText) as caught:
        read_plan(text, "plan")
    assert "\n" not in str(caught.value)


def test_an_export_can_only_be_read(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("offset,producerGroup\n1,shop\n")
    with pytest.raises(RmqtxError, match="can only be read here"):
        apply_steps((), TableAddress(str(tmp_path / "t.csv")), NOBODY, tmp_path / "undo", 0)
