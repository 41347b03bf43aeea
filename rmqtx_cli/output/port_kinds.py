"""Ports: outputs for batches of one schema."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    import pyarrow as pa


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


class WriteBehind:
    """A port that writes a batch in a thread while the next one is made; at most one batch is under way.

    Encoding is half the time of a long output, and encoders of columns run without Python's lock, so a second core can
    do it. Use the port in a `with` block, which waits for the batch. An error of a write is raised by the next call.
    Most outputs have one batch, and no thread.
    """

    def __init__(self, port: Port) -> None:
        self._port = port
        self._is_begun = False
        self._thread: ThreadPoolExecutor | None = None
        self._writing: Future[None] | None = None

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
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "rmqtx-write")
        self._writing = self._thread.submit(self._port.write, batch)

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=True)
