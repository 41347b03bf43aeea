"""Each command line of the table of reading commands and acts, with each kind of broken output and with signals.

No traceback, no status that promises an output which did not arrive, and a whole output wherever nothing failed.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.program import RMQTX, WARM
from tests.cli.test_outputs_arrive import closing as closing_streams
from tests.cli.test_read_only import ACTS, READS
from tests.forge.stores import copy_of
from tests.verdicts.truth import audited

_STORE = "common-5.3.3"
#: As the system words it, and SQLite.
_FULL = (b"No space left on device", b"database or disk is full")
#: Interrupted, and the status of a program that its system ended by the signal. Commands with an engine first remove
#: what they made, also on SIGTERM, and end as on Ctrl-C (docs/engines.md).
_BY_SIGNAL = {signal.SIGINT: {130, -signal.SIGINT}, signal.SIGTERM: {130, -signal.SIGTERM}}
#: Of a check for a monitoring system that was interrupted.
_UNKNOWN = 3
_MOMENTS = 3
LINES = [(verb, number) for verb, lines in (READS | ACTS).items() for number in range(len(lines))]


@dataclass(frozen=True)
class Line:
    """A command line on a store of its own, and what it does undisturbed."""

    words: tuple[str, ...]
    status: int
    stdout: bytes
    seconds: float


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of(_STORE, tmp_path_factory.mktemp("matrix") / "store")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory on a file system that can become full."""
    folder = tmp_path / "out"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this user cannot mount a tmpfs")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False)


def lined(verb: str, number: int, store: Path, out: Path) -> tuple[str, ...]:
    pending = next(row for row in audited(_STORE) if "pending.0" in (row["keys"] or ""))
    with closing(sqlite3.connect(out / "ledger.db")) as ledger:
        ledger.execute("create table if not exists orders (order_id text, status text)")
        ledger.commit()
    named = {"STORE": str(store), "ID": pending["transaction_id"]}
    words = (READS | ACTS)[verb][number]
    return tuple(named.get(word, word.replace("STORE", str(store)).replace("OUT/", f"{out}/")) for word in words)


def run(
    words: tuple[str, ...], program: Iterable[str] = WARM, **streams: object
) -> subprocess.CompletedProcess[bytes]:
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL} | streams
    return subprocess.run([*program, *words], check=False, timeout=120, **given)  # type: ignore[call-overload,no-any-return]


def emptied(place: Path) -> None:
    for path in sorted(place.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


@pytest.mark.deep
@pytest.mark.parametrize(("verb", "number"), LINES)
def test_no_broken_output_is_taken_for_a_whole_one(verb: str, number: int, store: Path, place: Path) -> None:
    words = lined(verb, number, store, place)
    began = time.monotonic()
    plain = run(words)
    line = Line(words, plain.returncode, plain.stdout, time.monotonic() - began)
    assert b"Traceback" not in plain.stderr
    written = sizes(place)
    for check in (_full, _closed, _without_reader, _without_stderr, _slow_reader):
        emptied(place)
        lined(verb, number, store, place)
        check(line)
    _full_folder(line, verb, number, store, place, written)
    began = time.monotonic()
    run(words, program=RMQTX)
    seconds = time.monotonic() - began
    for sent in _BY_SIGNAL:
        for moment in range(_MOMENTS):
            emptied(place)
            lined(verb, number, store, place)
            _signalled(line, sent, random.Random(f"{verb} {number} {moment}").random() * seconds)


def sizes(place: Path) -> dict[str, int]:
    """Bytes that files take; those of a sparse file are fewer than its length."""
    return {str(path.relative_to(place)): path.stat().st_blocks * 512 for path in place.rglob("*") if path.is_file()}


def _full(line: Line) -> None:
    with open("/dev/full", "wb") as full:
        done = run(line.words, stdout=full)
    _is_known(done)
    assert (done.returncode not in {0, 1}) or not line.stdout, f"{line.words}: {done.returncode} on a full disk"


def _closed(line: Line) -> None:
    done = run(line.words, stdout=None, preexec_fn=closing_streams(1))
    _is_known(done)
    assert (done.returncode not in {0, 1}) or not line.stdout, f"{line.words}: {done.returncode} without stdout"


def _without_reader(line: Line) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as stream:
        done = run(line.words, stdout=stream)
    _is_known(done)
    assert done.returncode in {0, line.status, 141, -signal.SIGPIPE}, line.words


def _without_stderr(line: Line) -> None:
    done = run(line.words, stderr=None, preexec_fn=closing_streams(2))
    assert done.returncode == line.status, line.words
    assert done.stdout.count(b"\n") == line.stdout.count(b"\n"), line.words


def _slow_reader(line: Line) -> None:
    with subprocess.Popen(
        [*WARM, *line.words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    ) as process:
        time.sleep(min(2.0, line.seconds * 1.5))
        found, _ = process.communicate(timeout=120)
    assert process.returncode == line.status, line.words
    assert found.count(b"\n") == line.stdout.count(b"\n"), line.words


def _full_folder(line: Line, verb: str, number: int, store: Path, place: Path, written: dict[str, int]) -> None:
    """The folder of the outputs has room for a part of them."""
    size_bytes = sum(size for name, size in written.items() if name != "ledger.db")
    if size_bytes < 8192:
        return
    emptied(place)
    subprocess.run(["mount", "-o", f"remount,size={size_bytes // 2 // 4096 * 4096 + 8192}", str(place)], check=True)
    try:
        lined(verb, number, store, place)
        done = run(line.words)
        _is_known(done)
        assert done.returncode not in {0, 1}, f"{line.words}: {done.returncode} in a full folder"
        assert any(words in done.stderr for words in _FULL), (line.words, done.stderr)
    finally:
        emptied(place)
        subprocess.run(["mount", "-o", "remount,size=16m", str(place)], check=True)


def _signalled(line: Line, sent: signal.Signals, after_seconds: float) -> None:
    with subprocess.Popen(
        [*RMQTX, *line.words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    ) as process:
        time.sleep(after_seconds)
        process.send_signal(sent)
        found, errors = process.communicate(timeout=120)
    if b"Traceback" in errors:
        assert _is_of_python(errors), (line.words, sent, after_seconds, errors)
        return
    if process.returncode == line.status and line.status == 0:
        assert found.count(b"\n") == line.stdout.count(b"\n"), (line.words, "a part with status 0")
    else:
        is_known = process.returncode in {*_BY_SIGNAL[sent], line.status}
        is_unknown = line.words[0] == "check" and process.returncode == _UNKNOWN
        assert is_known or is_unknown, (line.words, sent, process.returncode, errors)


def _is_of_python(errors: bytes) -> bool:
    """Whether the traceback is of the interpreter's start, before a line of ours runs."""
    return b"rmqtx_cli" not in errors.replace(b"from rmqtx_cli.main import run", b"")


def _is_known(done: subprocess.CompletedProcess[bytes]) -> None:
    assert b"Traceback" not in (done.stderr or b""), done
    assert done.returncode != 70, done


