"""Stores to run commands on, and the command line as a function."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rmqtx.readers.model import clock
from rmqtx_cli.main import status_of
from tests.brokers.corpus import unpack
from tests.conftest import READ_AT_MS


@dataclass(frozen=True, slots=True)
class Result:
    """What a command line did."""

    status: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of `--format jsonl`."""
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def journal_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a journal of the test's own; and no name server but one that the test names."""
    monkeypatch.setenv("RMQTX_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.delenv("RMQTX_STORE", raising=False)
    return tmp_path / "state"


@pytest.fixture
def rmqtx(capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Runs a command line in this process."""

    def run(*arguments: object) -> Result:
        capfdbinary.readouterr()
        status = status_of([str(argument) for argument in arguments])
        sys.stdout.flush()
        captured = capfdbinary.readouterr()
        return Result(status, captured.out.decode(), captured.err.decode())

    return run


@pytest.fixture
def read_soon_after_they_were_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of whoever opens a store shows the day on which the corpus was written: ages are those of that day."""
    behind_ms = clock.now_ms() - READ_AT_MS
    late = SimpleNamespace(now_ms=lambda: clock.now_ms() - behind_ms)
    monkeypatch.setattr("rmqtx.readers.store.store.clock", late)


class Terminal:
    """In place of standard input: a terminal on which one line is typed."""

    def __init__(self, line: str) -> None:
        self._line = line

    def isatty(self) -> bool:
        """See `io.IOBase`."""
        return True

    def readline(self) -> str:
        """See `io.IOBase`."""
        return self._line


def refuse_to_open(closed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the system refuse one file: no mode keeps out root, and tests may run as root."""
    really_open = os.open

    def may_open(path: Any, *arguments: Any, **more: Any) -> int:
        if os.fspath(path) == closed:
            raise PermissionError(13, "Permission denied", path)
        return really_open(path, *arguments, **more)

    monkeypatch.setattr(os, "open", may_open)


@pytest.fixture(scope="session")
def corpus_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """A store of the corpus by name; unpacked once, so tests that change one copy it: the last one to end fails if one
    was changed.
    """
    found: dict[str, tuple[Path, dict[str, tuple[int, int]]]] = {}

    def store(name: str) -> Path:
        if name not in found:
            root = unpack(name, tmp_path_factory.mktemp(name))
            found[name] = root, _files_of(root)
        return found[name][0]

    yield store
    assert [name for name, (root, files) in found.items() if _files_of(root) != files] == []


def _files_of(root: Path) -> dict[str, tuple[int, int]]:
    """Size and time of each file below a directory."""
    stats = {str(path.relative_to(root)): path.lstat() for path in root.rglob("*") if not path.is_dir()}
    return {name: (one.st_size, one.st_mtime_ns) for name, one in stats.items()}


@pytest.fixture
def common(corpus_store: Callable[[str], Path]) -> Path:
    """A store with most histories, cleanly stopped."""
    return corpus_store("common-5.3.3")


@pytest.fixture
def fifteen(corpus_store: Callable[[str], Path]) -> Path:
    """One transaction, checked fifteen times, then discarded."""
    return corpus_store("fifteen-5.3.3")
