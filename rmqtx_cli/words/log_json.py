"""What a command prints on stderr as JSON objects, one a line: `--log-json`. docs/log_json.md describes them.

With it, this module alone writes to stderr: what Python or a library prints there becomes an object too, an object is
written in one piece, and `exit` is the last one.
"""

from __future__ import annotations

import io
import json
import os
import select
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import FrameType
from typing import TextIO

OPTION = "--log-json"
HELP = "Print progress, notes, findings, errors and the exit status as JSON objects on stderr, one a line"
#: The version of the objects: a field that is removed, or whose meaning changes, raises it; a new one does not.
VERSION = 1
#: Every type of object with its own fields; each also has `v`, `type` and `time`.
FIELDS: dict[str, tuple[str, ...]] = {
    "start": ("command", "version"),
    "progress": ("phase", "step", "done_bytes", "total_bytes", "done_count", "total_count", "rows",
                 "rate_bytes_per_second", "rate_per_second", "left_seconds"),
    "note": ("text",),
    "next": ("arguments", "text", "comment"),
    "row": ("row",),
    "finding": ("code", "severity", "store", "file", "position_bytes", "length_bytes", "commit_log_offset", "expected",
                "actual", "meaning", "advice", "more_places", "text"),
    "question": ("text",),
    "error": ("text", "kind", "file", "position_bytes", "advice", "traceback"),
    "output": ("text",),
    "exit": ("status", "word", "meaning"),
}
#: Seconds between two objects about one phase.
_EVERY_SECONDS = 1.0

Value = str | int | float | bool | None | Sequence[str] | Mapping[str, object]


@dataclass(slots=True)
class Log:
    """The objects of one run. `write`: takes the bytes of whole lines."""

    write: Callable[[bytes], None]
    _lock: threading.RLock = field(default_factory=threading.RLock)
    has_ended: bool = False

    def object(self, kind: str, /, **values: Value) -> None:
        """Write an object; fields that are not given are null. After the last one nothing is written."""
        stamp = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        rest = {name: values.get(name) for name in FIELDS[kind]}
        text = json.dumps({"v": VERSION, "type": kind, "time": stamp, **rest}, default=str)
        with self._lock:
            if not self.has_ended:
                self.has_ended = kind == "exit"
                self.write(f"{text}\n".encode())


#: The log of this run; None without --log-json.
_current: Log | None = None


def current() -> Log | None:
    """Return the log of this run; None without --log-json: then lines are text."""
    return _current


def is_asked(arguments: Sequence[str]) -> bool:
    """Whether a command line, which may be a wrong one, has the option."""
    words = list(arguments)
    return OPTION in words[: words.index("--") if "--" in words else len(words)]


@contextmanager
def begun(arguments: Sequence[str], version: Callable[[], str]) -> Iterator[Log | None]:
    """Begin the log of a run if its command line has the option; None without. The block writes the object `exit`."""
    global _current
    if not is_asked(arguments):
        yield None
        return
    before, stream = _current, sys.stderr
    log = _current = Log(_writer(stream))
    sys.stderr = _Others(log)
    log.object("start", command=["rmqtx", *arguments], version=version())
    try:
        with _ended_by_sigterm():
            yield log
    finally:
        log.has_ended = True
        sys.stderr, _current = stream, before


def _writer(stream: TextIO) -> Callable[[bytes], None]:
    """A function that writes bytes to a stream in as few calls as possible; errors of the stream are ignored.

    A line that an interrupt cuts off is completed before the next one: the rest is kept.
    """
    left = bytearray()
    try:
        stream.flush()
        descriptor = stream.fileno()
    except (OSError, ValueError):  # a stream of a test
        descriptor = -1

    def write(data: bytes) -> None:
        if descriptor < 0:
            stream.write(data.decode())
            return
        left.extend(data)
        while left:
            try:
                del left[: os.write(descriptor, left)]
            except BlockingIOError:
                select.select([], [descriptor], [])
            except OSError:  # closed, or its reader has ended
                left.clear()

    return write


class _Others(io.TextIOBase, TextIO):
    """In place of sys.stderr: each line that Python or a library writes becomes an object `output`."""

    def __init__(self, log: Log) -> None:
        self._log, self._begun = log, ""

    def write(self, text: str, /) -> int:
        """Keep a text until its line ends."""
        *lines, self._begun = f"{self._begun}{text}".split("\n")
        for line in lines:
            self._print(line)
        return len(text)

    def flush(self) -> None:
        """Write the line that has begun."""
        begun, self._begun = self._begun, ""
        self._print(begun)

    def _print(self, line: str) -> None:
        if line.strip():
            self._log.object("output", text=line.rstrip())


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Within the block SIGTERM ends the run as Ctrl-C does, so that its last object is written."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def next_command(text: str) -> tuple[list[str] | None, str | None]:
    """Return a command to type as its arguments, and its comment; None for other text."""
    command, _, comment = text.partition("   # ")
    with suppress(ValueError):
        words = shlex.split(command)
        if words[:1] == ["rmqtx"]:
            return words, comment or None
    return None, comment or None


@dataclass(slots=True)
class Progress:
    """The objects about one piece of work; called with (bytes done, bytes in all)."""

    log: Log
    phase: str
    _step: str | None = None
    _began: float = field(default_factory=time.monotonic)
    _last: float = float("-inf")
    _bytes: tuple[int, int] | None = None
    _counts: tuple[int, int] | None = None

    def __call__(self, done_bytes: int, total_bytes: int) -> None:
        """Take the number of bytes done and in all."""
        self._bytes = done_bytes, total_bytes
        self._print(is_last=done_bytes >= total_bytes)

    def show_phase(self, phase: str, done_tasks: int, tasks_count: int, found: str = "") -> None:  # noqa: ARG002
        """Take what is done now, and how many of its tasks have ended."""
        is_other, self._step, self._counts = phase != self._step, phase, (done_tasks, tasks_count)
        self._print(is_last=is_other or done_tasks >= tasks_count)

    def show(self, what: str, done_count: int, total_count: int) -> None:
        """Take what is done, how many things it concerns, and how many of them are done."""
        self._step, self._counts = what, (done_count, total_count)
        self._print(is_last=done_count >= total_count)

    def rows(self, rows_count: int, *, is_last: bool = False) -> None:
        """Take the number of rows that are written."""
        self._print(is_last=is_last, rows=rows_count)

    def _print(self, *, is_last: bool, rows: int | None = None) -> None:
        now = time.monotonic()
        if not is_last and now - self._last < _EVERY_SECONDS:
            return
        self._last = now
        spent_seconds = max(now - self._began, 1e-6)
        done_bytes, total_bytes = self._bytes or (None, None)
        done_count, total_count = self._counts or (None, None)
        done = done_bytes if done_bytes is not None else done_count
        total = total_bytes if total_bytes is not None else total_count
        left = None if not done or total is None else round((total - done) * spent_seconds / done, 1)
        counted = rows if rows is not None else done_count
        self.log.object(
            "progress", phase=self.phase, step=self._step, done_bytes=done_bytes, total_bytes=total_bytes,
            done_count=done_count, total_count=total_count, rows=rows,
            rate_bytes_per_second=None if done_bytes is None else round(done_bytes / spent_seconds),
            rate_per_second=None if counted is None else round(counted / spent_seconds, 1), left_seconds=left,
        )
