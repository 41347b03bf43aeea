"""Whatever instant a crash comes at, one command brings the store back, and one completes it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from readers.errors import StoreChanged, UnreadableFile
from repairs.change_sets import Barrier, ChangeSet, CreateFile, RemoveFile, ReplaceFile, WriteAt
from repairs.execution import execute, resume, undo
from tests.repairs.crash_states import Recorder, State, Unsynced, snapshot

SEGMENT, NEXT = "commitlog/00000000000000000000", "commitlog/00000000000000004096"
CURSORS = "config/consumerOffset.json"

ROLL_OVER = ChangeSet((
    CreateFile("abort", 0),
    Barrier(),
    WriteAt(SEGMENT, 3000, b"\xcb" * 1096),
    CreateFile(NEXT, 4096, b"\xda" * 900),
    Barrier(),
    ReplaceFile(CURSORS, b'{"offsetTable":{"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:8}}}'),
))  # fmt: skip
SCATTERED = ChangeSet((
    WriteAt(SEGMENT, 100, b"a" * 700),
    WriteAt(SEGMENT, 2900, b"b" * 30),
    WriteAt("consumequeue/T/0/00000000000000000000", 40, b"\1" * 20),
    RemoveFile("checkpoint"),
    CreateFile("config/new.json", 3, b"{}\n"),
    Barrier(),
    ReplaceFile(CURSORS + ".bak", b"{}"),
    RemoveFile(CURSORS),
))  # fmt: skip
#: Files of a directory that is a file system of its own cannot be made elsewhere and renamed.
ON_ANOTHER_DISK = ChangeSet((
    WriteAt(SEGMENT, 3000, b"\xcb" * 1096), CreateFile(NEXT, 4096, b"\xda" * 900),
    RemoveFile("consumequeue/T/0/00000000000000000000"), Barrier(), CreateFile("abort", 0),
))  # fmt: skip
CHANGE_SETS = {"roll-over": ROLL_OVER, "scattered": SCATTERED, "on another disk": ON_ANOTHER_DISK}


def lay_out_store(root: Path) -> Path:
    files = {
        SEGMENT: b"\xaa" * 3000 + bytes(1096), "consumequeue/T/0/00000000000000000000": bytes(200), "lock": b"lock",
        "checkpoint": bytes(range(64)), CURSORS: b'{"offsetTable":{}}', "config/topics.json": b"{}",
    }  # fmt: skip
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    return root


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory that no disk slows down, where there is one: losses are replayed, nothing has to survive."""
    shared = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as directory:
        yield Path(directory)


@pytest.fixture(autouse=True)
def _disks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "on another disk" in request.node.name:
        monkeypatch.setattr("repairs.making._is_same_disk", lambda one, other: False)


class Scene:
    """A store and an undo file below one directory."""

    def __init__(self, top: Path) -> None:
        self.top, self.store, self.undo_file = top, top / "store", top / "kept" / "undo"
        self.undo_file.parent.mkdir(parents=True, exist_ok=True)

    def content(self) -> dict[str, bytes]:
        return snapshot(self.store)


class Story:
    """Applied, undone, applied again: the crash states of each, and the content before and after."""

    def __init__(self, top: Path, change_set: ChangeSet) -> None:
        scene = Scene(top)
        lay_out_store(scene.store)
        self.before = scene.content()
        self.applying = recorded(scene, lambda files: execute(change_set, scene.store, scene.undo_file, files=files))
        self.after = scene.content()
        assert self.after != self.before
        self.undoing = recorded(scene, lambda files: undo(scene.undo_file, files=files))
        assert scene.content() == self.before
        self.again = recorded(scene, lambda files: resume(scene.undo_file, files=files))
        assert scene.content() == self.after
        self.states = [*self.applying, *self.undoing, *self.again]

    def check(self, states: list[State], top: Path) -> int:
        """Undo and resume from each of some states; gives how many were neither before nor after."""
        begun = 0
        for way, wanted in ((undo, self.before), (resume, self.after)):
            for state, crashed in laid_out(states, top):
                if not crashed.undo_file.exists():
                    assert crashed.content() == self.before, state.what
                    with pytest.raises(UnreadableFile):
                        way(crashed.undo_file, crashed.store)
                    continue
                begun += crashed.content() not in (self.before, self.after)
                way(crashed.undo_file, crashed.store, files=Unsynced())
                assert crashed.content() == wanted, f"{way.__name__} {state.what}"
        return begun


def recorded(scene: Scene, act: Callable[[Recorder], object]) -> list[State]:
    recorder = Recorder(scene.top)
    act(recorder)
    states = list(recorder.states())
    assert recorder.replayed() == snapshot(scene.top), "nothing is changed but through what is recorded"
    return states


def laid_out(states: list[State], top: Path) -> Iterator[tuple[State, Scene]]:
    for state in states:
        shutil.rmtree(top, ignore_errors=True)
        state.lay_out(top)
        yield state, Scene(top)


@pytest.mark.parametrize("name", CHANGE_SETS)
def test_applying_and_undoing_survive_a_crash_at_any_instant(memory: Path, name: str) -> None:
    story = Story(memory / "first", CHANGE_SETS[name])
    assert len(story.states) > 50
    assert story.check(story.states, memory / "crashed") > 30


#: Of the crashes that come while a crash is mended, so many are left out between two; `make test-crashes` takes all.
STRIDE = 1 if os.environ.get("RMQTX_CRASHES") else 40


@pytest.mark.parametrize("name", CHANGE_SETS)
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
            with pytest.raises(StoreChanged, match="has another content"):
                way(crashed.undo_file, crashed.store, files=Unsynced())
        assert crashed.content() == foreign
    assert tried > 10
