"""JSON: one object per line, or one list of objects; always UTF-8."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from rmqtx.verdicts.audit.provenance import METADATA_KEY
from rmqtx_cli.output.jsontext import json_rows, text_bytes
from rmqtx_cli.output.streams import pieces

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtx_cli.output.views import View


#: Between two elements of a list.
_BETWEEN = b",\n"


class JsonLinesPort:
    """One object per line; before them the provenance, if the schema contains it."""

    def __init__(self, stream: IO[bytes], schema: pa.Schema, _view: View) -> None:
        self._stream = stream
        meta = (schema.metadata or {}).get(METADATA_KEY)
        if meta is not None:
            self._stream.write(b'{"meta":' + meta + b"}\n")

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows, each on its own line."""
        for part in pieces(batch):
            self._stream.write(text_bytes(json_rows(part, "\n")))

    def flush(self) -> None:
        """Flush the rows."""
        self._stream.flush()

    def finish(self) -> None:
        """Nothing to write at the end."""


class JsonPort:
    """One list of objects, one on each line; without rows an empty list."""

    def __init__(self, stream: IO[bytes], _schema: pa.Schema, _view: View) -> None:
        self._stream = stream
        self._separator = b"["

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows as more elements of the list."""
        for part in pieces(batch):
            rows = text_bytes(json_rows(part, _BETWEEN.decode()))
            self._stream.write(self._separator)
            self._stream.write(rows.slice(0, rows.size - len(_BETWEEN)))
            self._separator = _BETWEEN

    def finish(self) -> None:
        """Close the list."""
        self._stream.write(b"]\n" if self._separator != b"[" else b"[]\n")
