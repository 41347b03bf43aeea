"""Bars on a terminal, drawn by rich: `progress` imports this module when it shows one."""

from __future__ import annotations

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text


class _Rate(ProgressColumn):
    """Things in a second."""

    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:.1f}/s")


def counting() -> Progress:
    """Return a bar that counts things."""
    return _on_terminal(BarColumn(20), MofNCompleteColumn(), _Rate(), TimeRemainingColumn())


def of_bytes() -> Progress:
    """Return a bar of bytes."""
    columns = (BarColumn(20), DownloadColumn(binary_units=True), TransferSpeedColumn(), TimeRemainingColumn())
    return _on_terminal(*columns, first=SpinnerColumn())


def _on_terminal(*columns: ProgressColumn, first: ProgressColumn | None = None) -> Progress:
    begin = () if first is None else (first,)
    what = TextColumn("{task.description}")
    return Progress(*begin, what, *columns, console=Console(stderr=True), transient=True)
