"""How much one task of an audit reads, and how much one judges: more of both where a log is very large."""

from __future__ import annotations

from readers.log.splits import SPLIT_BYTES
from verdicts.audit.local_audit import PARTITION_BYTES

#: Log bytes whose transactions are judged at once, and read at once, where a log is very large: a few hundred MB of
#: memory for each task. Small pieces of large logs would be more, between them, than what is in them.
PARTITION_BYTES_MAX = 512 << 20
SPLIT_BYTES_MAX = 1 << 30
#: A split's rows for one partition should be so many, and a transaction's records take about so many bytes of log.
_ROWS_TOGETHER_MIN = 32
_TRANSACTION_BYTES = 1_400


def sizes_for(total_bytes: int) -> tuple[int, int]:
    """How much of the logs one task reads, and the log bytes whose transactions one task judges.

    Units: bytes. Every task that reads leaves something for every task that judges: with the usual sizes there would be
    thousands of millions of such pieces in 10 TB, of a row or two each.
    """
    partition_bytes, split_bytes = PARTITION_BYTES, SPLIT_BYTES

    def rows_together() -> int:
        return split_bytes // _TRANSACTION_BYTES * partition_bytes // max(total_bytes, 1)

    while partition_bytes < PARTITION_BYTES_MAX and rows_together() < _ROWS_TOGETHER_MIN:
        partition_bytes = min(2 * partition_bytes, PARTITION_BYTES_MAX)
    while split_bytes < SPLIT_BYTES_MAX and rows_together() < _ROWS_TOGETHER_MIN:
        split_bytes *= 2
    return split_bytes, partition_bytes
