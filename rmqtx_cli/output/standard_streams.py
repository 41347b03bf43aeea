"""Standard input, output and error of a process that runs only rmqtx: every byte is written, or the run fails.

Python writes short without an error in two cases: with PYTHONUNBUFFERED, which is usual in containers, a write that a
full disk cuts off is not continued; and a pipe that does not block takes a part. A descriptor that the caller closed
would be given to the next file that is opened.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
import time
from typing import TYPE_CHECKING, TextIO, cast

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

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
    """Flush stdout; raise the error of this or an earlier write.

    Raises: OSError, ValueError.
    """
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
    """Wait, as long as stdout has a reader.

    Raises: BrokenPipeError as `require_reader`.
    """
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        require_reader()
        time.sleep(min(left, _READER_EVERY_SECONDS))


def leave_stdout() -> None:
    """Redirect stdout to the null device, so that the interpreter can flush the rest after a closed pipe."""
    descriptor = os.open(os.devnull, os.O_WRONLY)
    os.dup2(descriptor, sys.stdout.fileno())
    os.close(descriptor)
