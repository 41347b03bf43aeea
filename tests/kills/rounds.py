"""One round: a process that acts is killed; what it left is judged, mended, and held against the undisturbed act."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from readers.store.store import BEGUN_MARK
from repairs.changes.undo_files import APPLIED, read_undo_file
from rmqtx_cli.words import exit_status
from tests.kills.acts import UNDO_FILE, Case, Ground, candidates

#: How the moment is found: by the clock over the whole command; by the clock from the first sign on that files are
#: changed; at a call of the system that changes a file.
MOMENTS = ("any time", "while it writes", "at a call")
PARTS = ("before", "half", "after")
#: Statuses of a refusal: by a guard, of what is used or begun, of an undo file that is there.
REFUSED = (exit_status.REFUSED_BY_GUARD, exit_status.STORE_IN_USE, exit_status.USAGE, exit_status.STALE_PLAN)
_LONGEST_SECONDS = 300


@dataclass(frozen=True)
class Left:
    """What a kill left: `old`, `half`, `done`; how it was found, and how it was mended."""

    found: str
    moment: str
    mended: str


def prepare(ground: Ground, pristine: Path, design: str) -> Case | None:
    """Carry an act out undisturbed, in a process, and take it back; None where no transaction of the store takes it."""
    for names in candidates(ground.name, ground.act):
        ground.names = names
        ground.lay_out(pristine)
        before, rows_before = ground.content(), ground.rows(ground.store)
        if ground.act == "apply" and not ground.plan():
            continue
        counts, begin = ground.top / "counts", time.monotonic()
        process = _started(ground, _victim(0, "after", counts))
        _, err = process.communicate(timeout=_LONGEST_SECONDS)
        seconds = time.monotonic() - begin
        if process.returncode == exit_status.DONE:
            break
        if process.returncode not in (exit_status.REFUSED_BY_GUARD, exit_status.SOME_REFUSED):
            raise AssertionError(f"{ground.name} {ground.act}: {process.returncode} {err}")
    else:
        return None
    rows_after, wrong_after = ground.rows(), ground.wrong()
    assert rows_after != rows_before or ground.act == "cursor set", ground
    if not ground.is_copy:
        told = ground.undo()
        assert told.status == exit_status.DONE, told.err
    assert ground.content() == before, "an act that is taken back leaves the bytes as they were"
    return Case(ground, design, before, rows_before, rows_after, wrong_after, ground.is_copy, seconds,
                int(counts.read_text()))  # fmt: skip


def killed(case: Case, pristine: Path, moment: str, chance: random.Random) -> Left:
    """A round. Raises AssertionError where the store is anything but the old one, the new one, or one that is refused
    until it is mended.
    """
    ground = case.ground
    ground.lay_out(pristine)
    if ground.act == "apply":
        assert ground.plan()
    _kill(case, moment, chance)
    if ground.is_copy:
        return _mended_copy(case, moment)
    return _mended(case, moment, chance)


# ---- the kill


def _victim(call: int, part: str, counts: Path) -> list[str]:
    return [sys.executable, "-m", "tests.kills.victim", str(call), part, str(counts)]


def _started(ground: Ground, program: list[str]) -> subprocess.Popen[str]:
    environment = {**os.environ, **ground.environment}
    return subprocess.Popen([*program, *ground.words()], env=environment, stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # fmt: skip


def _kill(case: Case, moment: str, chance: random.Random) -> None:
    ground = case.ground
    if moment == "at a call":
        program = _victim(chance.randint(1, case.calls), chance.choice(PARTS), ground.top / "counts")
        process = _started(ground, program)
        process.communicate(timeout=_LONGEST_SECONDS)
        return
    process = _started(ground, [str(Path(sys.executable).with_name("rmqtx"))])
    if moment == "any time":
        _sleep(process, chance.uniform(0, case.seconds))
    else:
        first = ground.top / "copy.unfinished" if ground.is_copy else ground.undo_file.parent
        while process.poll() is None and not (first.exists() and (ground.is_copy or any(first.iterdir()))):
            time.sleep(0.0005)
        _sleep(process, chance.uniform(0, 0.1))
    process.kill()
    process.communicate()


def _sleep(process: subprocess.Popen[str], seconds: float) -> None:
    end = time.monotonic() + seconds
    while process.poll() is None and (left := end - time.monotonic()) > 0:
        time.sleep(min(left, 0.05))


# ---- what is left


def _mended(case: Case, moment: str, chance: random.Random) -> Left:
    ground, again = case.ground, case.ground.top / "kept" / "another"
    now, has_undo_file = ground.content(), ground.undo_file.exists()
    bare = {path: data for path, data in now.items() if path != BEGUN_MARK}
    if bare == case.before:
        found = "old"  # with a mark that nothing follows yet, whole or torn, perhaps
    else:
        found = "half" if ground.is_begun and read_undo_file(ground.undo_file).state != APPLIED else "done"
    if found == "half":
        for what, status in _tried(ground):
            assert status in REFUSED, (what, status, "a store that is half of something is acted on")
            assert ground.content() == now, what
    if found == "old" and not has_undo_file:
        mended, undo_file = "the command again", ground.undo_file
        _must(ground.run(*ground.words()).status, "the command again")
    elif found == "done":
        assert has_undo_file, "a store is changed and nothing leads back"
        mended, undo_file = "nothing", ground.undo_file
        if ground.is_begun:  # its removal was not reached
            mended = "undo --resume"
            _must(ground.undo(None, "--resume").status, mended)
    elif chance.random() < 0.5:
        mended, undo_file = "undo --resume", ground.undo_file
        _must(ground.undo(None, "--resume").status, mended)
    else:
        mended, undo_file = "undo, and again", again
        _must(ground.undo().status, "undo")
        assert ground.content() == case.before, "undo gives the old bytes back"
        _must(ground.run(*ground.words(again)).status, "the command again")
    assert not ground.is_begun
    _require_done(case)
    _must(ground.undo(undo_file).status, "undo of what was mended")
    assert ground.content() == case.before, "undo gives the old bytes back"
    return Left(found, moment, mended)


def _tried(ground: Ground) -> Iterator[tuple[str, int]]:
    """What acts on a store, and the status that it ended with, on a store that is half of something."""
    kept = ground.top / "kept"
    yield "the command again", ground.run(*ground.words()).status
    yield "with another undo file", ground.run(*ground.words(kept / "other")).status
    names = ground.names or tuple(row for row in ground.rows(ground.store))[:1]
    to = Ground(ground.top, ground.name, "commit", names[:1], is_copy=True)
    yield "commit --to", ground.run(*to.words()).status
    assert not (ground.top / "copy").exists()
    rebuilt = ("rebuild", ground.store, "--in-place", "--undo", kept / "rebuilt", "--yes")
    yield "rebuild --in-place", ground.run(*rebuilt, *ground.broker).status


def _mended_copy(case: Case, moment: str) -> Left:
    ground = case.ground
    assert ground.content() == case.before, "the store that is copied stays as it was"
    unfinished = ground.top / "copy.unfinished"
    mended = "nothing"
    found = "done" if ground.changed.exists() else "half" if unfinished.exists() else "old"
    if found != "done":
        mended = "the command again"
        told = ground.run(*ground.words())
        if found == "half":
            assert told.status in REFUSED, told
            assert "unfinished" in told.err, told.err
            for file in sorted(unfinished.rglob("*"), reverse=True):
                file.rmdir() if file.is_dir() and not file.is_symlink() else file.unlink()
            unfinished.rmdir()
            mended = "removed as it is told, and again"
            told = ground.run(*ground.words())
        _must(told.status, mended)
    _require_done(case)
    assert ground.content() == case.before
    return Left(found, moment, mended)


def _require_done(case: Case) -> None:
    assert case.ground.rows() == case.rows_after, "other states than after the undisturbed act"
    wrong = case.ground.wrong() - case.wrong_after
    assert wrong == Counter(), f"verify finds more than after the undisturbed act: {wrong}"


def _must(status: int, what: str) -> None:
    assert status == exit_status.DONE, f"{what}: {status}"


__all__ = ["MOMENTS", "UNDO_FILE", "Left", "killed", "prepare"]
