"""`rmqtx apply --in-place` and `rmqtx undo` in processes that are killed at random, or are several at once.

`make test-crashes` kills 200 times, and lets each pair run at once often; the ordinary run does neither.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from collections.abc import Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.model import exit_status
from rmqtx.readers.store.store import BEGUN_MARK, OWN_PREFIX
from tests.repairs.applied import Scene, Told
from tests.repairs.crash_states import Recorder, State
from tests.repairs.test_apply_crashes import memory_directory, require_all_done_once

pytestmark = pytest.mark.skipif(not os.environ.get("RMQTX_CRASHES"), reason="make test-crashes runs it")
NAME = "multipath-5.3.3"
KILLS_COUNT, PAIRS_COUNT = int(os.environ.get("RMQTX_KILLS", "200")), 10
#: Forks of a process that has everything imported and no threads: an act takes a fraction of a second.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.repairs.applied", "rmqtx_cli.commands.settling.apply",
                                  "rmqtx_cli.commands.settling.undo",
                                  "rmqtx.repairs.acts.file_medium", "rmqtx.repairs.acts.carry_out"])


class Begun:
    """The scene as it is before anything is done, to be had again and again."""

    def __init__(self, top: Path) -> None:
        self.scene = Scene(top, NAME)
        self.scene.prepare()
        self.before = self.scene.content()
        recorder = Recorder(top)
        self._state: State = next(recorder.states())

    def again(self) -> Scene:
        for file in [file for file in self.scene.top.rglob("*") if file.is_file() and file.name != "lock"]:
            if str(file.relative_to(self.scene.top)) not in self._state.content:
                file.unlink()
        self._state.lay_out(self.scene.top)
        return self.scene


@pytest.fixture(scope="module")
def begun() -> Iterator[Begun]:
    with memory_directory() as directory:
        yield Begun(directory / NAME)


def command(top: Path, verb: str, options: tuple[Any, ...], results: Any) -> None:
    """What a process does: a method of the scene; its status and what it said come back."""
    told: Told = getattr(Scene(top, NAME), verb)(*options)
    results.put((told.status, told.err))


def started(scene: Scene, verb: str, options: tuple[Any, ...], results: Any) -> ForkServerProcess:
    process = PROCESSES.Process(target=command, args=(scene.top, verb, options, results))
    process.start()
    return process


def seconds_of(scene: Scene, verb: str) -> float:
    results, begin = PROCESSES.SimpleQueue(), time.monotonic()
    started(scene, verb, (), results).join()
    assert results.get()[0] == exit_status.DONE
    return time.monotonic() - begin


@pytest.mark.parametrize("verb", ["apply", "undo"])
def test_killed_at_random(begun: Begun, verb: str) -> None:
    scene = begun.again()
    random_ = random.Random(6)
    if verb == "undo":
        assert scene.apply().status == exit_status.DONE
    seconds = seconds_of(scene, verb)
    found = {"nothing": 0, "half": 0, "all": 0}
    for number in range(KILLS_COUNT // 2):
        scene = begun.again()
        if verb == "undo":
            assert scene.apply().status == exit_status.DONE
        after = scene.content()
        results = PROCESSES.SimpleQueue()
        process = started(scene, verb, (), results)
        if number % 2:
            time.sleep(random_.uniform(seconds / 4, seconds))
        else:  # it changes the store for some milliseconds only
            while process.is_alive() and not (scene.store / BEGUN_MARK).exists():
                pass
            time.sleep(random_.uniform(0, 0.01))
        process.kill()
        process.join()
        now = scene.content()
        found["nothing" if now == (begun.before if verb == "apply" else after) else
              "half" if any(Path(path).name.startswith(OWN_PREFIX) for path in now) else "all"] += 1
        if not scene.undo_file.exists():
            assert now == begun.before
            assert scene.apply().status == exit_status.DONE
        elif number % 4 < 2:
            assert scene.undo("--resume").status == exit_status.DONE
        else:
            assert (scene.undo().status, scene.content() == begun.before) == (exit_status.DONE, True)
            told = scene.apply(scene.undo_file.with_name("another"))
            assert told.status == exit_status.DONE, told.err
        require_all_done_once(scene)
    print(f"{verb}: killed {KILLS_COUNT // 2} times within {seconds:.2f} s: {found}")
    assert found["half"] or KILLS_COUNT < 100


ANOTHER = "another"
#: Several `undo` at once are in test_execution_processes.py.
PAIRS = [("apply", "apply"), ("apply", "resume"), ("apply", "undo")]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_two_at_once(begun: Begun, one: str, other: str) -> None:
    counts: dict[tuple[int, ...], int] = {}
    for _ in range(PAIRS_COUNT):
        scene = begun.again()
        if (one, other) != ("apply", "apply"):
            assert scene.apply().status == exit_status.DONE
        results = PROCESSES.SimpleQueue()
        processes = [started(scene, *_asked(scene, verb, which), results) for which, verb in enumerate((one, other))]
        for process in processes:
            process.join()
        told = [results.get() for _ in processes]
        statuses = tuple(sorted(status for status, _ in told))
        counts[statuses] = counts.get(statuses, 0) + 1
        for status, err in told:
            assert status in (exit_status.DONE, exit_status.STORE_IN_USE, exit_status.STALE_PLAN,
                              exit_status.REFUSED_BY_GUARD, exit_status.USAGE, exit_status.UNREADABLE), err
            assert "Traceback" not in err
        assert not any(Path(path).name.startswith(OWN_PREFIX) for path in scene.content()), "nothing is half done"
        rows = scene.rows()
        assert all(len(row["final_records"]) <= 1 for case, row in rows.items() if case.startswith("pending")), told
        if scene.content() != begun.before:
            require_all_done_once(scene)
    print(f"{one} and {other}: {counts}")


def _asked(scene: Scene, verb: str, which: int) -> tuple[str, tuple[Any, ...]]:
    if verb == "apply":
        return "apply", (scene.undo_file.with_name(f"{ANOTHER}{which}"),)
    return "undo", ("--resume",) if verb == "resume" else ()
