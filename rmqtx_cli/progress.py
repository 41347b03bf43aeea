"""How far long work has come: a bar with bytes, rate and time left on a terminal; nothing at all elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqtx_cli.say import Voice

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


@dataclass(frozen=True, slots=True)
class Bar:
    """One line on the terminal; called with (bytes done, bytes in all)."""

    bar: Progress
    line: TaskID
    what: str

    def __call__(self, done_bytes: int, total_bytes: int) -> None:
        """So many bytes are done, of so many."""
        self.bar.update(self.line, completed=done_bytes, total=total_bytes)

    def count_tasks(self, done: int, total: int) -> None:
        """So many tasks of an engine that has tasks are done, of so many."""
        self.bar.update(self.line, description=f"{self.what}, {done}/{total} tasks")


@contextmanager
def shown(what: str, voice: Voice) -> Iterator[Bar | None]:
    """A bar that takes (bytes done, bytes in all) while the block runs; None where nobody watches."""
    if voice.quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True),
               TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield Bar(bar, bar.add_task(what, total=None), what)
