"""CSV as spreadsheets and `duckdb` read it: a header line, quotes where needed, lists and maps as JSON text."""

from __future__ import annotations

import csv
import io
from typing import IO, TYPE_CHECKING

import pyarrow as pa

from rmqtx_cli.columns import is_time
from rmqtx_cli.output.jsontext import json_texts, time_texts, twin_name
from rmqtx_cli.output.pieces import pieces

if TYPE_CHECKING:
    from rmqtx_cli.views import View


class CsvPort:
    """The header at once, so that no rows still say which columns there are. Unknown is an empty field."""

    def __init__(self, stream: IO[bytes], schema: pa.Schema, _view: View) -> None:
        self._stream = stream
        names: list[str] = []
        for name in schema.names:
            names += [name, twin_name(name)] if is_time(name) else [name]
        self._write([names])

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows; a time has its readable twin in the next field."""
        for part in pieces(batch):
            columns: list[list[object]] = []
            for name, column in zip(part.schema.names, part.columns, strict=True):
                columns.append(_fields(column))
                if is_time(name):
                    columns.append(time_texts(column).to_pylist())
            self._write(list(zip(*columns, strict=True)))

    def _write(self, rows: list[list[str]] | list[tuple[object, ...]]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        self._stream.write(text.getvalue().encode())

    def flush(self) -> None:
        """Have the rows leave."""
        self._stream.flush()

    def finish(self) -> None:
        """Nothing ends lines."""


def _fields(column: pa.Array) -> list[object]:
    kind = column.type
    if pa.types.is_binary(kind):
        return [None if text == "null" else text[1:-1] for text in json_texts(column).to_pylist()]
    if pa.types.is_boolean(kind) or pa.types.is_nested(kind):
        return [None if text == "null" else text for text in json_texts(column).to_pylist()]
    if pa.types.is_string(kind):
        return [None if value is None else _one_line(value) for value in column.to_pylist()]
    values: list[object] = column.to_pylist()
    return values


def _one_line(value: str) -> str:
    """Text without control characters, which no reader of CSV agrees about; line ends would split the record."""
    from rmqtx_cli.text import escaped

    return escaped(value)
