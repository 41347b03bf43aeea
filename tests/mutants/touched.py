"""Which tests run which lines: one run under coverage, kept in a database, so that a mutant needs only its own tests.

`python -m tests.mutants.touched --root TREE --database FILE TEST_FILE...`

A result that several tests share is not computed again for each of them, so a line that computes it is run for the
first one only. Each shared computation (a cached function, a fixture of a module or session) has a context of its own,
and its lines count for every test that used it.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import sqlite3
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.mutants.operators import functions_of

if TYPE_CHECKING:
    import coverage

#: Options of pytest for every run: one process, nothing kept.
PLAIN = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--capture=no", "--tb=short")
_TABLES = """
CREATE TABLE IF NOT EXISTS tests (file TEXT PRIMARY KEY, digest TEXT, marks TEXT, ids TEXT, cpu TEXT, wall TEXT);
CREATE TABLE IF NOT EXISTS lines (
    file TEXT, source TEXT, digest TEXT, functions TEXT, masks TEXT, PRIMARY KEY (file, source)
);
CREATE INDEX IF NOT EXISTS by_source ON lines (source);
CREATE TABLE IF NOT EXISTS kills (file TEXT PRIMARY KEY, count INTEGER);
"""


def digest(path: Path) -> str:
    """What a file contains, in short."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:20]


def opened(database: Path) -> sqlite3.Connection:
    """The database, with its tables."""
    database.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(database)
    connection.executescript(_TABLES)
    return connection


