"""Tables for people, by tabulate: streamed, without unprintable characters, fitted to the width of a terminal only.

The first thousand rows determine the widths, and which columns fit; later rows are printed as they are read.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from tabulate import tabulate

from rmqtx.verdicts.model.verdict_words import State
from rmqtx_cli.output.streams import is_on_terminal, pieces
from rmqtx_cli.output.views import ALWAYS, Column, Row, View
from rmqtx_cli.words import log_json, say
from rmqtx_cli.words.text import cut, width, wrapped

if TYPE_CHECKING:
    import pyarrow as pa

GAP_CELLS = 2
#: The minimum of characters shown of the end of an id; ids of brokers and clients end with time and counter, or with
#: the record's offset.
_END_LENGTH = 12
#: Values without information if each row has them.
_NOTHING = ("", "0", "no")
#: SGR colours by state: LOST in red, PENDING in yellow, UNDECIDABLE in cyan.
_STATES: dict[str, str] = {
    State.PENDING: "33", State.COMMITTED: "32", State.ROLLED_BACK: "34", State.DISCARDED: "35",
    State.LOST: "1;31", State.UNDECIDABLE: "36",
}


@dataclass(frozen=True, slots=True)
class Fitted:
    """How a table fits: the columns that stay, the cells that each may have (None: any number), and the numbers of
    those columns whose values' ends of `end_length` characters stand for them.
    """

    kept: list[int]
    limits: list[int | None]
    short: frozenset[int] = frozenset()
    end_length: int = _END_LENGTH


def fitted(columns: Sequence[Column], cells: Sequence[Sequence[str]], room: int) -> Fitted:
    """The columns with the lowest ranks, as many as fit. `cells`: the first rows, from which the widths are taken."""
    widths = [max(width(column.heading), *(width(line[n]) for line in cells)) for n, column in enumerate(columns)]
    empty = {number for number in range(len(columns)) if all(line[number] in _NOTHING for line in cells)}
    ends = {n: _end_length([line[n] for line in cells]) for n, column in enumerate(columns) if column.short_heading}
    kept, short = list(range(len(columns))), set[int]()
    while _least_total(widths, columns, kept) > room:
        # Columns without information are left out first.
        loose = [(n in empty, columns[n].rank, n, False) for n in kept if columns[n].rank != ALWAYS]
        loose += [
            (False, columns[n].whole_rank, n, True) for n, end in ends.items() if n not in short and end < widths[n]
        ]
        if not loose:
            break
        _, _, number, is_shortened = max(loose)
        if is_shortened:
            short.add(number)
            widths[number] = max(ends[number], width(columns[number].short_heading or ""))
        else:
            kept.remove(number)
            ends.pop(number, None)
    return Fitted(kept, _limits(widths, columns, kept, room), frozenset(short), max(ends.values(), default=_END_LENGTH))


def _end_length(values: Sequence[str]) -> int:
    """The number of characters at the end of the values that distinguish them."""
    distinct = len(set(values))
    longest = max(map(len, values), default=0)
    length = _END_LENGTH
    while length < longest and len({value[-length:] for value in values}) < distinct:
        length += 4
    return min(length, longest)


def _least(widths: Sequence[int], columns: Sequence[Column], number: int) -> int:
    column = columns[number]
    if not column.may_be_cut:
        return widths[number]
    return min(widths[number], max(column.least_cells, width(column.heading)))


def _least_total(widths: Sequence[int], columns: Sequence[Column], kept: Sequence[int]) -> int:
    """Cells of the table if each column is cut to its minimum."""
    return GAP_CELLS * (len(kept) - 1) + sum(_least(widths, columns, number) for number in kept)


def _limits(widths: Sequence[int], columns: Sequence[Column], kept: Sequence[int], room: int) -> list[int | None]:
    """Cells for each kept column: the widest columns are cut first."""
    limits = {number: widths[number] for number in kept}
    least = {number: _least(widths, columns, number) for number in kept if columns[number].may_be_cut}
    excess = sum(limits.values()) + GAP_CELLS * (len(kept) - 1) - room
    while excess > 0:
        candidates = [number for number in least if limits[number] > least[number]]
        if not candidates:
            break
        limits[max(candidates, key=lambda number: limits[number])] -= 1
        excess -= 1
    return [limits[number] if columns[number].may_be_cut else None for number in kept]


def is_coloured() -> bool:
    """Whether to colour: TERM supports colours, and NO_COLOR is not set."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def coloured(cell: str) -> str:
    """The text of a cell, coloured if it is a state."""
    colour = _STATES.get(cell)
    return cell if colour is None else f"\x1b[{colour}m{cell}\x1b[0m"


_CHUNK_ROWS = 1_000


