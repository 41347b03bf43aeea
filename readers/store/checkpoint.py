"""Read the file `checkpoint`: the times up to which the broker had flushed its files when it last wrote it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from rmqtx.readers.model.errors import FileChanged, UnreadableFile
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.layout import Field, Layout
from rmqtx.readers.model.moments import BROKER_TIME_MAX_MS
from rmqtx.readers.model.reading import Coverage, Reading
from rmqtx.readers.model.releases import CHECKPOINT_CONFIRMED, CHECKPOINT_OF_MASTER, CHECKPOINT_OF_QUEUES, dotted
from rmqtx.readers.model.tables import CHECKPOINT
from rmqtx.readers.storage.places import not_a_file, unreadable
from rmqtx.readers.storage.segments import open_file
from rmqtx.readers.store.remembered import remembered
from rmqtx.readers.store.store import Store

CHECKPOINT_FIELDS = Layout(
    "checkpoint",
    "Checkpoint, the first bytes of a file of 4096",
    (
        Field("physic_msg_time_ms", "q", "store time of the last flushed commit log record", "ms"),
        Field("logics_msg_time_ms", "q", "store time of the last record in the consume queues", "ms"),
        Field("index_msg_time_ms", "q", "store time of the last entry in the last completed index file", "ms"),
        Field("master_flushed_offset", "q", "slave: commit-log offset up to which its master had flushed", "byte",
              since=dotted(CHECKPOINT_OF_MASTER.since)),
        Field("confirm_offset", "q", "commit-log offset that the replicas confirmed", "byte",
              since=dotted(CHECKPOINT_CONFIRMED.since)),
        Field("logics_offset", "q",
              "commit-log offset of the last record in flushed consume queues; rocketmq-rust: up to where the index is "
              "complete", "byte",
              since=dotted(CHECKPOINT_OF_QUEUES.since)),
    ),
    48,
    "store/StoreCheckpoint.java, docs/formats/store.md#checkpoint",
)
SIZE_BYTES = 4096
TIMES = ("physic_msg_time_ms", "logics_msg_time_ms", "index_msg_time_ms")
#: Larger than any commit log.
_OFFSET_END = 1 << 56


def read_checkpoint(store: Store) -> Reading:
    """Return the values of the checkpoint, zeros too: one row each.

    Order:  the file's.
    Damage: checkpoint-damaged for a length other than 4096 bytes, or for bytes after the values; unreadable-file.
    Source: store/StoreCheckpoint.java; docs/formats/store.md#checkpoint.
    """
    reading = Reading(CHECKPOINT, ())
    reading.batches = _batches(store, reading)
    return reading


@remembered
def checkpoint_values(store: Store) -> dict[str, int]:
    """Return field name → value for the fields that the file holds; empty if the file cannot be read."""
    try:
        found = _read(store)
    except (UnreadableFile, FileChanged):
        return {}
    data = b"" if found is None else found[1][: CHECKPOINT_FIELDS.size_bytes]
    values = CHECKPOINT_FIELDS.unpack(data.ljust(CHECKPOINT_FIELDS.size_bytes, b"\0"))
    return {name: values[name] for name, place in CHECKPOINT_FIELDS.offsets.items() if place + 8 <= len(data)}


def flushed_time_ms(store: Store) -> int | None:
    """Return the latest record time in the checkpoint; None if it has none.

    5.5.0 leaves the queues' time at zero, and in other releases the flushed time is behind the queues' time, so the
    later one of both is returned.
    """
    values = checkpoint_values(store)
    times = [values.get(name, 0) for name in ("physic_msg_time_ms", "logics_msg_time_ms")]
    return max((time for time in times if 0 < time <= BROKER_TIME_MAX_MS), default=None)


def _read(store: Store) -> tuple[int, bytes] | None:
    """Return the file's length and its first 4096 bytes; None if there is no file.

    Raises: UnreadableFile, also for a directory and a link to itself; FileChanged.
    """
    place = store.place("checkpoint")
    try:
        entry = store.files.entry(place)
    except OSError as error:
        raise unreadable(place, error) from error
    if entry is None:
        return None
    if not entry.is_file:
        raise not_a_file(place)
    with open_file(place, entry.size_bytes, entry.modified_ns) as file:
        return entry.size_bytes, file.read(0, SIZE_BYTES)


def _batches(store: Store, reading: Reading) -> Iterator[pa.RecordBatch]:
    file = store.place("checkpoint")
    try:
        found = _read(store)
    except (UnreadableFile, FileChanged) as error:
        reading.findings.append(Finding(store.root, "unreadable-file", file, actual=error.message))
        return
    if found is None:
        return
    size, data = found
    if size != SIZE_BYTES:
        reading.findings.append(
            Finding(
                store.root, "checkpoint-damaged", file, 0, size,
                expected=f"{SIZE_BYTES} bytes", actual=f"{size} bytes",
            )
        )
    rows = []
    for number, (name, position) in enumerate(CHECKPOINT_FIELDS.offsets.items()):
        if position + 8 > len(data):
            break
        field = CHECKPOINT_FIELDS.fields[number]
        value = int.from_bytes(data[position : position + 8], "big", signed=True)
        rows.append(
            {
                "store": store.root,
                "file": file,
                "position_bytes": position,
                "length_bytes": field.size_bytes,
                "field": name,
                "value": value,
                "time_ms": value if field.unit == "ms" and 0 < value <= BROKER_TIME_MAX_MS else None,
                "meaning": field.meaning,
                "since": field.since,
            }
        )
    _cover(store, reading, file, size, data, len(rows) * 8)
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=CHECKPOINT)


def _cover(store: Store, reading: Reading, file: str, size: int, data: bytes, decoded: int) -> None:
    """Report bytes that are not zero after the values, and bytes after the page of 4096: a broker writes neither."""
    coverage = Coverage(store.root, file, size, decoded_bytes=decoded)
    reading.coverage.append(coverage)
    rest = data[decoded:]
    strange = len(rest.rstrip(b"\0"))
    coverage.damaged_bytes = strange + size - len(data)
    coverage.filler_bytes = len(rest) - strange
    if strange:
        reading.findings.append(
            Finding(store.root, "checkpoint-damaged", file, decoded, strange, expected="zeros", actual="other bytes")
        )


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