def cpu_seconds() -> float:
    """Time that this process and its children computed."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class Touched:
    """A plugin of pytest: notes for each test the lines that it runs and the shared results that it uses."""

    def __init__(self, root: Path, measured: coverage.Coverage) -> None:
        self.root, self.measured = root, measured
        self.current = ""
        self.uses: dict[str, set[str]] = defaultdict(set)
        self.passed: dict[str, tuple[float, float]] = {}
        self.failed: set[str] = set()
        self._keys: dict[Any, str] = {}

    # ---- contexts

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Lines count for `name`, not for the test or the shared result around it."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before, self.current = self.current, name
        self.measured.switch_context(name)
        try:
            yield
        finally:
            self.current = before
            self.measured.switch_context(before)

    def watch_caches(self) -> None:
        """From now on, functions of the tree that are cached note their users."""
        for name in ("cache", "lru_cache"):
            setattr(functools, name, self._watched(getattr(functools, name)))

    def _watched(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*given: Any, **options: Any) -> Any:
            if not (len(given) == 1 and not options and callable(given[0])):
                return lambda function: self._cached(original(*given, **options), function)
            return self._cached(original, given[0])

        return watched

    def _cached(self, cache: Callable[..., Any], function: Any) -> Any:
        file = os.path.realpath(getattr(getattr(function, "__code__", None), "co_filename", "/"))
        if not Path(file).is_relative_to(self.root):
            return cache(function)
        of_tests = Path(file).is_relative_to(self.root / "tests")

        def name_of(given: tuple[Any, ...], options: dict[str, Any]) -> str:
            key = (function, given, tuple(sorted(options.items()))) if of_tests else function
            return self._keys.setdefault(key, f"cache {len(self._keys)}")

        def computed(*given: Any, **options: Any) -> Any:
            with self.inside(name_of(given, options)):
                return function(*given, **options)

        functools.update_wrapper(computed, function)
        kept = cache(computed)

        @functools.wraps(function)
        def asked(*given: Any, **options: Any) -> Any:
            self.uses[self.current].add(name_of(given, options))
            return kept(*given, **options)

        asked.cache_clear, asked.cache_info = kept.cache_clear, kept.cache_info  # type: ignore[attr-defined]
        return asked

    # ---- hooks

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        """Fixtures that several tests share."""
        if fixturedef.scope == "function":
            return (yield)
        with self.inside(f"fixture {fixturedef.baseid} {fixturedef.argname}"):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """One test."""
        with self.inside(item.nodeid):
            shared = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
            for name, fixtures in shared.items():
                if fixtures and fixtures[-1].scope != "function":
                    self.uses[item.nodeid].add(f"fixture {fixtures[-1].baseid} {name}")
            begin = cpu_seconds(), _clock()
            try:
                return (yield)
            finally:
                if item.nodeid not in self.failed:
                    self.passed[item.nodeid] = cpu_seconds() - begin[0], _clock() - begin[1]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """What fails, or is skipped, finds no mutant."""
        if report.outcome != "passed":
            self.failed.add(report.nodeid)

    # ---- results

    def tests_of_contexts(self) -> dict[str, set[str]]:
        """For each context, the tests for which its lines count."""
        found: dict[str, set[str]] = defaultdict(set)
        for test in self.passed:
            left, seen = [test], {test}
            while left:
                one = left.pop()
                found[one].add(test)
                left += [used for used in self.uses.get(one, ()) if used not in seen]
                seen |= self.uses.get(one, set())
        return found


def _clock() -> float:
    return os.times().elapsed


def measure(root: Path, database: Path, files: list[str], marks: str) -> int:
    """Run the tests of some files and note what they run; the status of pytest."""
    with tempfile.TemporaryDirectory(prefix="rmqtx-touched-") as scratch:
        return _measured(root, database, files, marks, Path(scratch))


def _measured(root: Path, database: Path, files: list[str], marks: str, scratch: Path) -> int:
    import coverage

    measured = coverage.Coverage(
        data_file=str(scratch / "data"), config_file=False, include=[f"{root}/*"], omit=[f"{root}/tests/*"],
        messages=False,
    )
    plugin = Touched(root, measured)
    measured.start()
    plugin.watch_caches()
    arguments = [*files, *PLAIN, "-m", marks, "--basetemp", str(scratch / "tests")]
    status = pytest.main(arguments, plugins=[plugin])
    measured.stop()
    measured.save()
    write(root, database, files, marks, plugin, measured.get_data())
    return int(status)


def write(
    root: Path, database: Path, files: Iterable[str], marks: str, plugin: Touched, data: coverage.CoverageData
) -> None:
    """Put what was noted into the database."""
    places: dict[str, dict[str, int]] = {file: {} for file in files}
    for test in plugin.passed:
        own = places.get(test.partition("::")[0])
        if own is not None:
            own[test] = len(own)
    of_contexts = plugin.tests_of_contexts()
    masks_of: dict[str, dict[str, int]] = {}
    for context, tests in of_contexts.items():
        masks = masks_of[context] = defaultdict(int)
        for test in tests:
            masks[test.partition("::")[0]] |= 1 << places[test.partition("::")[0]][test]
    with opened(database) as connection:
        for file in places:
            connection.execute("DELETE FROM lines WHERE file = ?", (file,))
        for name in data.measured_files():
            path = Path(name)
            source = path.relative_to(root).as_posix()
            by_file: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
            for line, contexts in data.contexts_by_lineno(name).items():
                for context in contexts:
                    for file, mask in masks_of.get(context, {}).items():
                        by_file[file][line] |= mask
            functions = json.dumps(functions_of(path.read_text(encoding="utf-8")))
            for file, lines in by_file.items():
                masks_text = json.dumps({line: f"{mask:x}" for line, mask in lines.items()})
                row = (file, source, digest(path), functions, masks_text)
                connection.execute("INSERT INTO lines VALUES (?, ?, ?, ?, ?)", row)
        for file, own_tests in places.items():
            times = [plugin.passed[test] for test in own_tests]
            values = (
                file, digest(root / file), marks, json.dumps(list(own_tests)),
                json.dumps([round(cpu, 3) for cpu, _ in times]), json.dumps([round(wall, 3) for _, wall in times]),
            )
            connection.execute("INSERT OR REPLACE INTO tests VALUES (?, ?, ?, ?, ?, ?)", values)


class Database:
    """What was noted, for choosing tests."""

    def __init__(self, database: Path, root: Path) -> None:
        self._connection, self._root = opened(database), root
        self._tests = {
            file: (json.loads(ids), json.loads(cpu), json.loads(wall))
            for file, ids, cpu, wall in self._connection.execute("SELECT file, ids, cpu, wall FROM tests")
            if (root / file).is_file()
        }
        self.times: dict[str, tuple[float, float]] = {
            test: (cpu, wall)
            for ids, cpus, walls in self._tests.values()
            for test, cpu, wall in zip(ids, cpus, walls, strict=True)
        }

    def note_kills(self, tests: Iterable[str]) -> None:
        """Count for the files of these tests that each of them found a mutant."""
        with self._connection:
            for test in tests:
                values = (test.partition("::")[0],)
                self._connection.execute("INSERT OR IGNORE INTO kills VALUES (?, 0)", values)
                self._connection.execute("UPDATE kills SET count = count + 1 WHERE file = ?", values)

    def kills_per_second(self) -> dict[str, float]:
        """For each test file that found mutants before: how many, per second of CPU time of all its tests."""
        rows = self._connection.execute("SELECT file, count FROM kills")
        return {file: count / max(1.0, sum(self._tests[file][1])) for file, count in rows if file in self._tests}

    def files(self) -> set[str]:
        """The test files that were run under coverage."""
        return set(self._tests)

    def tests_in(self, file: str) -> set[str]:
        """The tests of a file that was run under coverage."""
        return set(self._tests[file][0])

    def stale(self, files: Iterable[str], marks: str) -> list[str]:
        """The test files that were not run under coverage as they are now."""
        known = {
            file: (then, how) for file, then, how in self._connection.execute("SELECT file, digest, marks FROM tests")
        }
        return [file for file in files if known.get(file) != (digest(self._root / file), marks)]

    @functools.lru_cache(maxsize=64)  # noqa: B019  # one database in a process
    def _rows(self, source: str) -> list[tuple[str, str, list[list[Any]], dict[str, str]]]:
        rows = self._connection.execute("SELECT file, digest, functions, masks FROM lines WHERE source = ?", (source,))
        return [
            (file, then, json.loads(functions), json.loads(masks)) for file, then, functions, masks in rows
            if file in self._tests
        ]

    def tests_of(self, source: str, lines: range, function: str | None) -> set[str]:
        """The tests that run any of these lines. If the file has changed since, those that run the function, and if
        that is new, those that run anything in the file.
        """
        found: set[str] = set()
        now = digest(self._root / source)
        for file, then, functions, masks in self._rows(source):
            some: Iterable[int] = lines
            if then != now:
                spans = [(begin, end) for name, begin, end in functions if name == function]
                some = range(spans[0][0], spans[-1][1] + 1) if spans else map(int, masks)
            mask = 0
            for line in some:
                mask |= int(masks.get(str(line), "0"), 16)
            ids = self._tests[file][0]
            found |= {ids[place] for place in range(mask.bit_length()) if mask >> place & 1}
        return found


def main() -> int:
    """Measure; the status of pytest, where failing tests are no failure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--database", type=Path, required=True)
    parser.add_argument("--marks", default="")
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    status = measure(options.root.resolve(), options.database, options.files, options.marks)
    return 0 if status in (0, 1, 5) else status


if __name__ == "__main__":
    sys.exit(main())
