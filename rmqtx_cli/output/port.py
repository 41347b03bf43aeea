"""The one way results leave: batches go in, `finish` ends them, and nothing half-written keeps the name of a result."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol, cast

from readers.model.errors import BadRequest, UnreadableFile
from rmqtx_cli.options.configuration import OWN_FORMAT
from rmqtx_cli.options.options import OutputFormat
from rmqtx_cli.options.row_options import HAS_TIMESTAMPS
from rmqtx_cli.words import progress

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtx_cli.output.views import View

#: Permissions of what may hold bodies or keys of messages: nobody else reads it, unless its owner says so.
PRIVATE = 0o600
_BINARY = (OutputFormat.PARQUET, OutputFormat.ARROW)
_SUFFIXES = {
    ".json": OutputFormat.JSON, ".jsonl": OutputFormat.JSONL, ".ndjson": OutputFormat.JSONL, ".csv": OutputFormat.CSV,
    ".parquet": OutputFormat.PARQUET, ".arrow": OutputFormat.ARROW, ".feather": OutputFormat.ARROW,
    ".txt": OutputFormat.TABLE,
}


class Port(Protocol):
    """Something that batches of one schema can be written to."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write some more rows."""

    def finish(self) -> None:
        """Write what ends the output; called once, and only if all rows were written."""


class StreamingPort(Port, Protocol):
    """One whose rows can be shown as they come."""

    def flush(self) -> None:
        """Have everything that was written so far leave this process."""


def chosen_format(asked: OutputFormat | None, output: Path | None) -> OutputFormat:
    """The format: as asked, else by the suffix of the output file, else as the configuration file says, else a table.

    Raises: BadRequest for a suffix that names no format: a table in `rows.xlsx` is nothing that a spreadsheet opens.
    """
    if asked is not None:
        return asked
    if output is None or is_stdout(output) or _is_special(output):
        return OutputFormat(OWN_FORMAT.get() or OutputFormat.TABLE)
    if output.suffix.lower() not in _SUFFIXES:
        what = f"the suffix {output.suffix}" if output.suffix else "a name without a suffix"
        raise BadRequest(
            f"-o {output}: {what} names no format", advice=f"use one of {' '.join(_SUFFIXES)}, or say --format"
        )
    return _SUFFIXES[output.suffix.lower()]


@contextmanager
def open_port(output_format: OutputFormat, output: Path | None, schema: pa.Schema, view: View) -> Iterator[Port]:
    """A port on stdout or on a file; the file gets its name when the rows are complete.

    Raises: BadRequest for binary rows on a terminal; UnreadableFile if the file cannot be written.
    """
    make = _maker(output_format)
    if output_format in _BINARY and is_stdout(output) and sys.stdout.isatty():
        raise BadRequest(f"{output_format} is not for a terminal", advice="give -o FILE, or pipe it")
    with open_stream(output) as stream:
        if HAS_TIMESTAMPS.get() and output_format is not OutputFormat.TABLE:
            from rmqtx_cli.output.timestamps import TimestampPort

            port: Port = TimestampPort(make, stream, schema, view)
        else:
            port = make(stream, schema, view)
        yield port
        port.finish()


def is_stdout(output: Path | None) -> bool:
    """Whether results go to stdout: no file is named, or `-`."""
    return output is None or str(output) == "-"


@contextmanager
def open_stream(output: Path | None) -> Iterator[IO[bytes]]:
    """Where the bytes of results go: stdout, or a file that is written whole or not at all.

    Raises: UnreadableFile if the file cannot be written.
    """
    if output is None or is_stdout(output):
        sys.stdout.flush()
        yield cast("IO[bytes]", _Terminal()) if sys.stdout.isatty() else sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with written_whole(output, mode=PRIVATE) as stream:
        yield stream


@contextmanager
def written_whole(file: Path, *, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """A stream that becomes the file when the block ends, atomically; after an error the file is as it was.

    `mode`: the permissions of a new file, less the umask; one that is there keeps its own.
    A pipe or device (`/dev/stdout`, a fifo) is written straight to: it has no name to keep clean.
    Raises: UnreadableFile.
    """
    special = _is_special(file)
    temporary = file if special else file.with_name(f".{file.name}.{secrets.token_hex(8)}.tmp")
    flags = os.O_WRONLY | os.O_CLOEXEC | (0 if special else os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
    try:
        with open(os.open(temporary, flags, mode), "wb") as stream:
            if not special and file.exists():
                os.fchmod(stream.fileno(), file.stat().st_mode & 0o777)
            yield stream
            if not special:
                stream.flush()
                os.fsync(stream.fileno())
        if not special:
            temporary.replace(file)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UnreadableFile(f"cannot write {file}: {error.strerror or error}", file=file) from error
    finally:
        if not special:
            temporary.unlink(missing_ok=True)


class OnTerminal:
    """A stream whose bytes appear on a terminal."""


class _Terminal(OnTerminal):
    """A terminal that a bar of progress may be on: it goes before the first result comes."""

    def write(self, data: bytes) -> int:
        """Write bytes."""
        progress.clear()
        return sys.stdout.buffer.write(data)

    def flush(self) -> None:
        """Have what was written so far appear."""
        sys.stdout.buffer.flush()


def is_on_terminal(stream: object) -> bool:
    """Whether bytes of a stream appear on a terminal; those of a file that is written from one do not."""
    return isinstance(stream, OnTerminal)


def _is_special(file: Path) -> bool:
    """Whether it is a pipe, a device or a directory: nothing with a name of its own."""
    return file.exists() and not file.is_file()


def _maker(output_format: OutputFormat) -> Callable[[IO[bytes], pa.Schema, View], Port]:
    from rmqtx_cli.output import columnar, delimited, jsonlines, table

    makers: dict[OutputFormat, Callable[[IO[bytes], Any, View], Port]] = {
        OutputFormat.TABLE: table.TablePort,
        OutputFormat.JSON: jsonlines.JsonPort,
        OutputFormat.JSONL: jsonlines.JsonLinesPort,
        OutputFormat.CSV: delimited.CsvPort,
        OutputFormat.PARQUET: columnar.ParquetPort,
        OutputFormat.ARROW: columnar.ArrowPort,
    }
    return makers[output_format]
