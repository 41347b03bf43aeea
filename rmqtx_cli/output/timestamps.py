"""Output with timestamps instead of epoch milliseconds, for any machine format."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any, cast

from rmqtx.readers.model.moments import timestamp_schema, with_timestamps

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtx_cli.output.port_kinds import Port, StreamingPort
    from rmqtx_cli.output.views import View


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
