"""CSV and JSON lines as files of an export: the same text that the commands print."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyarrow as pa

from rmqtx.readers.model.moments import timestamp_schema, with_timestamps
from rmqtx.verdicts.export.partition_files import ArrowForm, FileForm, ParquetForm, RowsFile
from rmqtx_cli.options.options import OutputFormat, RowForm
from rmqtx_cli.output.delimited import CsvPort
from rmqtx_cli.output.jsontext import JsonLinesPort
from rmqtx_cli.output.port import Port
from rmqtx_cli.output.views import View

#: The formats of an export; tables are for people, and a JSON list cannot be continued.
EXPORT_FORMATS = (OutputFormat.PARQUET, OutputFormat.ARROW, OutputFormat.CSV, OutputFormat.JSONL)


@dataclass(frozen=True, slots=True)
class TextForm:
    """CSV or JSON lines. `with_meta`: JSON lines begin with their provenance. `is_csv_safe`: as --csv-safe."""

    suffix: str
    with_meta: bool = False
    is_csv_safe: bool = False

    def open(self, path: Path, schema: pa.Schema) -> RowsFile:
        """A new file."""
        stream = path.open("wb")
        given = schema if self.with_meta else schema.remove_metadata()
        port: Port
        if self.suffix == "csv":
            port = CsvPort(stream, given, View(()), is_safe=self.is_csv_safe)
        else:
            port = JsonLinesPort(stream, given, View(()))
        return _TextFile(stream, port)


@dataclass(frozen=True, slots=True)
class TimestampForm:
    """Files of another form, with timestamps in place of epoch milliseconds."""

    form: FileForm

    @property
    def suffix(self) -> str:
        """The suffix of their names."""
        return self.form.suffix

    def open(self, path: Path, schema: pa.Schema) -> RowsFile:
        """A new file."""
        return _TimestampFile(self.form.open(path, timestamp_schema(schema)))


@dataclass(slots=True)
class _TimestampFile:
    file: RowsFile

    def write(self, rows: pa.RecordBatch) -> None:
        self.file.write(with_timestamps(rows))

    def finish(self) -> None:
        self.file.finish()


@dataclass(slots=True)
class _TextFile:
    stream: IO[bytes]
    port: Port

    def write(self, rows: pa.RecordBatch) -> None:
        self.port.write(rows)

    def finish(self) -> None:
        self.port.finish()
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self.stream.close()


def form_of(output_format: OutputFormat, rows: RowForm, *, with_meta: bool) -> FileForm:
    """The writer of files in a format. `rows`: how values are written."""
    form: FileForm
    if output_format is OutputFormat.PARQUET:
        form = ParquetForm()
    elif output_format is OutputFormat.ARROW:
        form = ArrowForm()
    else:
        form = TextForm(output_format.value, with_meta, rows.csv_safe)
    return TimestampForm(form) if rows.timestamps else form
