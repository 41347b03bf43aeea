"""Streams for results: stdout, a terminal, or a file that is written whole or not at all; batches in parts that fit.

The standard streams of a process that runs only rmqtx: every byte is written, or the run fails. Python writes short
without an error in two cases: with PYTHONUNBUFFERED, which is usual in containers, a write that a full disk cuts off is
not continued; and a pipe that does not block takes a part. A descriptor that the caller closed would be given to the
next file that is opened.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, TextIO, cast

from rmqtx.readers.model.errors import UnwritableFile
from rmqtx.readers.storage.temporary import temporary_beside
from rmqtx_cli.words import progress

if TYPE_CHECKING:
    import pyarrow as pa

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

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


_STDIN, _STDOUT, _STDERR = 0, 1, 2
#: How often a command that waits looks whether stdout still has a reader.
_READER_EVERY_SECONDS = 1.0


class WholeFile(io.FileIO):
    """A descriptor to which a write gives all bytes, however many calls it takes; it waits for a full pipe.

    Shape: `failure` is the first error. It is raised once; later bytes are dropped, because a result with a hole in it
    is worse than one that ends.
    """

    failure: OSError | None = None

    def write(self, data: ReadableBuffer, /) -> int:
        """Write all bytes; return their number. Raises: OSError."""
        with memoryview(data) as view, view.cast("B") as rest:
            done_bytes = 0
            while done_bytes < len(rest) and self.failure is None:
                try:
                    written_bytes = self._written(rest[done_bytes:])
                except BlockingIOError:
                    self._wait()
                except OSError as error:
                    self.failure = error
                    raise
                else:
                    done_bytes += written_bytes
            return len(rest)

    def _written(self, data: memoryview) -> int:
        """Write some bytes; return their number, which is never 0."""
        written_bytes = os.write(self.fileno(), data)
        if not written_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return written_bytes

    def _wait(self) -> None:
        """Wait until the reader has made room, or is gone."""
        waiting = select.poll()
        waiting.register(self.fileno(), select.POLLOUT)
        waiting.poll()


class _ClosedOutput(WholeFile):
    """In place of an output that the caller closed: the first write fails."""

    def _written(self, _data: memoryview) -> int:
        raise OSError(errno.EBADF, "cannot write the results", "standard output is closed")


def own_standard_streams() -> None:
    """Replace the three streams of this process. Without stdin nothing is read; without stderr notes are dropped."""
    _open_missing_descriptors()
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - open until the process ends
    kind = WholeFile if sys.stdout is not None else _ClosedOutput
    sys.stdout = _text(kind(_STDOUT, "w", closefd=False), sys.stdout)
    sys.stderr = _text(WholeFile(_STDERR, "w", closefd=False), sys.stderr, is_by_line=True)


def _open_missing_descriptors() -> None:
    """Open the null device where one of the first three descriptors is closed."""
    for number in (_STDIN, _STDOUT, _STDERR):
        try:
            os.fstat(number)
        except OSError:
            descriptor = os.open(os.devnull, os.O_RDWR)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)


def _text(raw: WholeFile, before: TextIO | None, *, is_by_line: bool = False) -> TextIO:
    """A stream for text on `raw`, with the encoding of the stream that it replaces."""
    encoding, errors = ("utf-8", "backslashreplace") if before is None else (before.encoding, before.errors)
    is_by_line = is_by_line or raw.isatty()
    return cast("TextIO", io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors, line_buffering=is_by_line))


def end_of_stdout() -> None:
    """Flush stdout; raise the error of this or an earlier write. Raises: OSError, ValueError."""
    sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(raw, WholeFile):
        if raw.failure is not None:
            raise raw.failure
        os.close(os.dup(raw.fileno()))  # some network file systems report a full disk only then


def require_reader() -> None:
    """Require that what reads stdout is still there, for commands that print only when something changes.

    Raises: BrokenPipeError if stdout is a pipe without a reader.
    """
    try:
        descriptor = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):
        return  # no descriptor: not a pipe
    waiting = select.poll()
    waiting.register(descriptor, 0)
    if any(event & (select.POLLERR | select.POLLHUP) for _, event in waiting.poll(0)):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def pause(seconds: float) -> None:
    """Wait, as long as stdout has a reader. Raises: BrokenPipeError as `require_reader`."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        require_reader()
        time.sleep(min(left, _READER_EVERY_SECONDS))


def leave_stdout() -> None:
    """Redirect stdout to the null device, so that the interpreter can flush the rest after a closed pipe."""
    descriptor = os.open(os.devnull, os.O_WRONLY)
    os.dup2(descriptor, sys.stdout.fileno())
    os.close(descriptor)
