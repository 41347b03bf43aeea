"""Rows of consume queues in RocksDB, alone or after the queues in files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import as_text
from rmqtx.readers.model.reading import Note, NoteKind, Reading
from rmqtx.readers.model.tables import QUEUE_SLOTS
from rmqtx.readers.queues.consume_queue_scan import scan_slots
from rmqtx.readers.rocksdb.rocksdb import open_database, unread
from rmqtx.readers.rocksdb.rocksdb_queues import SLOT_VALUE, QueueDatabase, RocksdbSlots
from rmqtx.readers.store.store import Store

KIND = "rocksdb"


def scan_all_slots(
    store: Store, *, topic: str | None = None, queue_id: int | None = None, from_queue_offset: int | None = None,
    to_queue_offset: int | None = None,
) -> Reading:
    """Return every slot of the consume queues in files, then in RocksDB; bounds as in `scan_slots`.

    Shape:  rows of QUEUE_SLOTS, at most 65,536 a batch; a slot that is stored in both is two rows, of two kinds.
    Damage: as `scan_slots` and `scan_rocksdb_slots`.
    """
    bounds = {"from_queue_offset": from_queue_offset, "to_queue_offset": to_queue_offset}
    reading = scan_slots(store, topic=topic, queue_id=queue_id, **bounds)
    rocksdb = scan_rocksdb_slots(store, topic=topic, queue_id=queue_id, **bounds)
    rocksdb.findings, rocksdb.notes = reading.findings, reading.notes
    reading.batches = _one_after_the_other(reading.batches, rocksdb.batches)
    return reading


def _one_after_the_other(*parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of all readings; when this is closed, the current reading is closed."""
    for part in parts:
        yield from part


def scan_rocksdb_slots(
    store: Store, *, topic: str | None = None, queue_id: int | None = None, from_queue_offset: int | None = None,
    to_queue_offset: int | None = None,
) -> Reading:
    """Return every slot of the consume queues in RocksDB, or of a topic, a queue number, a range of queue offsets.

    Shape:  rows of QUEUE_SLOTS, at most 65,536 a batch; `file` is the database, `length_bytes` the value's length.
    Order:  length of the topic, topic, queue number, queue offset.
    Damage: database-unread, database-entry.
    Source: store/queue/RocksDBConsumeQueueTable.java; docs/formats/consume_queues.md#rocksdb.
    """
    reading = Reading(QUEUE_SLOTS, ())
    bounds = (from_queue_offset or 0, 2**63 - 1 if to_queue_offset is None else to_queue_offset)
    reading.batches = _scan(store, reading, topic, queue_id, bounds)
    return reading


def _scan(
    store: Store, reading: Reading, topic: str | None, queue_id: int | None, bounds: tuple[int, int]
) -> Iterator[pa.RecordBatch]:
    for name in store.queue_databases:
        try:
            with open_database(store, name) as database:
                queues = QueueDatabase(store, database, reading.findings)
                for slots in queues.slots(topic, queue_id, *bounds):
                    yield _rows(store, database.directory, slots)
                if (note := _how_old(store, queues.taken_in_offset())) is not None:
                    reading.notes.append(Note(NoteKind.WHY, note))
        except SourceError as error:
            reading.findings.append(unread(store, store.place(name), error))


def _how_old(store: Store, taken_in_offset: int | None) -> str | None:
    if not store.in_use and not store.aborted:
        return None
    upto = "no record" if taken_in_offset is None else f"commit-log offset {taken_in_offset}"
    return f"the queues in RocksDB end at their last flush ({upto}), because {store.why_unclean}"


def _rows(store: Store, directory: str, found: RocksdbSlots) -> pa.RecordBatch:
    count = len(found.slots)

    def same(value: object, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), count)

    def native(name: str, kind: type[np.signedinteger[Any]] = np.int64) -> pa.Array:
        return pa.array(found.slots[name].astype(kind))

    columns = [
        same(store.root, pa.string()),
        same(directory, pa.string()),
        pa.nulls(count, pa.int64()),
        same(SLOT_VALUE.size_bytes, pa.int32()),
        same(as_text(found.topic), pa.string()),
        same(found.queue_id, pa.int32()),
        pa.array(found.queue_offsets),
        native("commit_log_offset"),
        native("record_length_bytes", np.int32),
        native("tags_code"),
        same(KIND, pa.string()),
        native("store_time_ms"),
        pa.nulls(count, pa.int16()),
        pa.nulls(count, pa.int64()),
    ]
    return pa.record_batch(columns, schema=QUEUE_SLOTS)
