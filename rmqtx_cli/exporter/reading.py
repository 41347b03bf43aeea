"""One reading of stores or brokers, in a process of its own: it can be ended when it hangs, and leaves no memory.

Run as a program, reads a pickled `Request` from stdin and writes one JSON object to stdout.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from rmqtx.readers.model import clock
from rmqtx.readers.model.errors import RmqtxError
from rmqtx_cli.monitoring.measure import measure
from rmqtx_cli.monitoring.numbers import Memory
from rmqtx_cli.monitoring.remembered import became_since
from rmqtx_cli.monitoring.samples import counted_samples, exported_samples
from rmqtx_cli.output.streams import own_standard_streams
from rmqtx_cli.sources.source import AskedSource, chosen_opener
from rmqtx_cli.words.say import Voice

if TYPE_CHECKING:
    from rmqtx_cli.monitoring.metrics import Samples

#: How long a killed process may take to end; one that waits for a dead file system may never.
END_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Request:
    """What to read. `before`: the numbers of the reading before, as `Numbers.as_memory` returns them."""

    source: AskedSource
    before: Memory | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a reading. `growth`: by how much counters grow. `memory`: `before` of the next reading."""

    samples: Samples
    growth: Samples
    memory: Memory


class AnswerValues(TypedDict):
    """An answer as the process writes it: the fields of `Answer`."""

    samples: Samples
    growth: Samples
    memory: Memory


class Failed(Exception):
    """A reading that gave no answer. `result`: the value of the label of rmqtx_readings_total."""

    def __init__(self, message: str, result: str = "failed") -> None:
        super().__init__(message)
        self.result = result


def read(request: Request) -> AnswerValues:
    """Return the fields of the answer to a request. Raises: RmqtxError."""
    opener = chosen_opener(request.source, Voice(quiet=True), "rmqtx exporter STORE")
    with opener.opened() as source:
        for line in source.conf_lines() if request.before is None else ():  # once, with the first reading
            Voice().note(line)
        numbers = measure(source, clock.now_ms())
        became = became_since(source, numbers, request.before)
    return {
        "samples": exported_samples(numbers, request.before),
        "growth": counted_samples(numbers, became),
        "memory": numbers.as_memory(request.before),
    }


class ReadingProcess:
    """Starts one reading at a time, and ends one that takes too long."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False

    def answer(self, request: Request) -> Answer:
        """Return the answer of a process that reads.

        Raises: Failed, also while a process that was ended earlier still exists.
        """
        with self._lock:
            if self._is_closed:
                raise Failed("the exporter ends")
            if self._process is not None and self._process.poll() is None:
                raise Failed("an earlier reading still hangs in the kernel", "timed_out")
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "rmqtx_cli.exporter.reading"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
                )
            except OSError as error:  # too little memory, too many processes
                raise Failed(f"cannot start a process: {error.strerror}") from error
        try:
            output, _ = self._process.communicate(pickle.dumps(request), self._timeout_seconds)
        except subprocess.TimeoutExpired:
            self._end()
            raise Failed(f"no answer within {self._timeout_seconds:g} s", "timed_out") from None
        if self._process.returncode != 0:
            raise Failed(f"the reading ended with status {self._process.returncode}")
        found = json.loads(output)
        if "error" in found:
            raise Failed(found["error"])
        return Answer(found["samples"], found["growth"], found["memory"])

    def close(self) -> None:
        """End a reading that runs; none begins after it. The thread that waits for its answer closes its pipes."""
        with self._lock:
            self._is_closed = True
        if self._process is not None:
            self._process.kill()

    def _end(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.kill()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            return  # the next reading finds that it still exists
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


def main() -> None:
    """Answer the request on stdin."""
    own_standard_streams()
    request = pickle.load(sys.stdin.buffer)
    try:
        text = json.dumps(read(request))
    except RmqtxError as error:
        text = json.dumps({"error": str(error)})
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
