"""The files of a store's commit log, queues and index: rows of SEGMENTS, made from names and lengths only."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from rmqtx.readers.model.findings import as_text
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.model.tables import SEGMENTS
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.store import Store

_ROWS_MAX = 65_536
_QUEUE_KINDS = ("consumequeue", "batchconsumequeue", "consumequeue_ext")
_Row = tuple[str, str, str | None, int | None, str, int | None, int]


def read_segments(store: Store) -> Reading:
    """Return the files of the commit log, of every queue, and of the index. Reads directories only.

    Shape:  rows of SEGMENTS; topic and queue number are null except for queues; the base offset is null for the index,
            whose files are named after times.
    Order:  commit log, queues by kind, topic and number, index; base offset ascending.
    Damage: files that do not belong there, gaps and different lengths are findings.
    """
    reading = Reading(SEGMENTS, (), list(store.findings))
    reading.batches = _batches(store, reading)
    return reading


def _batches(store: Store, reading: Reading) -> Iterator[pa.RecordBatch]:
    rows: list[_Row] = []
    for row in _rows(store, reading):
        rows.append(row)
        if len(rows) == _ROWS_MAX:
            yield _batch(rows)
            rows = []
    if rows:
        yield _batch(rows)


def _rows(store: Store, reading: Reading) -> Iterator[_Row]:
    yield from (_row(store, "commitlog", segment) for segment in store.commit_log)
    for kind in _QUEUE_KINDS:
        for topic, queue_id in store.queues(kind):
            segments, findings = store.queue_segments(topic, queue_id, kind)
            reading.findings.extend(findings)
            yield from (_row(store, kind, segment, as_text(topic), queue_id) for segment in segments)
    for segment in store.index_files:
        yield store.root, "index", None, None, segment.file, None, segment.size_bytes


def _row(store: Store, kind: str, segment: Segment, topic: str | None = None, queue_id: int | None = None) -> _Row:
    return store.root, kind, topic, queue_id, segment.file, segment.base_offset, segment.size_bytes


def _batch(rows: list[_Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SEGMENTS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SEGMENTS)
