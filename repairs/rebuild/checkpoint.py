"""Rebuilding the checkpoint, whose times of flushed files are right for a store whose files are all on disk."""

from __future__ import annotations

from pathlib import Path

from readers.store.checkpoint import CHECKPOINT_FIELDS, SIZE_BYTES, checkpoint_values
from readers.store.store import Store
from repairs.changes.new_stores import write_at


def write_checkpoint(
    root: Path,
    store: Store | None,
    *,
    log_time_ms: int,
    queues_time_ms: int,
    index_time_ms: int,
) -> dict[str, int]:
    """Write the checkpoint of a store below `root`, and return its values.

    `log_time_ms`, `queues_time_ms`: store time of the last record of the log, and of the last one in a queue;
    `index_time_ms`: that of the last entry of the last full index file. Offsets confirmed by replicas are taken from
    the checkpoint of `store` as far as the log reaches, because no record contains them. The offset of the last record
    in the queues (5.5.0) stays 0, as after a clean stop of that version.
    Raises: OSError.
    Source: store/StoreCheckpoint.java; docs/formats/store.md#checkpoint.
    """
    known = {} if store is None else checkpoint_values(store)
    values = {
        "physic_msg_time_ms": log_time_ms,
        "logics_msg_time_ms": queues_time_ms,
        "index_msg_time_ms": index_time_ms,
    }
    if store is not None and store.commit_log:
        for name in ("master_flushed_offset", "confirm_offset"):
            if 0 <= known.get(name, 0) <= store.commit_log[-1].end_offset:
                values[name] = known.get(name, 0)
    (root / "checkpoint").unlink(missing_ok=True)
    write_at(root / "checkpoint", SIZE_BYTES, 0, CHECKPOINT_FIELDS.pack(**values).ljust(SIZE_BYTES, b"\0"))
    return values
