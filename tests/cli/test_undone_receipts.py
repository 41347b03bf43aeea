"""Receipts of acts on files that were taken back: they must not read as done for ever."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqtx.readers.model.exit_status import DONE, REFUSED_BY_GUARD
from tests.brokers import corpus
from tests.cli.conftest import Run

VERSION = ("--broker-version", "5.3.3")


@pytest.fixture
def store(common: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(common, tmp_path / "store"))


@pytest.fixture
def waiting() -> str:
    rows = corpus.expected("common-5.3.3")
    return next(str(row["transaction_id"]) for row in rows if row["state"] == "PENDING" and not row["flags_at_least"])


def standings(rmqtx: Run, store: Path) -> list[tuple[str, str]]:
    """Outcome and standing of each receipt, newest first."""
    found = rmqtx("receipts", "--recheck", "--store", store, "--format", "jsonl")
    return [(row["outcome"], row["standing"]) for row in found.rows]


def test_a_commit_that_was_undone_and_made_again(rmqtx: Run, store: Path, waiting: str, tmp_path: Path) -> None:
    undo = tmp_path / "one.undo"
    act = ("commit", waiting, "--store", store, "--in-place", "--undo", undo, *VERSION, "--yes")
    assert rmqtx(*act).status == DONE
    assert standings(rmqtx, store) == [("proved", "stands")]
    assert "1 receipt updated in" in rmqtx("undo", undo, "--yes").err
    assert standings(rmqtx, store) == [("proved", "undone")]
    (listed,) = rmqtx("receipts", "--format", "jsonl").rows
    assert [look["standing"] for look in listed["rechecks"]] == ["undone"]
    assert rmqtx("undo", undo, "--yes").status == DONE  # nothing is left to do, nothing more to tell
    assert len(rmqtx("receipts", "--format", "jsonl").rows[0]["rechecks"]) == 1
    assert rmqtx("undo", undo, "--resume", "--yes").status == DONE
    assert standings(rmqtx, store) == [("proved", "stands")]


def test_without_a_word_in_the_journal_the_files_tell(
    rmqtx: Run, store: Path, common: Path, waiting: str, tmp_path: Path
) -> None:
    act = ("rollback", waiting, "--store", store, "--in-place", "--undo", tmp_path / "one.undo", *VERSION, "--yes")
    assert rmqtx(*act).status == DONE
    shutil.rmtree(store)
    shutil.copytree(common, store)
    found = rmqtx("receipts", "--recheck", "--store", store, "--format", "jsonl")
    (row,) = found.rows
    assert row["standing"] == "not_seen"
    assert "undone or cut off, or this is another copy of the store; its state is PENDING" in row["standing_reason"]


def test_a_plan_can_be_applied_again_once_it_was_undone(
    rmqtx: Run, store: Path, waiting: str, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    planned = rmqtx("plan", "commit", waiting, "--store", store, *VERSION, "--reason", "x", "-o", plan)
    assert planned.status == DONE, planned.err

    def apply(name: str) -> str:
        done = rmqtx("apply", plan, "--store", store, "--in-place", "--undo", tmp_path / name, *VERSION, "--yes")
        assert done.status == DONE, done.err
        return done.err

    apply("one.undo")
    assert rmqtx("undo", tmp_path / "one.undo", "--yes").status == DONE
    apply("two.undo")
    assert (tmp_path / "two.undo").exists()
    assert standings(rmqtx, store) == [("proved", "stands"), ("proved", "undone")]
    assert "nothing left to do" in apply("three.undo")


def test_the_journal_of_somebody_else_is_named(
    rmqtx: Run, store: Path, waiting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undo = tmp_path / "one.undo"
    act = ("commit", waiting, "--store", store, "--in-place", "--undo", undo, *VERSION, "--yes")
    assert rmqtx(*act).status == DONE
    monkeypatch.setenv("RMQTX_STATE_DIR", str(tmp_path / "elsewhere"))
    undone = rmqtx("undo", undo, "--yes")
    assert (undone.status, "1 receipt not found in" in undone.err) == (DONE, True)


def test_cursors_that_are_set_leave_a_receipt(rmqtx: Run, store: Path, tmp_path: Path) -> None:
    undo = tmp_path / "cursors.undo"
    place = ("--store", store, "--in-place", "--undo", undo, "--yes")
    assert rmqtx("cursor", "set", "--half", 289, *place).status == REFUSED_BY_GUARD
    assert rmqtx("receipts", "--format", "jsonl").rows == []
    assert rmqtx("cursor", "set", "--op", 0, *place, "--reason", "look again").status == DONE
    (row,) = rmqtx("receipts", "--format", "jsonl").rows
    assert (row["action"], row["transaction_id"], row["reason"]) == ("cursor set", None, "look again")
    assert [dict(one["fields"])["after"] for one in row["requests"]] == ["0"]
    assert standings(rmqtx, store) == [("proved", "stands")]
    assert "SET_CURSOR" in rmqtx("receipts", row["receipt_id"]).out
    assert rmqtx("undo", undo, "--yes").status == DONE
    assert standings(rmqtx, store) == [("proved", "undone")]


def test_a_broker_that_went_on_moves_cursors_that_were_set(rmqtx: Run, store: Path, tmp_path: Path) -> None:
    place = ("--store", store, "--in-place", "--undo", tmp_path / "cursors.undo", "--yes")
    assert rmqtx("cursor", "set", "--op", 0, *place).status == DONE
    again = ("--store", store, "--in-place", "--undo", tmp_path / "again.undo", "--yes")
    assert rmqtx("cursor", "set", "--op", 1, *again).status == DONE
    assert standings(rmqtx, store) == [("proved", "stands"), ("proved", "settled_otherwise")]
