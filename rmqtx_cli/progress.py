"""How far long work has come: a bar with bytes, rate and time left on a terminal; nothing at all elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rmqtx_cli.say import Voice


@contextmanager
def shown(what: str, voice: Voice) -> Iterator[Callable[[int, int], None] | None]:
    """A function that takes (bytes done, bytes in all) while the block runs; None where nobody watches."""
    if voice.quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True),
               TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)

        def advance(done_bytes: int, total_bytes: int) -> None:
            bar.update(task, completed=done_bytes, total=total_bytes)

        yield advance
