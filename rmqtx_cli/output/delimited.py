"""CSV for spreadsheets and `duckdb`: a header line, quotes where needed, lists and maps as JSON text."""

from __future__ import annotations

import csv
import io
import re
from typing import IO, TYPE_CHECKING

import pyarrow as pa

from rmqtx.readers.model.moments import is_time, timestamp_name
from rmqtx_cli.output.jsontext import json_texts, time_texts, timestamp_texts
from rmqtx_cli.output.streams import pieces
from rmqtx_cli.words.text import fully_escaped

if TYPE_CHECKING:
    from rmqtx_cli.output.views import View


class CsvPort:
    """CSV rows below a header line, which is written even without rows. Unknown is an empty field."""

    def __init__(self, stream: IO[bytes], schema: pa.Schema, _view: View, *, is_safe: bool = False) -> None:
        self._stream = stream
        self._is_safe = is_safe
        #: Cells that a spreadsheet would run as formulas, and were written as they are.
        self.formulas_count = 0
        names: list[str] = []
        for name in schema.names:
            names += [name, timestamp_name(name)] if is_time(name) else [name]
        self._write([names])

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows; each time in milliseconds is followed by a field with the same time as text."""
        for part in pieces(batch):
            columns: list[list[object]] = []
            for name, column in zip(part.schema.names, part.columns, strict=True):
                columns.append(self._harmless(_fields(column)) if pa.types.is_string(column.type) else _fields(column))
                if is_time(name):
                    columns.append(time_texts(column).to_pylist())
            self._write(list(zip(*columns, strict=True)))

    def _harmless(self, values: list[object]) -> list[object]:
        """The same texts, with those that a spreadsheet takes for formulas counted, or quoted with --csv-safe."""
        formulas = [place for place, value in enumerate(values) if isinstance(value, str) and is_formula(value)]
        if self._is_safe:
            for place in formulas:
                values[place] = f"'{values[place]}"
        else:
            self.formulas_count += len(formulas)
        return values

    def _write(self, rows: list[list[str]] | list[tuple[object, ...]]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        self._stream.write(text.getvalue().encode())

    def flush(self) -> None:
        """Flush the rows."""
        self._stream.flush()

    def finish(self) -> None:
        """Nothing to write at the end."""


#: The characters that begin a formula; a number with a sign is not a formula.
_FORMULA, _NUMBER = tuple("=+-@\t\r"), re.compile(r"[+-]?\d+([.,]\d+)?([eE][+-]?\d+)?")


def is_formula(value: str) -> bool:
    """Whether a spreadsheet takes the text for a formula."""
    return value.startswith(_FORMULA) and not _NUMBER.fullmatch(value)


def _fields(column: pa.Array) -> list[object]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        texts: list[object] = timestamp_texts(column).to_pylist()
        return texts
    if pa.types.is_binary(kind):
        return [None if text == "null" else text[1:-1] for text in json_texts(column).to_pylist()]
    if pa.types.is_boolean(kind) or pa.types.is_nested(kind):
        return [None if text == "null" else text for text in json_texts(column).to_pylist()]
    if pa.types.is_string(kind):  # readers of CSV treat control characters differently; line ends would split a record
        return [None if value is None else fully_escaped(value) for value in column.to_pylist()]
    values: list[object] = column.to_pylist()
    return values
