"""A claim about the commit log by another file of the store."""

from __future__ import annotations

from dataclasses import dataclass

#: Kinds of witnesses; `claim_proofs.py` examines each in its own way.
QUEUE, BATCH_QUEUE, ROCKSDB_QUEUE = "queue", "batch queue", "RocksDB queue"
INDEX, REDO_LOG, STATE_TABLE, ROCKSDB_TABLE = "index", "redo log", "state table", "RocksDB table"
CHECKPOINT, EPOCHS, FILES, CURSOR, METRICS, TIMER = "checkpoint", "epochs", "files", "cursor", "metrics", "timer"


@dataclass(frozen=True, slots=True)
class LogClaim:
    """The newest record of the log that another file refers to.

    Shape: `witness` is the place of that file as text; `record_offset` where the record begins, None if only
           `reach_offset` is known: the log was written up to there. Both are None if the file only shows that there
           were records. `slot` is topic, queue number and queue offset, for the claim of a queue.
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
        """The content of the claim, as the object of a sentence."""
        if self.reach_offset is not None:
            return f"records up to commit-log offset {self.reach_offset}"
        return "records" if self.store_time_ms is None else f"a record stored at {self.store_time_ms}"


def of_record(
    kind: str, witness: str, offset: int, length_bytes: int | None = None, *, store_time_ms: int | None = None,
    slot: tuple[str, int, int] | None = None,
) -> LogClaim:
    """Return a claim about a record with known place, and perhaps known length."""
    return LogClaim(kind, witness, offset + max(length_bytes or 1, 1), offset, length_bytes, store_time_ms, slot)
