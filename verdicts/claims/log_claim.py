"""One thing beside a commit log that knows a record of it."""

from __future__ import annotations

from dataclasses import dataclass

#: Who makes a claim; `claim_proofs.py` knows how each is examined.
QUEUE, BATCH_QUEUE, ROCKSDB_QUEUE = "queue", "batch queue", "RocksDB queue"
INDEX, REDO_LOG, STATE_TABLE, ROCKSDB_TABLE = "index", "redo log", "state table", "RocksDB table"
CHECKPOINT, EPOCHS, FILES, CURSOR, METRICS, TIMER = "checkpoint", "epochs", "files", "cursor", "metrics", "timer"


@dataclass(frozen=True, slots=True)
class LogClaim:
    """What one file beside the log knows of the newest record that it has met.

    Shape: `witness` is its place in words; `record_offset` where the record begins, None where only `reach_offset` is
           known: the log had been written up to there. Both are None for what only knows that there were records.
           `slot` is topic, queue number and queue offset, for the claim of a queue.
    Units: commit-log offsets in bytes; milliseconds.
    """

    kind: str
    witness: str
    reach_offset: int | None = None
    record_offset: int | None = None
    record_length_bytes: int | None = None
    store_time_ms: int | None = None
    slot: tuple[str, int, int] | None = None

    @property
    def words(self) -> str:
        """What it knows, for a sentence after its witness."""
        if self.reach_offset is not None:
            return f"records up to commit-log offset {self.reach_offset}"
        return "records" if self.store_time_ms is None else f"a record stored at {self.store_time_ms}"


def of_record(
    kind: str, witness: str, offset: int, length_bytes: int | None = None, *, store_time_ms: int | None = None,
    slot: tuple[str, int, int] | None = None,
) -> LogClaim:
    """The claim of something that knows where a record begins, and perhaps how long it is."""
    return LogClaim(kind, witness, offset + max(length_bytes or 1, 1), offset, length_bytes, store_time_ms, slot)
