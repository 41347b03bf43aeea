"""What batches of one schema can be written to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


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
