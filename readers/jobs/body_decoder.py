"""Message bodies through a filter of the user: one process for many bodies, one line in, one line out.

The filter gets each body, decompressed, as one line of base64 on its standard input, and answers each with one line of
UTF-8 text, in the same order, written at once (flushed). An empty line: it cannot decode this body. It is run without a
shell. A filter that fails, or does not answer in time, is ended; the bodies that are left have no text, and the reason
is kept. What it prints is text of the store: it is escaped like that.
"""

from __future__ import annotations

import base64
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import IO

import pyarrow as pa

from rmqtx.readers.model.tables import column

#: The column with the texts of a filter.
DECODED = "body_decoded"
DECODED_FIELD = column(DECODED, pa.string(), "the body as text by --body-decoder; null where it printed none")
#: How long the filter may take for one answer, and for its end.
ANSWER_SECONDS_MAX = 10.0
#: A longer answer is a failure: it would have to be kept in memory.
_ANSWER_BYTES_MAX = 16 << 20
_PART_BYTES = 1 << 16
_SAID_BYTES_MAX = 400
_TOO_MANY = "it printed more lines than it got bodies: its texts may be of other bodies"
#: What a filter does not get from the environment.
_SECRETS = ("RMQTX_ACCESS_KEY", "RMQTX_SECRET_KEY", "RMQTX_LEDGER_USER", "RMQTX_LEDGER_PASSWORD")


