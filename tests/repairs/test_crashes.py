"""Whatever instant a crash comes at, one command brings the store back, and one completes it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from readers.errors import UnreadableFile
from repairs.change_sets import Barrier, ChangeSet, CreateFile, RemoveFile, ReplaceFile, WriteAt
from repairs.execution import execute, resume, undo
from tests.repairs.crash_states import Recorder, State, Unsynced, snapshot

SEGMENT, NEXT = "commitlog/00000000000000000000", "commitlog/00000000000000004096"
CURSORS = "config/consumerOffset.json"

ROLL_OVER = ChangeSet((
    WriteAt(SEGMENT, 3000, b"\xcb" * 1096),
    CreateFile(NEXT, 4096, b"\xda" * 900),
    Barrier(),
    ReplaceFile(CURSORS, b'{"offsetTable":{"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:8}}}'),
    Barrier(),
    CreateFile("abort", 0),
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
CHANGE_SETS = {"roll-over": ROLL_OVER, "scattered": SCATTERED}


def lay_out_store(root: Path) -> Path:
    files = {
        SEGMENT: b"\xaa" * 3000 + bytes(1096), "consumequeue/T/0/00000000000000000000": bytes(200), "lock": b"lock",
        "checkpoint": bytes(range(64)), CURSORS: b'{"offsetTable":{}}', "config/topics.json": b"{}",
    }  # fmt: skip
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    return root


class Scene:
    """A store and an undo file below one directory."""

    def __init__(self, top: Path) -> None:
        self.top, self.store, self.undo_file = top, top / "store", top / "kept" / "undo"
        self.undo_file.parent.mkdir(parents=True, exist_ok=True)

    def content(self) -> dict[str, bytes]:
        return snapshot(self.store)


def recorded(scene: Scene, act: Callable[[Recorder], object]) -> list[State]:
    recorder = Recorder(scene.top)
    act(recorder)
    return list(recorder.states())


def laid_out(states: list[State], top: Path) -> Iterator[tuple[State, Scene]]:
    for state in states:
        shutil.rmtree(top, ignore_errors=True)
        state.lay_out(top)
        yield state, Scene(top)


@pytest.mark.parametrize("name", CHANGE_SETS)
def test_applying_and_undoing_survive_a_crash_at_any_instant(tmp_path: Path, name: str) -> None:
    scene = Scene(tmp_path / "first")
    lay_out_store(scene.store)
    before = scene.content()
    applying = recorded(scene, lambda files: execute(CHANGE_SETS[name], scene.store, scene.undo_file, files=files))
    after = scene.content()
    assert after != before
    undoing = recorded(scene, lambda files: undo(scene.undo_file, files=files))
    assert scene.content() == before
    again = recorded(scene, lambda files: resume(scene.undo_file, files=files))
    assert scene.content() == after
    assert len(applying) + len(undoing) + len(again) > 60
    begun = 0
    for way, wanted in ((undo, before), (resume, after)):
        for state, crashed in laid_out([*applying, *undoing, *again], tmp_path / "crashed"):
            if not crashed.undo_file.exists():
                assert crashed.content() == before, state.what
                with pytest.raises(UnreadableFile):
                    way(crashed.undo_file, crashed.store)
                continue
            begun += crashed.content() not in (before, after)
            way(crashed.undo_file, crashed.store, files=Unsynced())
            assert crashed.content() == wanted, f"{way.__name__} {state.what}"
    assert begun > 30
