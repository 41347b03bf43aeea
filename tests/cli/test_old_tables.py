"""The tables beside the log of brokers before 4.3, as commands show and change them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.brokers import corpus
from tests.cli.conftest import Run
from tests.forge.stores import contents, unpacked

PREPARED, STATE_TABLE = "prepared-4.2.0", "statetable-3.1.4"


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
    slots = rmqtx("decode", "statetable", unpacked(STATE_TABLE), "--format", "jsonl").rows
    expected = {row["half_commit_log_offset"]: row for row in corpus.expected(STATE_TABLE)}
    assert {slot["commit_log_offset"] for slot in slots} == set(expected)
    waiting = {slot["commit_log_offset"] for slot in slots if slot["state"] == "PREPARED"}
    assert waiting == {offset for offset, row in expected.items() if row["state"] == "PENDING"}
    entries = rmqtx("decode", "redolog", unpacked(STATE_TABLE), "--where", "kind = END", "--format", "jsonl").rows
    assert len(entries) == sum(len(row["final_records"]) + len(row["op_marks"]) for row in expected.values())
    coverage = rmqtx("decode", "statetable", unpacked(STATE_TABLE), "--coverage", "--format", "jsonl").rows
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


@pytest.mark.parametrize("command", ["pending", "audit", "verify"])
def test_a_table_is_of_one_broker_and_has_no_secret_in_its_name(rmqtx: Run, aged: Path, command: str) -> None:
    url = f"sqlite:///{aged}"
    assert rmqtx(command, unpacked(PREPARED), "--transaction-table", url).status in (0, 1, 3)
    several = rmqtx(command, unpacked(PREPARED), unpacked(STATE_TABLE), "--transaction-table", url)
    assert several.status == 2
    assert "is for one store" in several.err
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


@pytest.mark.parametrize("name", ["statetable-recovered-3.1.4", "killed-5.3.3"])
def test_all_open_lists_what_the_broker_checks_again(rmqtx: Run, name: str) -> None:
    """Also what no act can close: the flag `open_after_decision` and this list are one rule."""
    store = unpacked(name)
    audited = rmqtx("audit", store, "--where", "flags ~ open_after_decision", "--format", "jsonl").rows
    found = rmqtx("pending", store, "--all-open", "--format", "jsonl").rows
    listed = {row["transaction_id"] for row in found if "open_after_decision" in row["flags"]}
    assert listed == {row["transaction_id"] for row in audited}
    assert listed or name == "killed-5.3.3"
    others = sum(row["state"] != "PENDING" for row in found)
    hidden = rmqtx("pending", store).err
    assert f"{others} decided or discarded transactions will be checked again" in hidden
