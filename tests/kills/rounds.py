"""One round: an acting process is killed; the store is examined, repaired, and compared with the undisturbed act."""

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

from rmqtx.readers.model import exit_status
from rmqtx.readers.store.store import BEGUN_MARK
from rmqtx.repairs.changes.undo_files import APPLIED, read_undo_file
from tests.kills.acts import UNDO_FILE, Case, Workplace, candidates

#: When the process is killed: at a random time; at a random time after the first change of a file; at a system call
#: that changes a file.
MOMENTS = ("any time", "while it writes", "at a call")
PARTS = ("before", "half", "after")
#: Statuses of refusals: by a guard or because the store is half changed; in use; an undo file that exists; a store that
#: is not as it was.
REFUSED = (exit_status.REFUSED_BY_GUARD, exit_status.STORE_IN_USE, exit_status.USAGE, exit_status.STALE_PLAN)
_LONGEST_SECONDS = 300


@dataclass(frozen=True)
class Left:
    """The store after a kill (`old`, `half` or `done`), the moment of the kill, and what repaired the store."""

    found: str
    moment: str
    repair: str


def prepare(workplace: Workplace, pristine: Path, design: str) -> Case | None:
    """Carry out an act in a process without a kill, and undo it; None if no transaction of the store allows the act."""
    for names in candidates(workplace.name, workplace.act):
        workplace.names = names
        workplace.lay_out(pristine)
        before, rows_before = workplace.content(), workplace.rows(workplace.store)
        if workplace.act == "apply" and not workplace.plan():
            continue
        counts, begin = workplace.top / "counts", time.monotonic()
        process = _started(workplace, _victim(0, "after", counts))
        _, err = process.communicate(timeout=_LONGEST_SECONDS)
        seconds = time.monotonic() - begin
        if process.returncode == exit_status.DONE:
            break
        if process.returncode not in (exit_status.REFUSED_BY_GUARD, exit_status.SOME_REFUSED):
            raise AssertionError(f"{workplace.name} {workplace.act}: {process.returncode} {err}")
    else:
        return None
    rows_after, wrong_after = workplace.rows(), workplace.wrong()
    assert rows_after != rows_before or workplace.act == "cursor set", workplace
    if not workplace.is_copy:
        ended = workplace.undo()
        assert ended.status == exit_status.DONE, ended.err
    assert workplace.content() == before, "undo restores the bytes"
    return Case(workplace, design, before, rows_before, rows_after, wrong_after, workplace.is_copy, seconds,
                int(counts.read_text()))


def killed(case: Case, pristine: Path, moment: str, chance: random.Random) -> Left:
    """Play a round.

    Raises: AssertionError if the store is neither the old one, nor the new one, nor refused until it is repaired.
    """
    workplace = case.workplace
    workplace.lay_out(pristine)
    if workplace.act == "apply":
        assert workplace.plan()
    _kill(case, moment, chance)
    if workplace.is_copy:
        return _repaired_copy(case, moment)
    return _repaired(case, moment, chance)


# ---- the kill


def _victim(call: int, part: str, counts: Path) -> list[str]:
    return [sys.executable, "-m", "tests.kills.victim", str(call), part, str(counts)]


