"""The tables beside the log of brokers before 4.3, as commands show and change them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from readers.model.errors import UnwritableFile
from repairs.transaction_table import changes, receipts
from tests.brokers import corpus
from tests.cli.conftest import Run
from tests.forge.stores import contents, unpacked

PREPARED, STATE_TABLE = "prepared-4.2.0", "statetable-3.1.4"


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def rows_by_state(state: str) -> list[tuple[int, str]]:
    found = [row for row in corpus.expected(PREPARED) if row["state"] == state]
    return sorted((row["half_commit_log_offset"], row["producer_group"]) for row in found)


def content(file: Path) -> list[tuple[int, str]]:
    with closing(sqlite3.connect(file)) as connection:
        return list(connection.execute("SELECT offset, producerGroup FROM t_transaction ORDER BY offset"))


@pytest.fixture
def aged(tmp_path: Path) -> Path:
    """A table as of some time ago: two pending ones are not in it yet, three decided ones still are."""
    rows = rows_by_state("PENDING")[2:] + rows_by_state("COMMITTED")[:2] + rows_by_state("ROLLED_BACK")[:1]
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection:
        connection.execute("CREATE TABLE t_transaction(offset NUMERIC(20) PRIMARY KEY, producerGroup VARCHAR(64))")
        connection.executemany("INSERT INTO t_transaction VALUES (?, ?)", rows)
        connection.commit()
    return tmp_path / "t.db"


def test_slots_and_entries_are_decoded(rmqtx: Run) -> None:
    before = contents(unpacked(STATE_TABLE))
    slots = lines(rmqtx("decode", "statetable", unpacked(STATE_TABLE), "--format", "jsonl").out)
    expected = {row["half_commit_log_offset"]: row for row in corpus.expected(STATE_TABLE)}
    assert {slot["commit_log_offset"] for slot in slots} == set(expected)
    waiting = {slot["commit_log_offset"] for slot in slots if slot["state"] == "PREPARED"}
    assert waiting == {offset for offset, row in expected.items() if row["state"] == "PENDING"}
    entries = lines(rmqtx("decode", "redolog", unpacked(STATE_TABLE), "--where", "kind = END", "--format", "jsonl").out)
    assert len(entries) == sum(len(row["final_records"]) + len(row["op_marks"]) for row in expected.values())
    coverage = lines(rmqtx("decode", "statetable", unpacked(STATE_TABLE), "--coverage", "--format", "jsonl").out)
    assert [row["size_bytes"] for row in coverage] == [480] * 3
    assert contents(unpacked(STATE_TABLE)) == before


def test_a_store_without_these_tables_says_so(rmqtx: Run) -> None:
    for kind in ("statetable", "redolog"):
        result = rmqtx("decode", kind, unpacked("common-4.9.7"))
        assert result.status == 0
        assert f"has no transaction/{kind}" in result.err


def test_a_state_table_is_made_anew(rmqtx: Run, tmp_path: Path) -> None:
    result = rmqtx("rebuild", "statetable", unpacked(STATE_TABLE), "--to", tmp_path / "new")
    assert result.status == 0, result.err
    assert "state table with 55 slots, 16 of them undecided" in result.err
    assert contents(tmp_path / "new") == contents(unpacked(STATE_TABLE))
    refused = rmqtx("rebuild", "redolog", unpacked("common-4.9.7"), "--to", tmp_path / "none")
    assert refused.status == 2
    assert "neither state table nor redo log" in refused.err


def test_rows_go_and_come_by_plan_and_back(
    rmqtx: Run, aged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RMQTX_STATE_DIR", str(tmp_path / "state"))
    before, url = content(aged), f"sqlite:///{aged}"
    plan, undo = tmp_path / "rows.plan", tmp_path / "rows.undo"
    planned = rmqtx(
        "transaction-table", "plan", unpacked(PREPARED), "--transaction-table", url, "--plan", plan, "--format", "jsonl"
    )
    assert planned.status == 0, planned.err
    assert sorted(row["action"] for row in lines(planned.out)) == ["add"] * 2 + ["delete"] * 3
    assert "3 rows to delete, 2 to add" in planned.err
    words = ("transaction-table", "apply", plan, "--undo", undo)
    assert rmqtx(*words, "--dry-run").status == 0
    assert rmqtx(*words).status == 2  # nobody can be asked
    assert content(aged) == before
    done = rmqtx(*words, "--yes")
    assert done.status == 0, done.err
    assert content(aged) == rows_by_state("PENDING")
    assert rmqtx("transaction-table", "apply", plan, "--undo", tmp_path / "more", "--yes").status == 13
    assert "table-row" not in rmqtx("verify", unpacked(PREPARED), "--transaction-table", url).out
    again = rmqtx(*words, "--yes")  # as after a crash
    assert again.status == 0
    assert "is as planned already" in again.err
    assert standing(rmqtx) == ("table change", "proved", "stands")
    assert rmqtx("transaction-table", "undo", undo, "--yes").status == 0
    assert content(aged) == before
    assert standing(rmqtx) == ("table change", "proved", "undone")
    (looked_at,) = lines(rmqtx("receipts", "--recheck", "--store", unpacked(PREPARED), "--format", "jsonl").out)
    assert looked_at["standing"] == "undone"


def standing(rmqtx: Run) -> tuple[str, str, str]:
    (receipt,) = lines(rmqtx("receipts", "--format", "jsonl").out)
    return receipt["action"], receipt["outcome"], receipt["rechecks"][-1]["standing"]


def test_a_table_of_another_broker_is_wondered_at(rmqtx: Run, aged: Path) -> None:
    words = ("--transaction-table", f"sqlite:///{aged}")
    planned = rmqtx("transaction-table", "plan", unpacked("common-4.9.7"), *words)
    assert planned.status == 0
    assert f"{len(content(aged))} rows more: no prepared record begins there" in planned.err
    assert "no prepared record begins" not in rmqtx("transaction-table", "plan", unpacked(PREPARED), *words).err


def test_a_server_that_is_lost_leaves_the_outcome_unknown_and_the_same_command_looks(
    rmqtx: Run, aged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RMQTX_STATE_DIR", str(tmp_path / "state"))
    plan, undo = tmp_path / "rows.plan", tmp_path / "rows.undo"
    words = ("--transaction-table", f"sqlite:///{aged}", "--plan", plan)
    assert rmqtx("transaction-table", "plan", unpacked(PREPARED), *words).status == 0

    def lost(*_: Any) -> None:
        raise UnwritableFile("the server has gone away")

    with monkeypatch.context() as patched:
        patched.setattr(changes, "_prove", lost)
        patched.setattr(receipts, "standing_of_rows", lost)
        unknown = rmqtx("transaction-table", "apply", plan, "--undo", undo, "--yes")
    assert unknown.status == 18
    assert "the server has gone away - whether the rows are changed is unknown" in unknown.err
    again = rmqtx("transaction-table", "apply", plan, "--undo", undo, "--yes")
    assert again.status == 0
    assert "is as planned already" in again.err
    assert standing(rmqtx) == ("table change", "unknown", "stands")


def test_a_journal_that_cannot_be_written_stops_the_plan(
    rmqtx: Run, aged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, plan = content(aged), tmp_path / "rows.plan"
    words = ("--transaction-table", f"sqlite:///{aged}", "--plan", plan)
    assert rmqtx("transaction-table", "plan", unpacked(PREPARED), *words).status == 0
    monkeypatch.setenv("RMQTX_STATE_DIR", str(aged))
    refused = rmqtx("transaction-table", "apply", plan, "--undo", tmp_path / "rows.undo", "--yes")
    assert refused.status == 10
    assert "nothing is done without a receipt" in refused.err
    assert content(aged) == before


@pytest.mark.parametrize("command", ["pending", "audit", "verify"])
def test_a_table_is_of_one_broker_and_has_no_secret_in_its_name(rmqtx: Run, aged: Path, command: str) -> None:
    url = f"sqlite:///{aged}"
    assert rmqtx(command, unpacked(PREPARED), "--transaction-table", url).status in (0, 1, 3)
    several = rmqtx(command, unpacked(PREPARED), unpacked(STATE_TABLE), "--transaction-table", url)
    assert several.status == 2
    assert "is of one broker" in several.err
    secret = rmqtx(command, unpacked(PREPARED), "--transaction-table", "mysql://root:pass@host/db")
    assert secret.status == 2
    assert "pass@" not in secret.err
    alone = rmqtx(command, unpacked(PREPARED), "--offset-column", "phy")
    assert alone.status == 2
    assert "--transaction-table URL" in alone.err


def test_a_row_is_shown_with_its_transaction(rmqtx: Run, aged: Path) -> None:
    offset, group = rows_by_state("PENDING")[2]
    found = next(row for row in corpus.expected(PREPARED) if row["half_commit_log_offset"] == offset)
    words = ("--store", unpacked(PREPARED), "--transaction-table", f"sqlite:///{aged}")
    shown = rmqtx("show", found["transaction_id"], *words)
    assert shown.status == 0
    assert f"database: a row for log offset {offset}, group {group}" in shown.out


def test_a_table_through_jdbc_is_for_spark(rmqtx: Run) -> None:
    words = ("--transaction-table", "jdbc:mysql://127.0.0.1/db", "--engine", "local")
    assert rmqtx("audit", unpacked(PREPARED), *words).status == 2
    assert rmqtx("pending", unpacked(PREPARED), *words[:2]).status == 2
