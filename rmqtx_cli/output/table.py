"""Tables for people, by tabulate: streamed, cut to the width only on a terminal, nothing unprintable in them.

The first thousand rows decide the widths; later ones are printed as they come, so that a long listing starts at once.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING

from tabulate import tabulate

from rmqtx_cli import say
from rmqtx_cli.colours import coloured, is_coloured
from rmqtx_cli.output.pieces import pieces
from rmqtx_cli.output.port import is_on_terminal
from rmqtx_cli.text import count, cut, width
from rmqtx_cli.views import ALWAYS, Column, Row, View

if TYPE_CHECKING:
    import pyarrow as pa

_CHUNK_ROWS = 1_000
_CUT_CELLS_MIN = 10
_GAP_CELLS = 2


class TablePort:
    """Rows as aligned text; without rows a line on stderr says so, and stdout stays empty."""

    def __init__(self, stream: IO[bytes], _schema: pa.Schema, view: View) -> None:
        self._stream = stream
        self._columns: Sequence[Column] = view.columns
        self._nothing, self._is_quiet = view.nothing, view.is_quiet
        self._waiting: list[Row] = []
        self._widths: list[int] = []
        self._limits: list[int | None] = []
        self._is_first = True

    def write(self, batch: pa.RecordBatch) -> None:
        """Keep the rows until there are enough to print."""
        for part in pieces(batch, _CHUNK_ROWS):
            for row in part.to_pylist():
                self._waiting.append(row)
                if len(self._waiting) == _CHUNK_ROWS:
                    self._print()

    def flush(self) -> None:
        """Print what waits for more."""
        if self._waiting:
            self._print()

    def finish(self) -> None:
        """Print what is left."""
        if self._waiting:
            self._print()
        elif self._is_first and not self._is_quiet:
            say.line(f"rmqtx: {self._nothing}")

    def _print(self) -> None:
        cells = [[column.text(row) for column in self._columns] for row in self._waiting]
        if self._is_first:
            cells = self._fitted(cells)
        cells = [[self._cut(text, number) for number, text in enumerate(line)] for line in cells]
        self._widths = [
            max([self._widths[number] if self._widths else 0, *(width(line[number]) for line in cells)])
            for number in range(len(self._columns))
        ]
        # Headings as wide as the widest value so far keep later chunks in line with the first.
        headings = [
            (column.heading.rjust if column.is_number else column.heading.ljust)(self._widths[number])
            for number, column in enumerate(self._columns)
        ]
        if is_on_terminal(self._stream) and is_coloured():
            cells = [[self._coloured(text, number) for number, text in enumerate(line)] for line in cells]
        lines = _lines(self._columns, [headings, *cells])
        self._stream.write(("\n".join(lines if self._is_first else lines[1:]) + "\n").encode())
        self._stream.flush()
        self._is_first, self._waiting = False, []

    def _coloured(self, text: str, number: int) -> str:
        """A cell in colour where its column is one of states; a key that is spelt like one is none."""
        return coloured(text) if self._columns[number].sources[0].startswith("state") else text

    def _cut(self, text: str, number: int) -> str:
        limit = self._limits[number] if self._limits else None
        return text if limit is None else cut(text, limit)

    def _fitted(self, cells: list[list[str]]) -> list[list[str]]:
        """The cells of the columns that fit the terminal; sets the limits of those that are cut."""
        room = shutil.get_terminal_size().columns if is_on_terminal(self._stream) else None
        widths = [
            max(width(column.heading), *(width(line[number]) for line in cells))
            for number, column in enumerate(self._columns)
        ]
        kept = list(range(len(widths)))
        if room is None:
            return cells
        empty = {number for number in kept if not any(line[number] for line in cells)}
        while (total := _least(widths, self._columns, kept)) > room and len(kept) > 1:
            loose = [number for number in kept if self._columns[number].rank != ALWAYS]
            if not loose:
                break
            # A column that says nothing goes before any that says something.
            kept.remove(max(loose, key=lambda number: (number in empty, self._columns[number].rank, number)))
        self._limits = _limits(widths, self._columns, kept, room if total <= room else total)
        hidden = len(widths) - len(kept)
        if hidden and not self._is_quiet:
            names = ", ".join(c.heading for n, c in enumerate(self._columns) if n not in kept)
            say.line(f"rmqtx: {count(hidden, 'column')} left out at this width: {names}")
        self._columns = [self._columns[number] for number in kept]
        return [[line[number] for number in kept] for line in cells]


def _least(widths: list[int], columns: Sequence[Column], kept: list[int]) -> int:
    """Cells of the table if everything that may be cut is cut as far as makes sense."""
    return _GAP_CELLS * (len(kept) - 1) + sum(
        min(widths[n], max(_CUT_CELLS_MIN, width(columns[n].heading))) if columns[n].may_be_cut else widths[n]
        for n in kept
    )


def _limits(widths: list[int], columns: Sequence[Column], kept: list[int], room: int) -> list[int | None]:
    """Cells for each kept column: the widest that may be cut give way first, evenly."""
    limits = {number: widths[number] for number in kept}
    least = {n: min(widths[n], max(_CUT_CELLS_MIN, width(columns[n].heading))) for n in kept if columns[n].may_be_cut}
    excess = sum(limits.values()) + _GAP_CELLS * (len(kept) - 1) - room
    while excess > 0:
        candidates = [number for number in least if limits[number] > least[number]]
        if not candidates:
            break
        limits[max(candidates, key=lambda number: limits[number])] -= 1
        excess -= 1
    return [limits[number] if columns[number].may_be_cut else None for number in kept]


def print_table(rows: pa.Table, view: View) -> None:
    """A small table on stderr, beside the results."""
    if not rows.num_rows:
        return
    cells = [[column.text(row) for column in view.columns] for row in rows.to_pylist()]
    for line in _lines(view.columns, [[column.heading for column in view.columns], *cells]):
        say.line(line)


def _lines(columns: Sequence[Column], cells: list[list[str]]) -> list[str]:
    text = tabulate(
        cells, tablefmt="plain", disable_numparse=True, preserve_whitespace=True,
        colalign=["right" if column.is_number else "left" for column in columns],
    )
    return [line.rstrip() for line in text.splitlines()]
