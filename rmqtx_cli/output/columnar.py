"""Parquet and Arrow: the Arrow tables unchanged, with types and column documentation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from rmqtx_cli.output.views import View

_GROUP_BYTES = 32 << 20
#: Rows that show whether the values of a column repeat, and the least number of rows per value for a dictionary.
_SAMPLE_ROWS, _ROWS_PER_VALUE = 4_096, 4


class _Counting:
    """A stream that counts its bytes, because the writers need a position and pipes have none."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._position_bytes = 0
        self.closed = False

    def write(self, data: bytes) -> int:
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
    """Parquet, zstd; small batches are gathered into row groups of about 32 MiB.

    Columns whose values repeat in the first rows have dictionaries; for the others they would cost time and space.
    """

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

        sample = first.slice(0, _SAMPLE_ROWS).combine_chunks()
        repeating = [name for column in sample.schema.names
                     for name in _repeating(column, pa.concat_arrays(sample[column].chunks))]  # fmt: skip
        return pq.ParquetWriter(self._stream, self._schema, compression="zstd", use_dictionary=repeating)

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


def _repeating(path: str, values: pa.Array) -> Iterator[str]:
    """The paths of the Parquet columns of a column whose values repeat."""
    kind = values.type
    if pa.types.is_map(kind):
        yield from (f"{path}.key_value.{part}" for part in ("key", "value"))
    elif pa.types.is_list(kind):
        yield from _repeating(f"{path}.list.element", pc.list_flatten(values))
    elif pa.types.is_struct(kind):
        for number, part in enumerate(values.flatten()):
            yield from _repeating(f"{path}.{kind.field(number).name}", part)
    elif len(pc.unique(values)) * _ROWS_PER_VALUE <= max(len(values), 1):
        yield path


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
