"""`rmqtx undo`: what it says, and what its exit status means."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtx.readers.model import exit_status
from rmqtx.repairs.changes.change_sets import Barrier, ChangeSet, CreateFile, ReplaceFile, WriteAt
from rmqtx.repairs.changes.execution import execute
from tests.cli.conftest import Run, Terminal
from tests.cli.test_read_only import fingerprint
from tests.repairs.broker_lock import locked_by_a_broker
from tests.repairs.crash_states import snapshot

SEGMENT = "commitlog/00000000000000000000"
CHANGES = ChangeSet((
    WriteAt(SEGMENT, 260000, b"record"), Barrier(),
    ReplaceFile("config/consumerOffset.json", b"{}"), CreateFile("abort", 0),
))


@pytest.fixture
def store(common: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(common, tmp_path / "store"))


@pytest.fixture
def undo_file(store: Path, tmp_path: Path) -> Path:
    execute(CHANGES, store, tmp_path / "before.undo", about=["commit 7F \x1b[31m"])
    return tmp_path / "before.undo"


def test_it_takes_back_and_makes_again(rmqtx: Run, common: Path, store: Path, undo_file: Path) -> None:
    changed, untouched = snapshot(store), fingerprint(store)
    looked = rmqtx("undo", undo_file, "--dry-run", "--format", "json")
    assert looked.status == exit_status.DONE
    assert [(row["path"], row["change"], row["position_bytes"]) for row in json.loads(looked.out)] == [
        (SEGMENT, "write", 260000), ("config/consumerOffset.json", "replace", None), ("abort", "create", None)
    ]
    assert "3 changes would be undone" in looked.err
    assert "commit 7F \\x1b[31m" in looked.err
    assert fingerprint(store) == untouched
    done = rmqtx("undo", undo_file, "--yes")
    assert done.status == exit_status.DONE
    assert "restored; to redo the changes" in done.err
    assert snapshot(store) == snapshot(common)
    again = rmqtx("undo", undo_file, "--yes")
    assert (again.status, "nothing left to do" in again.err) == (exit_status.DONE, True)
    assert rmqtx("undo", undo_file, "--resume", "-y").status == exit_status.DONE
    assert snapshot(store) == changed


def test_nobody_is_asked_where_nobody_is(
    rmqtx: Run, store: Path, undo_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = snapshot(store)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert rmqtx("undo", undo_file).status == exit_status.USAGE
    assert snapshot(store) == changed


@pytest.mark.parametrize(("answer", "status"), [("y\n", exit_status.DONE), ("\n", exit_status.REFUSED_BY_GUARD)])
def test_it_asks(
    rmqtx: Run, store: Path, common: Path, undo_file: Path, monkeypatch: pytest.MonkeyPatch, answer: str, status: int
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    result = rmqtx("undo", undo_file)
    assert result.status == status
    assert f"undo 3 changes in {store}? [y/N]" in result.err
    assert (snapshot(store) == snapshot(common)) == (status == exit_status.DONE)


def test_a_store_that_was_used_since_is_stale(rmqtx: Run, store: Path, undo_file: Path) -> None:
    (store / "abort").unlink()
    changed = snapshot(store)
    for more in (["--yes"], ["--dry-run"], ["--resume", "--yes"], ["--ignore-times", "--yes"]):
        result = rmqtx("undo", undo_file, *more)
        assert result.status == exit_status.STALE_PLAN
        assert "abort is missing" in result.err
    assert snapshot(store) == changed


def test_a_store_in_use_is_refused(rmqtx: Run, store: Path, undo_file: Path) -> None:
    with locked_by_a_broker(store):
        results = [rmqtx("undo", undo_file, more) for more in ("--yes", "--dry-run")]
    for result in results:
        assert result.status == exit_status.STORE_IN_USE
        assert "holds its lock - stop its broker first" in result.err
        assert result.err.count("\n") == 1


def test_a_moved_store_is_named(rmqtx: Run, common: Path, store: Path, undo_file: Path) -> None:
    moved = store.rename(store.with_name("moved"))
    assert rmqtx("undo", undo_file, "--yes").status == exit_status.UNREADABLE
    assert rmqtx("undo", undo_file, "--yes", "--store", moved).status == exit_status.DONE
    assert snapshot(moved) == snapshot(common)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda data: b"{}", "is not an undo file"), (lambda data: data[: len(data) // 2], "is damaged or was changed"),
        (lambda data: data.replace(b"undo file 2", b"undo file 1"), "of another version"), (None, "does not exist"),
    ],
)
def test_what_is_no_undo_file_is_one_line(
    rmqtx: Run, undo_file: Path, spoil: Callable[[bytes], bytes] | None, why: str
) -> None:
    if spoil is None:
        undo_file.unlink()
    else:
        undo_file.write_bytes(spoil(undo_file.read_bytes()))
    result = rmqtx("undo", undo_file, "--yes")
    assert result.status == exit_status.UNREADABLE
    assert why in result.err
    assert result.err.count("\n") == 1


def test_changes_on_top_of_each_other_are_redone_in_order(rmqtx: Run, store: Path, tmp_path: Path) -> None:
    """The first redo writes `abort` again: for the second undo file only its time differs."""
    rows = rmqtx("pending", store, "--format", "jsonl").rows
    ids = [row["transaction_id"] for row in rows if "no_room" not in row["flags"]][:2]
    undo_files = [tmp_path / f"{number}.undo" for number in (1, 2)]
    for identity, file in zip(ids, undo_files, strict=True):
        words = ("--store", store, "--in-place", "--undo", file, "--broker-version", "5.3.3", "--reason", "x", "--yes")
        assert rmqtx("rollback", identity, *words).status == exit_status.DONE
    changed = snapshot(store)
    for file in reversed(undo_files):
        assert rmqtx("undo", file, "--yes").status == exit_status.DONE
    assert rmqtx("undo", undo_files[0], "--resume", "--yes").status == exit_status.DONE
    refused = rmqtx("undo", undo_files[1], "--resume", "--yes")
    assert refused.status == exit_status.STALE_PLAN
    assert "add --ignore-times" in refused.err
    assert rmqtx("undo", undo_files[1], "--resume", "--yes", "--ignore-times").status == exit_status.DONE
    assert snapshot(store) == changed