class TablePort:
    """Rows as aligned text; without rows a line on stderr, and stdout stays empty."""

    def __init__(self, stream: IO[bytes], _schema: pa.Schema, view: View) -> None:
        self._stream = stream
        self._columns: Sequence[Column] = view.columns
        self._nothing, self._is_quiet, self._is_wide = view.nothing, view.is_quiet, view.is_wide
        self._waiting: list[Row] = []
        self._widths: list[int] = []
        self._fit = Fitted(list(range(len(self._columns))), [None] * len(self._columns))
        self._is_first = True

    def write(self, batch: pa.RecordBatch) -> None:
        """Keep the rows until there are enough to print."""
        for part in pieces(batch, _CHUNK_ROWS):
            for row in part.to_pylist():
                self._waiting.append(row)
                if len(self._waiting) == _CHUNK_ROWS:
                    self._print()

    def flush(self) -> None:
        """Print the rows that are held."""
        if self._waiting:
            self._print()

    def finish(self) -> None:
        """Print the remaining rows."""
        if self._waiting:
            self._print()
        elif self._is_first and self._nothing and not self._is_quiet:
            say.line(f"rmqtx: {self._nothing}")

    def _print(self) -> None:
        rows = [[column.text(row) for column in self._columns] for row in self._waiting]
        if self._is_first and is_on_terminal(self._stream) and not self._is_wide:
            self._fit = fitted(self._columns, rows, shutil.get_terminal_size().columns)
            self._say_what_is_missing()
        columns = [self._columns[number] for number in self._fit.kept]
        is_whole = len(columns) == len(self._columns) and not any(self._fit.limits) and not self._fit.short
        cells = rows if is_whole else [line for row in rows for line in self._lines_of(row)]
        before = self._widths or [0] * len(columns)
        self._widths = [max(before[n], *map(width, texts)) for n, texts in enumerate(zip(*cells, strict=True))]
        # Headings as wide as the widest value so far keep later chunks in line with the first.
        headings = [
            (column.heading.rjust if column.is_number else column.heading.ljust)(self._widths[place])
            if number not in self._fit.short else str(column.short_heading).ljust(self._widths[place])
            for place, (number, column) in enumerate(zip(self._fit.kept, columns, strict=True))
        ]
        if is_on_terminal(self._stream) and is_coloured():
            cells = [[_coloured(text, column) for text, column in zip(line, columns, strict=True)] for line in cells]
        lines = _lines(columns, [headings, *cells])
        self._stream.write(("\n".join(lines if self._is_first else lines[1:]) + "\n").encode())
        self._stream.flush()
        self._is_first, self._waiting = False, []

    def _lines_of(self, row: Sequence[str]) -> list[list[str]]:
        """The lines of a row: one, or more if a cell wraps."""
        columns: list[list[str]] = []
        for number, limit in zip(self._fit.kept, self._fit.limits, strict=True):
            text = row[number][-self._fit.end_length:] if number in self._fit.short else row[number]
            if limit is None:
                columns.append([text])
            else:
                column = self._columns[number]
                columns.append(
                    wrapped(text, limit) if column.wraps else [cut(text, limit, keeps_end=column.keeps_end)]
                )
        height = max(map(len, columns))
        return [[texts[line] if line < len(texts) else "" for texts in columns] for line in range(height)]

    def _say_what_is_missing(self) -> None:
        missing = [c.heading for number, c in enumerate(self._columns) if number not in self._fit.kept]
        parts = [f"left out at this width: {', '.join(missing)}"] if missing else []
        parts += ["ids are cut to their ends, which rmqtx show takes"] if self._fit.short else []
        if parts and not self._is_quiet:
            self._stream.write(b"")  # takes a bar of progress off the terminal
            say.line(f"rmqtx: {'; '.join(parts)} (--wide shows all)")


def _coloured(text: str, column: Column) -> str:
    """A cell in colour if its column contains states; other columns stay plain."""
    return coloured(text) if column.sources[0].startswith("state") else text


def write_table(stream: IO[bytes], rows: pa.Table, view: View) -> None:
    """Write all rows of a small table, and flush them."""
    port = TablePort(stream, rows.schema, view)
    for batch in rows.to_batches():
        port.write(batch)
    port.finish()


def print_table(rows: pa.Table, view: View) -> None:
    """A small table on stderr, beside the results; on a terminal it is fitted to the width."""
    if not rows.num_rows:
        return
    if (log := log_json.current()) is not None:
        for row in rows.to_pylist():
            log.object("row", row=row)
        return
    cells = [[column.text(row) for column in view.columns] for row in rows.to_pylist()]
    columns = view.columns
    if sys.stderr.isatty() and not view.is_wide:
        fit = fitted(columns, cells, shutil.get_terminal_size().columns)
        columns = tuple(columns[number] for number in fit.kept)
        limits = list(zip(fit.kept, fit.limits, strict=True))
        cells = [
            [row[number] if limit is None else cut(row[number], limit) for number, limit in limits] for row in cells
        ]
    for line in _lines(columns, [[column.heading for column in columns], *cells]):
        say.line(line)


def _lines(columns: Sequence[Column], cells: list[list[str]]) -> list[str]:
    text = tabulate(
        cells, tablefmt="plain", disable_numparse=True, preserve_whitespace=True,
        colalign=["right" if column.is_number else "left" for column in columns],
    )
    return [line.rstrip() for line in text.split("\n")]  # splitlines loses a last row of empty cells
