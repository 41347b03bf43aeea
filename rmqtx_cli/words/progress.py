"""Progress of long work: a bar with bytes or a count, rate and time left on a terminal; nothing elsewhere, but objects
with --log-json.

A bar names the current step and is removed before the first result is printed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from rmqtx_cli.words import log_json
from rmqtx_cli.words.say import Voice

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


#: The bars on the terminal.
_SHOWN: list[Progress] = []


@dataclass(frozen=True, slots=True)
class Bar:
    """One line on the terminal; called with (bytes done, bytes in all)."""

    bar: Progress
    line: TaskID
    what: str

    def __call__(self, done_bytes: int, total_bytes: int) -> None:
        """Show the number of bytes done and in all."""
        self.bar.update(self.line, completed=done_bytes, total=total_bytes)
        if total_bytes and done_bytes >= total_bytes:
            self.bar.update(self.line, description=f"{self.what}: computing results")

    def show_phase(self, phase: str, done_tasks: int, tasks_count: int, found: str = "") -> None:
        """Show what is done now, how many of its tasks have ended, and what it found so far."""
        tasks = f", {done_tasks}/{tasks_count} tasks" if tasks_count > 1 else ""
        self.bar.update(self.line, description=f"{self.what}: {phase}{tasks}{found and f', {found}'}")


@dataclass(frozen=True, slots=True)
class CountBar:
    """One line on the terminal that counts things, with their rate and the time left."""

    bar: Progress
    line: TaskID

    def show(self, what: str, done_count: int, total_count: int) -> None:
        """Show what is done, how many things it concerns, and how many of them are done."""
        self.bar.update(self.line, description=what, completed=done_count, total=total_count)


@contextmanager
def counted(what: str, voice: Voice) -> Iterator[CountBar | log_json.Progress | None]:
    """A bar that counts things while the block runs; None with --quiet or without a terminal."""
    if (log := log_json.current()) is not None:
        yield None if voice.quiet else log_json.Progress(log, what)
        return
    if voice.quiet or not sys.stderr.isatty():
        yield None
        return
    with _on_terminal(_rich_bars().counting()) as bar:
        yield CountBar(bar, bar.add_task(what, total=None))


def _rich_bars() -> ModuleType:
    """Return the module that makes bars, which loads rich."""
    from rmqtx_cli.words import rich_bars

    return rich_bars


@contextmanager
def _on_terminal(bar: Progress) -> Iterator[Progress]:
    with bar:
        _SHOWN.append(bar)
        try:
            yield bar
        finally:
            _SHOWN.remove(bar)


@contextmanager
def shown(what: str, voice: Voice) -> Iterator[Bar | log_json.Progress | None]:
    """A bar that takes (bytes done, bytes in all) while the block runs; None with --quiet or without a terminal."""
    if (log := log_json.current()) is not None:
        yield None if voice.quiet else log_json.Progress(log, what)
        return
    if voice.quiet or not sys.stderr.isatty():
        yield None
        return
    with _on_terminal(_rich_bars().of_bytes()) as bar:
        yield Bar(bar, bar.add_task(what, total=None), what)


def of_rows(voice: Voice) -> log_json.Progress | None:
    """What takes the number of rows that are written; None without --log-json: a bar is removed before the rows."""
    log = log_json.current()
    return None if log is None or voice.quiet else log_json.Progress(log, "writing rows")


def clear() -> None:
    """Remove all bars from the terminal before results are written."""
    for bar in _SHOWN:
        bar.stop()
