"""Batches in parts that are small enough to be turned into text in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows that are turned into text at once: fewer if they have long lists of evidence.
PIECE_ROWS_MAX = 8_192
_PIECE_ROWS_MIN = 512
_PIECE_BYTES = 4 << 20


def pieces(batch: pa.RecordBatch, rows_max: int = PIECE_ROWS_MAX) -> Iterator[pa.RecordBatch]:
    """The rows of a batch in parts; none for an empty batch."""
    fitting = batch.num_rows * _PIECE_BYTES // max(1, batch.nbytes)
    rows_max = min(rows_max, max(_PIECE_ROWS_MIN, fitting))
    for first in range(0, batch.num_rows, rows_max):
        yield batch.slice(first, rows_max)
