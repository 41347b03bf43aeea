"""How far long work has come: a bar with bytes, rate and time left on a terminal; nothing at all elsewhere.

A bar names what is going on, also when all bytes are read and what they say is put together, and is gone before the
first result is shown.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqtx_cli.words.say import Voice

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


#: The bars that are on the terminal.
_SHOWN: list[Progress] = []


@dataclass(frozen=True, slots=True)
class Bar:
    """One line on the terminal; called with (bytes done, bytes in all)."""

    bar: Progress
    line: TaskID
    what: str

    def __call__(self, done_bytes: int, total_bytes: int) -> None:
        """So many bytes are done, of so many."""
        self.bar.update(self.line, completed=done_bytes, total=total_bytes)
        if total_bytes and done_bytes >= total_bytes:
            self.bar.update(self.line, description=f"{self.what}: all is read, results are put together")

    def count_tasks(self, done: int, total: int) -> None:
        """So many tasks of an engine that has tasks are done, of so many."""
        if done < total:
            self.bar.update(self.line, description=f"{self.what}, {done}/{total} tasks")


@contextmanager
def shown(what: str, voice: Voice) -> Iterator[Bar | None]:
    """A bar that takes (bytes done, bytes in all) while the block runs; None where nobody watches."""
    if voice.quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(20), DownloadColumn(binary_units=True),
               TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        _SHOWN.append(bar)
        try:
            yield Bar(bar, bar.add_task(what, total=None), what)
        finally:
            _SHOWN.remove(bar)


def clear() -> None:
    """Take every bar off the terminal, where results are about to be written: it would stick to their first line."""
    for bar in _SHOWN:
        bar.stop()
