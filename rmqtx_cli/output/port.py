"""Output of results: a port takes batches, `finish` ends the output, and an incomplete file never gets its name."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import IO, TYPE_CHECKING, Any, Protocol, cast

from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.moments import timestamp_schema, with_timestamps
from rmqtx_cli.options.next_commands import own_format
from rmqtx_cli.options.options import OutputFolder, OutputFormat, RowForm
from rmqtx_cli.output.page import PagePort
from rmqtx_cli.output.streams import is_special, is_stdout, open_stream

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtx_cli.output.views import View

class Port(Protocol):
    """An output for batches of one schema."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows."""

    def finish(self) -> None:
        """End the output; called once, after all rows."""


class StreamingPort(Port, Protocol):
    """A port whose rows can be flushed before the end."""

    def flush(self) -> None:
        """Flush everything that was written so far."""


class _Write(Thread):
    """A thread that writes one batch. Pools of threads take 4 ms to import, which most outputs do not need."""

    def __init__(self, port: Port, batch: pa.RecordBatch) -> None:
        super().__init__(name="rmqtx-write")
        self._port, self._batch = port, batch
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        """Write the batch."""
        try:
            self._port.write(self._batch)
        except BaseException as error:
            self._error = error

    def result(self) -> None:
        """Wait until the batch is written. Raises: the error of the write."""
        self.join()
        if self._error is not None:
            raise self._error


class WriteBehind:
    """A port that writes a batch in a thread while the next one is made; at most one batch is under way.

    Encoding is half the time of a long output, and encoders of columns run without Python's lock, so a second core can
    do it. Use the port in a `with` block, which waits for the batch. An error of a write is raised by the next call.
    Most outputs have one batch, and no thread.
    """

    def __init__(self, port: Port) -> None:
        self._port = port
        self._is_begun = False
        self._writing: _Write | None = None

    @property
    def formulas_count(self) -> int:
        """See `CsvPort`; 0 for other formats."""
        return int(getattr(self._port, "formulas_count", 0))

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the first batch, or begin to write a further one."""
        if not self._is_begun:
            self._is_begun = True
            self._port.write(batch)
            return
        self._wait()
        self._writing = _Write(self._port, batch)

    def flush(self) -> None:
        """Flush everything that was written so far; the format can be streamed."""
        self._wait()
        cast("StreamingPort", self._port).flush()

    def finish(self) -> None:
        """End the output."""
        self._wait()
        self._port.finish()

    def _wait(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def __enter__(self) -> WriteBehind:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writing is not None:
            self._writing.join()


class TimestampPort:
    """A port that passes rows to another port, with timestamps instead of epoch milliseconds."""

    def __init__(
        self, make: Callable[[IO[bytes], pa.Schema, View], Port], stream: IO[bytes], schema: pa.Schema, view: View
    ) -> None:
        self._port = make(stream, timestamp_schema(schema), view)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows."""
        self._port.write(with_timestamps(batch))

    def flush(self) -> None:
        """Flush the rows."""
        cast("StreamingPort", self._port).flush()

    def finish(self) -> None:
        """End the output."""
        self._port.finish()


_BINARY = (OutputFormat.PARQUET, OutputFormat.ARROW)
_SUFFIXES = {
    ".json": OutputFormat.JSON, ".jsonl": OutputFormat.JSONL, ".ndjson": OutputFormat.JSONL, ".csv": OutputFormat.CSV,
    ".parquet": OutputFormat.PARQUET, ".arrow": OutputFormat.ARROW, ".feather": OutputFormat.ARROW,
    ".txt": OutputFormat.TABLE,
}
#: Format → module in this folder, and the class in it: a run imports only its own.
_MAKERS = {
    OutputFormat.TABLE: ("table", "TablePort"),
    OutputFormat.JSON: ("jsontext", "JsonPort"),
    OutputFormat.JSONL: ("jsontext", "JsonLinesPort"),
    OutputFormat.CSV: ("delimited", "CsvPort"),
    OutputFormat.PARQUET: ("columnar", "ParquetPort"),
    OutputFormat.ARROW: ("columnar", "ArrowPort"),
}


def chosen_format(asked: OutputFormat | None, output: Path | None) -> OutputFormat:
    """The format: the option, else the suffix of the output file, else the configuration file, else a table.

    Raises: BadRequest for a file name whose suffix is not that of a format.
    """
    if isinstance(output, OutputFolder):
        raise BadRequest(f"-o {output.place} is a folder: only rmqtx audit writes folders", advice="give a file")
    if asked is not None:
        return asked
    if output is None or is_stdout(output) or is_special(output):
        return OutputFormat(own_format() or OutputFormat.TABLE)
    if output.suffix.lower() not in _SUFFIXES:
        what = f"the suffix {output.suffix}" if output.suffix else "a name without a suffix"
        raise BadRequest(
            f"-o {output}: {what} names no format", advice=f"use one of {' '.join(_SUFFIXES)}, or add --format"
        )
    return _SUFFIXES[output.suffix.lower()]


def other_suffix(asked: OutputFormat | None, output: Path | None) -> str | None:
    """A note about a file whose suffix names another format than --format; None where there is nothing to say."""
    if asked is None or output is None or _SUFFIXES.get(output.suffix.lower(), asked) is asked:
        return None
    return f"{output} is written as {asked} (--format), although its name ends in {output.suffix}"


@contextmanager
def open_port(
    output_format: OutputFormat, output: Path | None, schema: pa.Schema, view: View, form: RowForm | None = None
) -> Iterator[Port]:
    """A port on stdout or on a file; the file gets its name when the rows are complete.

    `form`: how values are written.
    Raises: BadRequest for binary rows on a terminal; UnwritableFile if the file cannot be written.
    """
    form = form or RowForm()
    make = _maker(output_format, form) if output_format is not OutputFormat.TABLE or view.page is None else PagePort
    if output_format in _BINARY and is_stdout(output) and sys.stdout.isatty():
        raise BadRequest(f"{output_format} cannot be printed on a terminal", advice="add -o FILE, or use a pipe")
    with open_stream(output) as stream:
        if form.timestamps and output_format is not OutputFormat.TABLE:
            port: Port = TimestampPort(make, stream, schema, view)
        else:
            port = make(stream, schema, view)
        if output_format is OutputFormat.TABLE:
            yield port
            port.finish()
        else:
            with WriteBehind(port) as behind:
                yield behind
                behind.finish()


def _maker(output_format: OutputFormat, form: RowForm) -> Callable[[IO[bytes], pa.Schema, View], Port]:
    module, name = _MAKERS[output_format]
    maker = getattr(importlib.import_module(f"rmqtx_cli.output.{module}"), name)
    made: Callable[[IO[bytes], pa.Schema, View], Port] = maker
    return functools.partial(maker, is_safe=form.csv_safe) if output_format is OutputFormat.CSV else made
