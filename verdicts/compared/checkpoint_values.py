"""The values of a checkpoint that no broker writes."""

from __future__ import annotations

from collections.abc import Iterator

from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.moments import BROKER_TIME_MAX_MS
from rmqtx.readers.store.checkpoint import CHECKPOINT_FIELDS, checkpoint_values, read_checkpoint
from rmqtx.readers.store.store import Store

TIMES = ("physic_msg_time_ms", "logics_msg_time_ms", "index_msg_time_ms")
#: Larger than any commit log.
_OFFSET_END = 1 << 56


def impossible_value_findings(store: Store) -> Iterator[Finding]:
    """Return a wrong length of the checkpoint, and values that cannot be a time or a place in a log.

    Order:  the file's own damage, times, offsets.
    Damage: checkpoint-damaged; unreadable-file.
    """
    reading = read_checkpoint(store)
    for _ in reading:
        pass  # its findings are complete after the last batch
    yield from reading.findings
    if store.in_use:
        return
    place = store.place("checkpoint")
    values = checkpoint_values(store)
    for name in (*TIMES, *(name for name in values if name not in TIMES)):
        is_time, value = name in TIMES, values.get(name, 0)
        if not (0 <= value <= BROKER_TIME_MAX_MS if is_time else -1 <= value < _OFFSET_END):
            yield Finding(
                store.root, "checkpoint-damaged", place, CHECKPOINT_FIELDS.offsets[name], 8,
                expected="a time" if is_time else "a commit-log offset", actual=f"{name} {value}",
            )
