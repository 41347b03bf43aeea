"""Rebuilding the checkpoint, whose times of flushed files are right for a store whose files are all on disk."""

from __future__ import annotations

from pathlib import Path

from rmqtx.readers.store.checkpoint import CHECKPOINT_FIELDS, SIZE_BYTES, checkpoint_values, flushed_time_ms
from rmqtx.readers.store.store import Store
from rmqtx.repairs.changes.new_stores import write_at
from rmqtx.verdicts.evidence.store_facts import FLUSH_LAG_MS_MAX, known_until_ms


def write_checkpoint(
    root: Path,
    store: Store | None,
    made_from: Store | None,
    *,
    log_time_ms: int,
    queues_time_ms: int,
    index_time_ms: int,
) -> dict[str, int]:
    """Write the checkpoint of a store below `root`, and return its values.

    `log_time_ms`, `queues_time_ms`: store time of the last record of the log, and of the last one in a queue;
    `index_time_ms`: that of the last entry of the last full index file. Offsets confirmed by replicas are taken from
    the checkpoint of `store` as far as the log reaches, because no record contains them. The offset of the last record
    in the queues (5.5.0) stays 0, as after a clean stop of that version. Records that rmqtx wrote while the broker of
    `made_from`, the store that the records come from, was stopped do not count: no other file shows until when that
    broker ran.
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
    end_ms = None if made_from is None else _broker_end_ms(made_from)
    if end_ms is not None and log_time_ms > end_ms + FLUSH_LAG_MS_MAX:
        values |= {"physic_msg_time_ms": end_ms, "logics_msg_time_ms": end_ms}
    (root / "checkpoint").unlink(missing_ok=True)
    write_at(root / "checkpoint", SIZE_BYTES, 0, CHECKPOINT_FIELDS.pack(**values).ljust(SIZE_BYTES, b"\0"))
    return values


def _broker_end_ms(store: Store) -> int | None:
    """Until when the broker of a store ran, where it stopped cleanly; None if unknown."""
    if store.in_use or store.was_killed or not flushed_time_ms(store):
        return None
    return known_until_ms(store)
