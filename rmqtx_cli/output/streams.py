"""Streams for results: stdout, a terminal, or a file that is written whole or not at all; batches in parts that fit."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from rmqtx.readers.model.errors import UnwritableFile
from rmqtx.readers.storage.temporary import temporary_beside
from rmqtx_cli.words import progress

if TYPE_CHECKING:
    import pyarrow as pa

#: Permissions of files that may contain message bodies or keys: readable for the owner only.
PRIVATE = 0o600
#: Rows that are turned into text at once: fewer if they have long lists of evidence.
PIECE_ROWS_MAX = 8_192
_PIECE_ROWS_MIN = 512
_PIECE_BYTES = 4 << 20


def is_stdout(output: Path | None) -> bool:
    """Whether results go to stdout: no file is named, or `-`."""
    return output is None or str(output) == "-"


@contextmanager
def open_stream(output: Path | None) -> Iterator[IO[bytes]]:
    """The stream for results: stdout, or a file that is written whole or not at all.

    Raises: UnwritableFile if the file cannot be written.
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
    """A stream that replaces the file atomically when the block ends; after an error the file is unchanged.

    `mode`: the permissions of a new file, before the umask; an existing file keeps its own.
    A pipe or device (`/dev/stdout`, a fifo) is written directly.
    Raises: UnwritableFile.
    """
    special = is_special(file)
    temporary = file if special else temporary_beside(file)
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
        raise UnwritableFile(f"cannot write {file}: {error.strerror or error}", file=file) from error
    finally:
        if not special:
            temporary.unlink(missing_ok=True)


class OnTerminal:
    """A stream whose bytes appear on a terminal."""


class _Terminal(OnTerminal):
    """Stdout on a terminal: the progress bar is removed before the first result is written."""

    def write(self, data: bytes) -> int:
        """Write bytes."""
        progress.clear()
        return sys.stdout.buffer.write(data)

    def flush(self) -> None:
        """Flush what was written so far."""
        sys.stdout.buffer.flush()


def is_on_terminal(stream: object) -> bool:
    """Whether the bytes of a stream appear on a terminal."""
    return isinstance(stream, OnTerminal)


def is_special(file: Path) -> bool:
    """Whether the path is a pipe, a device or a directory."""
    return file.exists() and not file.is_file()


def pieces(batch: pa.RecordBatch, rows_max: int = PIECE_ROWS_MAX) -> Iterator[pa.RecordBatch]:
    """The rows of a batch in parts; none for an empty batch."""
    fitting = batch.num_rows * _PIECE_BYTES // max(1, batch.nbytes)
    rows_max = min(rows_max, max(_PIECE_ROWS_MIN, fitting))
    for first in range(0, batch.num_rows, rows_max):
        yield batch.slice(first, rows_max)
