"""`rmqtx verify --max-duration`: some of the log in each run, and all of it in some runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqtx.readers.store.store import HALF_TOPIC
from tests.cli.conftest import Run
from tests.forge import damage
from tests.forge.damage import log_files, queue_files, records_in
from tests.forge.stores import contents, copy_of

SEGMENTS = "killed-5.1.4"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return copy_of(SEGMENTS, tmp_path)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state" / "verify.json"


def test_some_runs_cover_the_store(rmqtx: Run, store: Path, state: Path) -> None:
    """With no time at all a run reads the last file and one more: the oldest."""
    before = contents(store)
    count = len(log_files(store))
    known: set[str] = set()
    for number in range(count):
        said = rmqtx("verify", store, "--max-duration", "0s", "--state", state)
        assert said.status == 0, said.err
        assert "start-unforeseen" in said.out
        files = set(json.loads(state.read_text())["files"])
        assert len(files) >= min(number + 2, count - 1)
        assert files >= known
        known = files
    assert {str(file) for file in log_files(store)} == known
    assert contents(store) == before


def test_what_was_checked_longest_ago_comes_first(rmqtx: Run, store: Path, state: Path) -> None:
    files = [str(file) for file in log_files(store)]
    state.parent.mkdir()
    state.write_text(json.dumps({"form": 1, "files": {file: 1000 - number for number, file in enumerate(files)}}))
    rmqtx("verify", store, "--max-duration", "0s", "--state", state)
    after = json.loads(state.read_text())["files"]
    read = [file for file in files if after[file] > 1000]
    assert len(read) < len(files)
    assert max(file for file in files if file not in read) < min(read)  # the later a file, the older its time was


def test_a_partial_run_finds_what_it_reads_and_nothing_else(rmqtx: Run, store: Path, state: Path) -> None:
    files = log_files(store)
    place, _ = records_in(files[3])[2]
    damage.flip_byte(files[3], place + 90)
    found = []
    for _ in files:
        said = rmqtx("verify", store, "--max-duration", "0s", "--state", state, "--format", "jsonl")
        rows = [row for row in said.rows if row["severity"] != "note"]
        assert {row["file"] for row in rows} <= {str(files[3]), *map(str, queue_files(store))}
        found.append(bool(rows))
        assert said.status == int(bool(rows))
    assert found.count(True) == 1


def test_enough_time_is_a_whole_verification(rmqtx: Run, store: Path, state: Path) -> None:
    damage.zero_bytes(queue_files(store, HALF_TOPIC)[0], 40, 20)
    whole = rmqtx("verify", store, "--format", "jsonl")
    timed = rmqtx("verify", store, "--format", "jsonl", "--max-duration", "10m", "--state", state)
    assert timed.out == whole.out != ""
    assert "the whole log" in timed.err


def test_a_state_that_is_none_is_begun_anew(rmqtx: Run, store: Path, state: Path) -> None:
    state.parent.mkdir()
    state.write_text("not ours")
    assert rmqtx("verify", store, "--max-duration", "10m", "--state", state).status == 0
    assert json.loads(state.read_text())["form"] == 1


def test_wrong_questions(rmqtx: Run, store: Path, state: Path) -> None:
    assert rmqtx("verify", store, "--state", state).status == 2
    assert rmqtx("verify", store, "--max-duration", "soon", "--state", state).status == 2
    inside = rmqtx("verify", store, "--max-duration", "1m", "--state", store / "config" / "state.json")
    assert inside.status == 2
    assert "lies inside the store" in inside.err


def test_the_state_is_kept_outside_the_store(
    rmqtx: Run, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RMQTX_STATE_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert rmqtx("verify", store, "--max-duration", "10m").status == 0
    assert len(list((tmp_path / "xdg" / "rmqtx").glob("verify-*.json"))) == 1


@pytest.mark.parametrize(
    ("command", "kept"),
    [(("verify", "--max-duration", "10m"), "verify-*.json"), (("check", "--store"), "check-*.json")],
)
def test_the_state_directory_that_is_set_is_where_all_is_kept(
    rmqtx: Run, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], kept: str
) -> None:
    monkeypatch.setenv("RMQTX_STATE_DIR", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    rmqtx(*command, store)
    assert len(list((tmp_path / "own").glob(kept))) == 1
    assert not (tmp_path / "xdg").exists()
    monkeypatch.setenv("RMQTX_STATE_DIR", str(store / "state"))
    inside = rmqtx(*command, store)
    assert "lies inside the store" in inside.out + inside.err
    assert not (store / "state").exists()
