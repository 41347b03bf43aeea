"""Ports: outputs for batches of one schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

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
