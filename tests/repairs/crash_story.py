"""A change set applied, undone and applied again, and what undo and resume make of every crash on the way."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqtx.readers.model.errors import UnreadableFile
from rmqtx.repairs.changes.change_sets import ChangeSet
from rmqtx.repairs.changes.execution import execute, resume, undo
from tests.repairs.crash_states import Recorder, State, Unsynced, snapshot
from tests.repairs.small_store import lay_out_store


class Scene:
    """A store and an undo file below one directory."""

    def __init__(self, top: Path) -> None:
        self.top, self.store, self.undo_file = top, top / "store", top / "kept" / "undo"
        self.undo_file.parent.mkdir(parents=True, exist_ok=True)

    def content(self) -> dict[str, bytes]:
        """The store's files."""
        return snapshot(self.store)


class Story:
    """Applied, undone, applied again: the crash states of each, and the content before and after."""

    def __init__(self, top: Path, change_set: ChangeSet, lay_out: Callable[[Path], object] = lay_out_store) -> None:
        scene = Scene(top)
        lay_out(scene.store)
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
    """Every state that a crash of an act can leave."""
    recorder = Recorder(scene.top)
    act(recorder)
    states = list(recorder.states())
    assert recorder.replayed() == snapshot(scene.top), "nothing is changed but through what is recorded"
    return states


def laid_out(states: list[State], top: Path) -> Iterator[tuple[State, Scene]]:
    """States one after the other, each as files below a directory."""
    for state in states:
        shutil.rmtree(top, ignore_errors=True)
        state.lay_out(top)
        yield state, Scene(top)
