"""Play mutants: one process that has collected the tests, and a fork of it for each mutant.

`python -m tests.mutants.worker --root TREE --jobs FILE --results FILE`

The fork gets the mutant's code in its memory, and the file of the mutant stands in TREE meanwhile, for the programs
that tests start. What cannot be changed in memory (values of modules) runs in a new process.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NoReturn

import pytest

from tests.mutants import unshrunk
from tests.mutants.touched import PLAIN

KILLED, SURVIVED, TIMED_OUT, NOT_COVERED = "killed", "survived", "timed out", "not covered"
_PASSED, _FAILED, _ELSEWHERE = 0, 1, 99
#: CPU time in which a new process loads the product and collects the tests.
_COLLECTING_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Job:
    """One mutant to play.

    Shape: `source`: the whole text of `file` with the fault. `tests`: in the order in which they run.
    Units: seconds; `cpu` and `wall` without the fault; `more`: CPU time allowed in addition, for what tests share.
    """

    number: int
    file: str
    function: str | None
    source: str
    tests: list[str]
    cpu: float
    wall: float
    more: float = 10

    def limits(self) -> tuple[int, float]:
        """CPU time of the process that tests, and how long it may take in all, on a machine that others use too."""
        return int(self.more + 4 * self.cpu), 90 + 15 * self.wall


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a mutant, and the test that failed first."""

    number: int
    outcome: str
    by: str = ""
    seconds: float = 0.0


# ---- a fault in memory


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)


def put_into_memory(root: Path, job: Job) -> bool:
    """Give the loaded functions the code with the fault; False where the module is loaded and that is not possible."""
    file = os.path.realpath(root / job.file)
    if not any(os.path.realpath(getattr(one, "__file__", None) or "/") == file for one in list(sys.modules.values())):
        return True  # it will be loaded from the file with the fault
    if job.function is None:
        return False
    outer = job.function.partition(".<locals>")[0]
    new = [one for one in _codes(compile(job.source, file, "exec")) if one.co_qualname == outer]
    old: dict[int, list[FunctionType]] = {}
    for one in gc.get_objects():
        if not isinstance(one, FunctionType) or one.__code__.co_qualname != outer:
            continue
        if os.path.realpath(one.__code__.co_filename) == file:
            old.setdefault(one.__code__.co_firstlineno, []).append(one)
    if len(new) != 1 or len(old) != 1:  # none, or several of one name: `@overload`, a property with a setter
        return False
    for one in next(iter(old.values())):
        try:
            one.__code__ = new[0].replace(co_filename=one.__code__.co_filename)
        except ValueError:  # it uses other names of the function around it
            return False
    return True


@contextmanager
def in_the_tree(root: Path, job: Job) -> Iterator[None]:
    """The file with the fault stands in the copy."""
    path = root / job.file
    before = path.read_bytes()
    path.write_text(job.source, encoding="utf-8")
    try:
        yield
    finally:
        path.write_bytes(before)


# ---- a process for each mutant


