"""The amount that one task of an audit reads, and the amount that one task judges: larger for very large logs."""

from __future__ import annotations

from rmqtx.readers.log.splits import SPLIT_BYTES

#: Log bytes whose transactions one task judges: a task costs as much as judging those of 2 MiB.
PARTITION_BYTES = 96 << 20
#: Log bytes that one task reads, and whose transactions one task judges, for very large logs: a few hundred MB of
#: memory for each task. Smaller tasks would exchange more small pieces than data.
PARTITION_BYTES_MAX = 512 << 20
SPLIT_BYTES_MAX = 1 << 30
#: Rows of a split for one partition, as a target, and bytes of log of a transaction's records, on average.
_ROWS_TOGETHER_MIN = 32
_TRANSACTION_BYTES = 1_400


def sizes_for(total_bytes: int) -> tuple[int, int]:
    """Return the log bytes that one task reads, and the log bytes whose transactions one task judges.

    Units: bytes. Every reading task has rows for every judging task: with the usual sizes, 10 TB would give thousands
    of millions of pieces of one or two rows each.
    """
    partition_bytes, split_bytes = PARTITION_BYTES, SPLIT_BYTES

    def rows_together() -> int:
        return split_bytes // _TRANSACTION_BYTES * partition_bytes // max(total_bytes, 1)

    while partition_bytes < PARTITION_BYTES_MAX and rows_together() < _ROWS_TOGETHER_MIN:
        partition_bytes = min(2 * partition_bytes, PARTITION_BYTES_MAX)
    while split_bytes < SPLIT_BYTES_MAX and rows_together() < _ROWS_TOGETHER_MIN:
        split_bytes *= 2
    return split_bytes, partition_bytes
