"""Whatever instant a crash of `rmqtx apply --in-place` comes at: one command brings the store back, one completes it,
and `apply` does nothing twice. All actions, on stores that real brokers wrote, over the end of a file of the log.

`make test-crashes` takes every state of every store, and has brokers start on the stores that crashes left.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqtx.readers.model import exit_status
from rmqtx.readers.store.store import BEGUN_MARK, open_store
from tests.repairs.applied import ACTIONS, Scene, Story
from tests.repairs.crash_states import State

IS_WHOLE = bool(os.environ.get("RMQTX_CRASHES"))
STORES = [f"{kind}-{version}" for kind in ("multipath", "killed") for version in ("4.9.7", "5.1.4", "5.3.3", "5.5.0")]
#: Where what is appended reaches the end of a file of the log, and goes on in a new one.
ROLLING_OVER = ("multipath-5.1.4", "killed-4.9.7")
#: The states that transactions are in afterwards.
WANTED = {"commit": "COMMITTED", "rollback": "ROLLED_BACK", "discard": "ROLLED_BACK", "resume": "PENDING"}

every_store = pytest.mark.parametrize("name", STORES if IS_WHOLE else ["multipath-5.1.4"])


@contextmanager
def memory_directory() -> Iterator[Path]:
    """A directory that no disk slows down, where there is one: losses are replayed, nothing has to survive."""
    shared = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def stories() -> Iterator[dict[str, Story]]:
    """Made once for all tests."""
    with memory_directory() as directory:
        yield Stories(directory)


class Stories(dict[str, Story]):
    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory

    def __missing__(self, name: str) -> Story:
        self[name] = Story(self._directory / name, name)
        return self[name]


def require_all_done_once(scene: Scene) -> None:
    rows = scene.rows()
    for case, action in ACTIONS.items():
        row = rows[case]
        assert (row["state"], len(row["final_records"])) == (WANTED[action], int(action == "commit")), case
        assert row["advice"] == ("wait" if action == "resume" else "none"), case


@every_store
def test_one_command_brings_it_back_and_one_completes_it(stories: dict[str, Story], name: str) -> None:
    story = stories[name]
    changed = {path for path, data in story.after.items() if story.before.get(path) != data}
    files = len([path for path in changed if path.startswith("commitlog")])
    assert files == (2 if name in ROLLING_OVER else 1)
    begun = tried = 0
    for way, wanted in (((), story.before), (("--resume",), story.after)):
        for state, scene in story.laid_out(chosen(story, 1)):
            is_begun = scene.undo_file.exists()
            begun += scene.content() not in (story.before, story.after)
            tried += 1
            told = scene.undo(*way)
            if is_begun:
                assert (told.status, scene.content() == wanted) == (exit_status.DONE, True), (state.what, told.err)
            else:
                assert told.status == exit_status.UNREADABLE
                assert scene.content() == story.before, state.what
    assert begun > 1
    print(f"{name}: {tried} times, {begun} of them half changed")


@every_store
def test_the_same_command_does_nothing_twice(stories: dict[str, Story], name: str) -> None:
    story = stories[name]
    counts = [0, 0, 0]
    for state, scene in story.laid_out(chosen(story, 3)):
        is_there, before = scene.undo_file.exists(), scene.content()
        says_so = "half-changed" in {finding.code for finding in open_store(scene.store).findings}
        assert says_so == (BEGUN_MARK in before), state.what
        told = scene.apply()
        if not is_there:  # nothing was done yet
            assert told.status == exit_status.DONE, (state.what, told.err)
            require_all_done_once(scene)
            counts[0] += 1
            continue
        is_through = "the changes are complete" in told.err or "the changes are undone" in told.err
        counts[1 + is_through] += 1
        assert told.status == (exit_status.USAGE if is_through else exit_status.REFUSED_BY_GUARD), (state.what, told)
        assert str(scene.undo_file) in told.err.splitlines()[-1]
        assert is_through or f"rmqtx undo {scene.undo_file}" in told.err, told.err
        assert is_through or "to complete them" in told.err
        assert scene.content() == before
        before.pop(BEGUN_MARK, None)  # its removal was not on the disk yet
        assert not is_through or before == (story.after if "are complete" in told.err else story.before), state.what
    assert all(counts[:2])


@every_store
def test_with_another_undo_file_it_does_nothing_twice_either(stories: dict[str, Story], name: str) -> None:
    story = stories[name]
    refused = 0
    for state, scene in story.laid_out(half_way(story)[:: 1 if IS_WHOLE else 6] + story.applying[-1:]):
        before = scene.content()
        told = scene.apply(scene.undo_file.with_name("another"))
        if told.status == exit_status.DONE:
            require_all_done_once(scene)
            before.pop(BEGUN_MARK, None)  # torn, before anything was changed
            assert before in (story.before, story.after), state.what
            continue
        refused += 1
        assert told.status == exit_status.REFUSED_BY_GUARD, (state.what, told.err)
        assert f"rmqtx undo {scene.undo_file}" in told.err
        assert scene.content() == before
        assert scene.undo("--resume").status == exit_status.DONE
        told = scene.apply(scene.undo_file.with_name("another"))
        assert (told.status, "nothing left to do" in told.err) == (exit_status.DONE, True), told.err
        assert scene.content() == story.after
    assert refused


def chosen(story: Story, stride: int) -> list[State]:
    """One of so many states; in the ordinary run a few, from before, half way and after."""
    return story.states[::stride] if IS_WHOLE else [story.applying[0], *half_way(story)[::8], *story.states[-2:]]


def half_way(story: Story) -> list[State]:
    """States of applying with a store that is neither as before nor as after, or says so."""
    ends = ({f"store/{path}": data for path, data in one.items()} for one in (story.before, story.after))
    known = [set(end.items()) for end in ends]
    return [
        state for state in story.applying
        if {(path, data) for path, data in state.content.items() if path.startswith("store/")} not in known
    ]


@pytest.mark.skipif(not IS_WHOLE, reason="make test-crashes runs it")
@pytest.mark.parametrize("name", STORES)
def test_cursors_that_are_set_survive_a_crash_too(tmp_path: Path, name: str) -> None:
    story = Story(tmp_path / "first", name, Scene.set_cursors)
    changed = {path for path, data in story.after.items() if story.before.get(path) != data}
    assert changed == {f"config/consumerOffset.json{end}" for end in ("", ".bak")}
    for way, wanted in (((), story.before), (("--resume",), story.after)):
        for state, scene in story.laid_out(chosen(story, 1)):
            if scene.undo_file.exists():
                assert scene.undo(*way).status == exit_status.DONE, state.what
                assert scene.content() == wanted, state.what
            else:
                assert scene.content() == story.before, state.what
