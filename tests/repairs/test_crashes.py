"""Whatever instant a crash comes at, one command brings the store back, and one completes it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqtx.readers.model.errors import StoreChanged
from rmqtx.repairs.changes.execution import resume, undo
from tests.repairs.crash_states import State, Unsynced
from tests.repairs.crash_story import Story, laid_out, recorded
from tests.repairs.small_store import CHANGE_SETS, CURSORS, NEXT, ROLL_OVER, SEGMENT
from tests.representatives import rest_is_slow


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory that no disk slows down, where there is one: losses are replayed, nothing has to survive."""
    shared = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as directory:
        yield Path(directory)


@pytest.fixture(autouse=True)
def _no_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other process has a lock open: tests/repairs/test_store_lock.py tests how each of these acts looks for one."""
    monkeypatch.setattr("rmqtx.repairs.changes.store_lock._may_be_open_elsewhere", lambda identity: False)


@pytest.fixture(autouse=True)
def _disks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "on another disk" in request.node.name:
        monkeypatch.setattr("rmqtx.repairs.changes.apply_edits._is_same_disk", lambda one, other: False)


@pytest.mark.parametrize("name", CHANGE_SETS)
def test_applying_and_undoing_survive_a_crash_at_any_instant(memory: Path, name: str) -> None:
    story = Story(memory / "first", CHANGE_SETS[name])
    assert len(story.states) > 50
    assert story.check(story.states, memory / "crashed") > 30


#: Of the crashes that come while a crash is mended, so many are left out between two; `make test-crashes` takes all.
STRIDE = 1 if os.environ.get("RMQTX_CRASHES") else 40


@pytest.mark.parametrize("name", rest_is_slow(CHANGE_SETS, quick=1))
def test_a_crash_while_a_crash_is_mended_is_no_worse(memory: Path, name: str) -> None:
    story = Story(memory / "first", CHANGE_SETS[name])
    second: list[State] = []
    for way in (undo, resume):
        for _, crashed in laid_out(story.states, memory / "crashed"):
            if crashed.undo_file.exists():
                second += recorded(crashed, lambda files: way(crashed.undo_file, crashed.store, files=files))  # noqa: B023
    chosen = second[::STRIDE]
    assert len(chosen) > 20
    assert story.check(chosen, memory / "again") > 15
    print(f"{len(story.states)} states after one crash, {len(chosen)} of {len(second)} after two")


def test_what_stands_before_a_barrier_is_there_before_anything_behind_it(memory: Path) -> None:
    story = Story(memory / "first", ROLL_OVER)
    without_abort = [state for state in story.states if "store/abort" not in state.content]
    assert 5 < len(without_abort) < len(story.states)
    for state in without_abort:  # what makes a broker look at the log comes first, and goes last
        assert all(state.content.get(f"store/{path}") == story.before.get(path) for path in (SEGMENT, NEXT)), state.what
    for state in story.states:
        if b"HALF_TOPIC" in state.content.get(f"store/{CURSORS}", b""):
            for path in (SEGMENT, NEXT):
                assert state.content[f"store/{path}"] == story.after[path], state.what


@pytest.mark.parametrize("path", [SEGMENT, NEXT, CURSORS])
def test_what_no_crash_can_leave_is_refused(memory: Path, path: str) -> None:
    story = Story(memory / "first", ROLL_OVER)
    tried = 0
    for _, crashed in laid_out(story.states, memory / "crashed"):
        file = crashed.store / path
        if not crashed.undo_file.exists() or not file.exists():
            continue
        tried += 1
        data = bytearray(file.read_bytes())
        data[-1] ^= 0x55
        file.write_bytes(data)
        foreign = crashed.content()
        for way in (undo, resume):
            with pytest.raises(StoreChanged, match="has changed"):
                way(crashed.undo_file, crashed.store, files=Unsynced())
        assert crashed.content() == foreign
    assert tried > 10