class Player:
    """A plugin of pytest: in place of the tests, it plays all mutants."""

    def __init__(
        self, root: Path, jobs: list[Job], note: Callable[[Outcome], None], ready: Callable[[], None],
        until: float | None = None,
    ) -> None:
        self.root, self.jobs, self.note, self.ready, self.until = root, jobs, note, ready, until
        self.failed = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the first failure."""
        if report.failed and not self.failed:
            self.failed = report.nodeid

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Play each mutant."""
        items = {item.nodeid: item for item in session.items}
        for job in self.jobs:
            if self.until is not None and time.time() > self.until and job.number >= 0:
                break
            self.ready()
            chosen = [items[name] for name in job.tests if name in items]
            begin = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="rmqtx-mutant-") as scratch, in_the_tree(self.root, job):
                status, by = self._forked(session, job, chosen, Path(scratch))
                if status == _ELSEWHERE:
                    status, by = self._started(job, Path(scratch))
            outcome = {_PASSED: SURVIVED, None: TIMED_OUT}.get(status, KILLED) if chosen else NOT_COVERED
            self.note(Outcome(job.number, outcome, by, round(time.monotonic() - begin, 1)))
        return True

    def _forked(
        self, session: pytest.Session, job: Job, chosen: list[pytest.Item], scratch: Path
    ) -> tuple[int | None, str]:
        said = scratch / "said"
        if (child := os.fork()) == 0:
            self._run(session, job, chosen, scratch, said)
        status = _awaited(child, job)
        return status, said.read_text(encoding="utf-8") if said.exists() else ""

    def _run(
        self, session: pytest.Session, job: Job, chosen: list[pytest.Item], scratch: Path, said: Path
    ) -> NoReturn:
        """In the fork: run the tests until one fails."""
        status = 2
        try:
            os.setsid()
            cpu_limit = int(time.process_time()) + job.limits()[0]
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_limit, cpu_limit + 5))
            log = os.open(scratch / "log", os.O_WRONLY | os.O_CREAT)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.environ["TMPDIR"] = tempfile.tempdir = str(scratch)
            if not put_into_memory(self.root, job):
                os._exit(_ELSEWHERE)
            status = _PASSED
            for item, after in zip(chosen, [*chosen[1:], None], strict=False):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
                if self.failed:
                    status = _FAILED
                    break
            said.write_text(self.failed, encoding="utf-8")
        except BaseException as error:  # also SystemExit: it must not reach the code of the parent
            said.write_text(f"{type(error).__name__}: {error}"[:200], encoding="utf-8")
            status = _FAILED
        finally:
            os._exit(status)

    def _started(self, job: Job, scratch: Path) -> tuple[int | None, str]:
        """In a new process, which loads the file with the fault."""
        names = scratch / "names"
        names.write_text("\n".join(job.tests), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", f"@{names}", "-x", *PLAIN, "-p", unshrunk.__name__]
        command += ["--basetemp", str(scratch / "tests")]
        cpu_limit = job.limits()[0] + _COLLECTING_SECONDS
        with (scratch / "log").open("wb") as log:
            child = subprocess.Popen(
                command, cwd=self.root, stdout=log, stderr=log, start_new_session=True,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (cpu_limit, cpu_limit + 5)),
                env={**os.environ, "TMPDIR": str(scratch), "PYTHONDONTWRITEBYTECODE": "1"},
            )
            status = _awaited(child.pid, job)
            child.returncode = status or 0
        lines = (scratch / "log").read_text(encoding="utf-8", errors="replace").splitlines()
        by = next((line.split()[1] for line in lines if line.startswith(("FAILED ", "ERROR "))), "")
        return status, by


def _awaited(child: int, job: Job) -> int | None:
    """Exit status of a child, which leads a group of its own; None if it had to be stopped."""
    end = time.monotonic() + job.limits()[1]
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        is_late = pid == 0 and time.monotonic() > end
        if is_late:
            _stop_group(child)
            os.waitpid(child, 0)
            return None
        if pid:
            _stop_group(child)
            code = os.waitstatus_to_exitcode(status)
            return None if code in (-signal.SIGXCPU, -signal.SIGKILL) else code
        time.sleep(0.02)


def _stop_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


class Unpacked:
    """The stores of the corpus that tests read, unpacked once for all mutants, and again if one was changed."""

    def __init__(self) -> None:
        from tests.brokers import corpus
        from tests.forge import stores

        self._stores, self._place = stores, stores._unpacked_here()
        self._all = set(corpus.all_names())
        self._seen: dict[str, Any] = {}

    def __call__(self) -> None:
        """Unpack what an earlier mutant's tests unpacked, if it is not as it was."""
        for name in sorted(self._all & {path.name for path in self._place.iterdir()}):
            if name in self._seen and self._seen[name] == self._signature(name):
                continue
            shutil.rmtree(self._place / name, ignore_errors=True)
            self._stores.unpacked.cache_clear() if name in self._seen else None
            self._stores.unpacked(name)
            self._seen[name] = self._signature(name)

    def _signature(self, name: str) -> list[tuple[str, int, int]]:
        stats = [(path, path.lstat()) for path in sorted((self._place / name).rglob("*"))]
        return [(str(path), stat.st_size, stat.st_mtime_ns) for path, stat in stats]


def play(root: Path, jobs: list[Job], results: Path, until: float | None = None) -> int:
    """Play mutants and write a line for each; the status of pytest's collection."""
    tests = sorted({test for job in jobs for test in job.tests})
    files = sorted({test.partition("::")[0] for test in tests})
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    has_corpus = (root / "tests" / "forge" / "stores.py").is_file()

    def note(outcome: Outcome) -> None:
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(outcome)) + "\n")

    with tempfile.TemporaryDirectory(prefix="rmqtx-mutants-") as scratch:
        ready: Callable[[], None] = lambda: None  # noqa: E731
        if has_corpus:
            tempfile.tempdir = scratch
            ready = Unpacked()
        player = Player(root, jobs, note, ready, until)
        status = pytest.main([*files, *PLAIN], plugins=[player, unshrunk])
        tempfile.tempdir = None
    return int(status)


def main() -> int:
    """Play the mutants of a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--jobs", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--until", type=float, help="begin no mutant after this time, in epoch seconds")
    options = parser.parse_args()
    jobs = [Job(**one) for one in json.loads(options.jobs.read_text(encoding="utf-8"))]
    status = play(options.root.resolve(), jobs, options.results, options.until)
    return 0 if status in (0, 5) else status


if __name__ == "__main__":
    sys.exit(main())