def _started(workplace: Workplace, program: list[str]) -> subprocess.Popen[str]:
    environment = {**os.environ, **workplace.environment}
    return subprocess.Popen([*program, *workplace.words()], env=environment, stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def _kill(case: Case, moment: str, chance: random.Random) -> None:
    workplace = case.workplace
    if moment == "at a call":
        program = _victim(chance.randint(1, case.calls), chance.choice(PARTS), workplace.top / "counts")
        process = _started(workplace, program)
        process.communicate(timeout=_LONGEST_SECONDS)
        return
    process = _started(workplace, [str(Path(sys.executable).with_name("rmqtx"))])
    if moment == "any time":
        _sleep(process, chance.uniform(0, case.seconds))
    else:
        first = workplace.top / "copy.unfinished" if workplace.is_copy else workplace.undo_file.parent
        while process.poll() is None and not (first.exists() and (workplace.is_copy or any(first.iterdir()))):
            time.sleep(0.0005)
        _sleep(process, chance.uniform(0, 0.1))
    process.kill()
    process.communicate()


def _sleep(process: subprocess.Popen[str], seconds: float) -> None:
    end = time.monotonic() + seconds
    while process.poll() is None and (left := end - time.monotonic()) > 0:
        time.sleep(min(left, 0.05))


# ---- what is left


def _repaired(case: Case, moment: str, chance: random.Random) -> Left:
    workplace, again = case.workplace, case.workplace.top / "kept" / "another"
    now, has_undo_file = workplace.content(), workplace.undo_file.exists()
    bare = {path: data for path, data in now.items() if path != BEGUN_MARK}
    if bare == case.before:
        found = "old"  # perhaps with a mark, whole or torn
    else:
        found = "half" if workplace.is_begun and read_undo_file(workplace.undo_file).state != APPLIED else "done"
    if found == "half":
        for what, status in _tried(workplace):
            assert status in REFUSED, (what, status, "a half changed store is acted on")
            assert workplace.content() == now, what
    if found == "old" and not has_undo_file:
        repair, undo_file = "the command again", workplace.undo_file
        _must(workplace.run(*workplace.words()).status, "the command again")
    elif found == "done":
        assert has_undo_file, "a store is changed and has no undo file"
        repair, undo_file = "nothing", workplace.undo_file
        if workplace.is_begun:  # the mark was not removed
            repair = "undo --resume"
            _must(workplace.undo(None, "--resume").status, repair)
    elif chance.random() < 0.5:
        repair, undo_file = "undo --resume", workplace.undo_file
        _must(workplace.undo(None, "--resume").status, repair)
    else:
        repair, undo_file = "undo, and again", again
        _must(workplace.undo().status, "undo")
        assert workplace.content() == case.before, "undo restores the bytes"
        _must(workplace.run(*workplace.words(again)).status, "the command again")
    assert not workplace.is_begun
    _require_done(case)
    _must(workplace.undo(undo_file).status, "undo after the repair")
    assert workplace.content() == case.before, "undo restores the bytes"
    return Left(found, moment, repair)


def _tried(workplace: Workplace) -> Iterator[tuple[str, int]]:
    """Commands that would change a half changed store, and their exit statuses."""
    kept = workplace.top / "kept"
    yield "the command again", workplace.run(*workplace.words()).status
    yield "with another undo file", workplace.run(*workplace.words(kept / "other")).status
    names = workplace.names or tuple(row for row in workplace.rows(workplace.store))[:1]
    to = Workplace(workplace.top, workplace.name, "commit", names[:1], is_copy=True)
    yield "commit --to", workplace.run(*to.words()).status
    assert not (workplace.top / "copy").exists()
    rebuilt = ("rebuild", workplace.store, "--in-place", "--undo", kept / "rebuilt", "--yes")
    yield "rebuild --in-place", workplace.run(*rebuilt, *workplace.broker).status


def _repaired_copy(case: Case, moment: str) -> Left:
    workplace = case.workplace
    assert workplace.content() == case.before, "the copied store is unchanged"
    unfinished = workplace.top / "copy.unfinished"
    repair = "nothing"
    found = "done" if workplace.changed.exists() else "half" if unfinished.exists() else "old"
    if found != "done":
        repair = "the command again"
        ended = workplace.run(*workplace.words())
        if found == "half":
            assert ended.status in REFUSED, ended
            assert "unfinished" in ended.err, ended.err
            for file in sorted(unfinished.rglob("*"), reverse=True):
                file.rmdir() if file.is_dir() and not file.is_symlink() else file.unlink()
            unfinished.rmdir()
            repair = "removed as advised, and again"
            ended = workplace.run(*workplace.words())
        _must(ended.status, repair)
    _require_done(case)
    assert workplace.content() == case.before
    return Left(found, moment, repair)


def _require_done(case: Case) -> None:
    assert case.workplace.rows() == case.rows_after, "states differ from those after the undisturbed act"
    wrong = case.workplace.wrong() - case.wrong_after
    assert wrong == Counter(), f"verify finds more than after the undisturbed act: {wrong}"


def _must(status: int, what: str) -> None:
    assert status == exit_status.DONE, f"{what}: {status}"


__all__ = ["MOMENTS", "UNDO_FILE", "Left", "killed", "prepare"]
