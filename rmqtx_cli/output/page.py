"""Pages for people: lines with labels, wrapped to the width of a terminal only."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from typing import IO, TYPE_CHECKING

from rmqtx_cli.output.streams import is_on_terminal
from rmqtx_cli.output.views import Page, Row, View
from rmqtx_cli.words import say
from rmqtx_cli.words.text import width, wrapped

if TYPE_CHECKING:
    import pyarrow as pa


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
