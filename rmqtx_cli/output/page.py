"""Pages for people: lines with labels, wrapped to the width of a terminal only, and a pager, as git has one."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from rmqtx_cli.output.streams import OnTerminal, is_on_terminal, is_stdout, open_stream
from rmqtx_cli.output.views import Page, Row, View
from rmqtx_cli.words import say
from rmqtx_cli.words.text import width, wrapped

if TYPE_CHECKING:
    import pyarrow as pa

#: As git sets it, unless the user has: end at once if all fits, pass colours on, do not clear the screen.
_LESS = {"LESS": "FRX", "LV": "-c"}
_NOT_FOUND = 127


class PagePort:
    """Rows as a page; without rows a line on stderr, and stdout stays empty. All rows are held until the end."""

    def __init__(self, stream: IO[bytes], _schema: pa.Schema, view: View) -> None:
        assert view.page is not None
        self._stream = stream
        self._page: Page = view.page
        self._nothing = "" if view.is_quiet else view.nothing
        self._rows: list[Row] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Keep the rows."""
        self._rows += batch.to_pylist()

    def finish(self) -> None:
        """Print the page."""
        if self._rows:
            write_lines(self._stream, self._page.lines(self._rows), self._page.label_cells)
        elif self._nothing:
            say.line(f"rmqtx: {self._nothing}")


def write_lines(stream: IO[bytes], lines: Iterable[str], label_cells: int) -> None:
    """Write lines; on a terminal a long line continues below, indented to the labels' width."""
    room = shutil.get_terminal_size().columns if is_on_terminal(stream) else None
    for line in lines:
        if room is None or width(line) <= room:
            stream.write(f"{line}\n".encode())
            continue
        label, text = line[:label_cells], line[label_cells:]
        label += text[: len(text) - len(text.lstrip(" "))]  # wrapping drops the space after a label of this width
        first, *more = wrapped(text, max(room - len(label), label_cells))
        text = "".join(f"{' ' * label_cells}{one}\n" for one in more)
        stream.write(f"{label}{first}\n{text}".encode())


@contextmanager
def paged(output: Path | None, *, is_wanted: bool) -> Iterator[IO[bytes]]:
    """A stream whose bytes a pager shows when the block ends, on a terminal; else stdout, or the file.

    Raises: UnwritableFile if the file cannot be written.
    """
    with open_stream(output) as stream:
        command = _command() if is_wanted and is_stdout(output) and sys.stdout.isatty() else None
        if command is None:
            yield stream
            return
        page = _PagedBytes()
        yield page
        if not _show(command, page.getvalue()):
            stream.write(page.getvalue())


class _PagedBytes(io.BytesIO, OnTerminal):
    """Bytes for the pager on the terminal."""


def _command() -> str | None:
    """The command of the pager; None for no pager."""
    for name in ("RMQTX_PAGER", "PAGER"):
        if name in os.environ:
            command = os.environ[name].strip()
            return None if command in ("", "cat") else command
    return "less" if shutil.which("less") else None


def _show(command: str, text: bytes) -> bool:
    """Show the text in a pager until the user leaves it; returns whether the pager could be started."""
    environment = _LESS | dict(os.environ)
    with subprocess.Popen(command, shell=True, stdin=subprocess.PIPE, env=environment) as process:
        # Ctrl-C is for the pager: less returns to its prompt, and rmqtx must not end before it.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            process.communicate(text)  # a pipe that the user closed early is not an error
        finally:
            signal.signal(signal.SIGINT, before)
    return process.returncode != _NOT_FOUND
