"""Batches in parts that are small enough to be turned into text in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows that are turned into text at once.
PIECE_ROWS_MAX = 8_192


def pieces(batch: pa.RecordBatch, rows_max: int = PIECE_ROWS_MAX) -> Iterator[pa.RecordBatch]:
    """The rows of a batch in parts; none for an empty batch."""
    for first in range(0, batch.num_rows, rows_max):
        yield batch.slice(first, rows_max)
