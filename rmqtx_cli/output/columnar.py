"""Parquet and Arrow: the Arrow tables unchanged, with types and column documentation."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

import pyarrow as pa

from rmqtx.readers.model.parquet import parquet_options

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from rmqtx_cli.output.views import View

_GROUP_BYTES = 32 << 20


class _Counting:
    """A stream that counts its bytes, because the writers need a position and pipes have none."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._position_bytes = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        # After an error the file is closed and removed, and then pyarrow's writer ends it when it is collected.
        if not getattr(self._stream, "closed", False):
            self._stream.write(data)
        self._position_bytes += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position_bytes

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        self.closed = True

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


class ParquetPort:
    """Parquet; small batches are gathered into row groups of about 32 MiB."""

    def __init__(self, stream: IO[bytes], schema: pa.Schema, _view: View) -> None:
        self._stream = _Counting(stream)
        self._schema = schema
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Keep the rows until there are enough for a row group."""
        self._waiting.append(batch)
        self._waiting_bytes += batch.get_total_buffer_size()
        if self._waiting_bytes >= _GROUP_BYTES:
            self._flush()

    def _opened(self, first: pa.Table) -> pq.ParquetWriter:
        import pyarrow.parquet as pq

        return pq.ParquetWriter(self._stream, self._schema, **parquet_options(first))

    def _flush(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting, self._schema)
            self._writer = self._writer or self._opened(table)
            self._writer.write_table(table)
        self._waiting, self._waiting_bytes = [], 0

    def finish(self) -> None:
        """Write the last row group and the footer."""
        self._flush()
        (self._writer or self._opened(self._schema.empty_table())).close()


class ArrowPort:
    """Arrow IPC as a stream, for pipes and files (`pyarrow.ipc.open_stream`)."""

    def __init__(self, stream: IO[bytes], schema: pa.Schema, _view: View) -> None:
        self._writer = pa.ipc.new_stream(_Counting(stream), schema)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write one more batch."""
        self._writer.write_batch(batch)

    def finish(self) -> None:
        """Write the end of the stream."""
        self._writer.close()