class BodyDecoder:
    """A running filter, from its first body to the end of the block.

    Shape: `decoded_count` and `undecoded_count`: bodies with and without a text; `failure`: why it was ended, or None.
    """

    def __init__(self, command: Sequence[str], seconds_max: float = ANSWER_SECONDS_MAX) -> None:
        self.decoded_count = 0
        self.undecoded_count = 0
        self.failure: str | None = None
        self._command = list(command)
        self._seconds_max = seconds_max
        self._process: subprocess.Popen[bytes] | None = None
        self._out = bytearray()
        self._said = bytearray()

    def __enter__(self) -> BodyDecoder:
        """Return it; the process starts with the first body."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process: it gets the end of its input, and after a while SIGKILL."""
        self.close(is_orderly=kind is None)

    def decoded(self, bodies: Sequence[bytes | None]) -> list[str | None]:
        """Return the text for each body; None without a body or a text."""
        places = [place for place, body in enumerate(bodies) if body is not None]
        answers = self._answers([bodies[place] or b"" for place in places])
        found: list[str | None] = [None] * len(bodies)
        for place, answer in zip(places, answers, strict=False):
            found[place] = answer.decode("utf-8", "backslashreplace") if answer else None
        decoded_count = sum(one is not None for one in found)
        self.decoded_count += decoded_count
        self.undecoded_count += len(places) - decoded_count
        return found

    def note(self) -> str | None:
        """Return a sentence about a failure, or about bodies without a text; None if each has one."""
        counts = f"{self.decoded_count} of {self.decoded_count + self.undecoded_count} bodies decoded"
        if self.failure is not None:
            return f"--body-decoder failed: {self.failure}; {counts}"
        return f"--body-decoder: {counts}, for the others it printed an empty line" if self.undecoded_count else None

    def close(self, *, is_orderly: bool = True) -> None:
        """End the process. `is_orderly`: report it if it ends with an error."""
        process = self._process
        if process is None:
            return
        self._process = None
        if is_orderly and self.failure is None:
            with suppress(OSError):
                _pipe(process.stdin).close()
            try:
                status = process.wait(self._seconds_max)
                if status != 0:
                    self.failure = f"it ended with {_status_words(status)}{self._said_words(process)}"
                elif self._out.strip() or _rest(_pipe(process.stdout)).strip():
                    self.failure = _TOO_MANY
            except subprocess.TimeoutExpired:
                self.failure = f"it did not end within {self._seconds_max:g} s after its last body"
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            with suppress(OSError):
                _pipe(pipe).close()

    # -- one batch ----------------------------------------------------------------------------------------------------

    def _answers(self, bodies: list[bytes]) -> list[bytes]:
        """Return the answers for some bodies: fewer if the filter fails."""
        if not bodies or self.failure is not None:
            return []
        process = self._process or self._started()
        if process is None:
            return []
        if self._out or _rest(_pipe(process.stdout)):
            return self._failed(process, _TOO_MANY, [])
        given = memoryview(b"".join(base64.b64encode(body) + b"\n" for body in bodies))
        answers: list[bytes] = []
        until = time.monotonic() + self._seconds_max
        with selectors.DefaultSelector() as selector:
            for pipe in (process.stdout, process.stderr):
                selector.register(_pipe(pipe), selectors.EVENT_READ)
            selector.register(_pipe(process.stdin), selectors.EVENT_WRITE)
            while len(answers) < len(bodies):
                left = until - time.monotonic()
                if left <= 0:
                    after = f"no answer within {self._seconds_max:g} s"
                    return self._failed(process, f"{after} (does it write each line at once?)", answers)
                for key, _ in selector.select(left):
                    if key.fileobj is process.stdin:
                        given = self._write(key.fd, given)
                        if not given:
                            selector.unregister(key.fileobj)
                    elif key.fileobj is process.stderr:
                        if not self._hear(key.fd):
                            selector.unregister(key.fileobj)
                    else:
                        lines = self._lines(key.fd)
                        if lines is None:
                            return self._failed(process, self._end_words(process), answers)
                        answers += lines
                        until = time.monotonic() + self._seconds_max if lines else until
                if len(self._out) > _ANSWER_BYTES_MAX:
                    return self._failed(process, f"an answer is longer than {_ANSWER_BYTES_MAX >> 20} MiB", answers)
        if len(answers) > len(bodies):
            return self._failed(process, _TOO_MANY, [])
        return answers

    def _started(self) -> subprocess.Popen[bytes] | None:
        environment = {name: value for name, value in os.environ.items() if name not in _SECRETS}
        try:
            process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
                start_new_session=True, env={**environment, "PYTHONUNBUFFERED": "1"},
            )
        except (OSError, ValueError) as error:
            self.failure = f"cannot run {self._command[0]}: {getattr(error, 'strerror', None) or error}"
            return None
        for pipe in (process.stdin, process.stdout, process.stderr):
            os.set_blocking(_pipe(pipe).fileno(), False)
        self._process = process
        return process

    def _write(self, descriptor: int, given: memoryview) -> memoryview:
        try:
            return given[os.write(descriptor, given[:_PART_BYTES]) :]
        except BlockingIOError:
            return given
        except OSError:  # it has ended: its output shows that
            return memoryview(b"")

    def _hear(self, descriptor: int) -> bool:
        """Keep the last bytes that it printed on stderr; return whether there may be more."""
        try:
            part = os.read(descriptor, _PART_BYTES)
        except BlockingIOError:
            return True
        self._said = (self._said + part)[-_SAID_BYTES_MAX:]
        return bool(part)

    def _lines(self, descriptor: int) -> list[bytes] | None:
        """Return the whole lines that came; None at the end of its output."""
        try:
            part = os.read(descriptor, _PART_BYTES)
        except BlockingIOError:
            return []
        if not part:
            return None
        self._out += part
        if b"\n" not in part:
            return []
        *lines, rest = bytes(self._out).split(b"\n")
        self._out = bytearray(rest)
        return [line.removesuffix(b"\r") for line in lines]

    def _failed(self, process: subprocess.Popen[bytes], why: str, answers: list[bytes]) -> list[bytes]:
        self.failure = why + self._said_words(process)
        self.close(is_orderly=False)
        return answers

    def _end_words(self, process: subprocess.Popen[bytes]) -> str:
        try:
            return f"it ended with {_status_words(process.wait(1))} before its last answer"
        except subprocess.TimeoutExpired:
            return "it closed its output before its last answer"

    def _said_words(self, process: subprocess.Popen[bytes]) -> str:
        """What it printed on stderr, as a part of a sentence."""
        said = (self._said + _rest(_pipe(process.stderr)))[-_SAID_BYTES_MAX:]
        text = " ".join(bytes(said).decode("utf-8", "backslashreplace").split())
        return f": {text}" if text else ""


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def _rest(pipe: IO[bytes]) -> bytes:
    """Return what can be read at once."""
    with suppress(OSError, ValueError):
        return os.read(pipe.fileno(), _PART_BYTES)
    return b""


def _status_words(status: int) -> str:
    return f"status {status}" if status >= 0 else f"signal {-status}"
