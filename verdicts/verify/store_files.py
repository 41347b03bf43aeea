"""Faults outside the log: checkpoint, cursors of all groups, op marks without a half message, index files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rmqtx.readers.cursors.cursors import read_cursors
from rmqtx.readers.index.index_scan import scan_entries
from rmqtx.readers.index.index_search import open_index
from rmqtx.readers.index.record_keys import record_offset
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.moments import BROKER_TIME_MAX_MS
from rmqtx.readers.queues.slot_files import BATCH, SIMPLE, slot_files, topic_bytes
from rmqtx.readers.queues.unit_files import used_end
from rmqtx.readers.store.checkpoint import CHECKPOINT_FIELDS, checkpoint_values, impossible_value_findings
from rmqtx.readers.store.checkpoint import TIMES as _TIMES
from rmqtx.readers.store.fastjson import read_config
from rmqtx.readers.store.store import CHECK_GROUP, HALF_TOPIC, Store

#: Configuration that brokers write beside the cursors, and the effect if it cannot be read or is old.
_CONFIGURATIONS = {
    "topics.json": "topics that were created or changed since are missing in the broker until they are created again",
    "subscriptionGroup.json": "settings of consumer groups and their retries may have changed",
    "delayOffset.json": "delayed messages, COMMIT records among them, may be delivered once more, or wait permanently",
}
_RECORD_OFFSET = "logics_offset"
_BEYOND_END, _BEFORE_BEGIN = "group-cursor-beyond-end", "group-cursor-before-begin"


def checkpoint_findings(store: Store, last_store_time_ms: int | None) -> Iterator[Finding]:
    """Return damage of the checkpoint, and times in it that are later than any record of the log.

    `last_store_time_ms`: the latest store time in the log; None for a log without records.
    """
    yield from impossible_value_findings(store)
    values = checkpoint_values(store)
    if store.in_use or last_store_time_ms is None:
        return
    for name in _TIMES:
        value = values.get(name, 0)
        if last_store_time_ms < value <= BROKER_TIME_MAX_MS:
            yield Finding(
                store.root, "checkpoint-ahead", store.place("checkpoint"), CHECKPOINT_FIELDS.offsets[name], 8,
                expected=f"at most {last_store_time_ms}, the log's latest store time", actual=f"{name} {value}",
            )


def values_of_records(store: Store) -> list[int]:
    """Return the values of the checkpoint that brokers take from records: store times, and an offset from 5.5.0 on."""
    return [value for value in _of_records(store).values() if value > 0]


def _of_records(store: Store) -> dict[str, int]:
    values = checkpoint_values(store)
    return {**{name: values.get(name, 0) for name in _TIMES}, _RECORD_OFFSET: record_offset(store)}


def checkpoint_record_findings(
    store: Store, first: tuple[int, int], held: set[int], last_store_time_ms: int
) -> Iterator[Finding]:
    """Return times and offsets of the checkpoint that no record of a whole log has, although the record should exist.

    `first`: commit-log offset and store time of the first record. `held`: values of the checkpoint that a record has.
    Order: the file's.
    """
    for name, value in _of_records(store).items():
        is_time = name != _RECORD_OFFSET
        if store.in_use or value in held or value <= (first[1] if is_time else first[0]):
            continue
        if not is_time or value <= last_store_time_ms:
            yield Finding(
                store.root, "checkpoint-damaged", store.place("checkpoint"), CHECKPOINT_FIELDS.offsets[name], 8,
                expected="the store time of a record" if is_time else "the offset of a record",
                actual=f"{name} {value}",
            )


def cursor_findings(store: Store) -> Iterator[Finding]:
    """Return damage of the cursors, and cursors outside their queues. An audit reports that of the half queue.

    Order: the file's.
    """
    reading = read_cursors(store)
    rows = [row for batch in reading for row in batch.to_pylist()]
    yield from reading.findings
    if store.has_rocksdb_queues:
        return
    for one in misplaced_cursors(store, rows):
        limit = "at most" if one.code == _BEYOND_END else "at least"
        of = f"{one.group} in queue {one.queue_id} of {one.topic}"
        yield Finding(
            store.root, one.code, one.file, expected=f"{limit} {one.bound} for {of}", actual=str(one.next_queue_offset)
        )


@dataclass(frozen=True, slots=True)
class MisplacedCursor:
    """A group's cursor outside its queue; `code`: that of its finding, `bound`: the end of the queue that it passes."""

    code: str
    file: str
    topic: str
    group: str
    queue_id: int
    next_queue_offset: int
    bound: int


def misplaced_cursors(store: Store, rows: Iterable[Mapping[str, Any]]) -> Iterator[MisplacedCursor]:
    """Yield the cursors of groups outside their queues; `rows`: rows of CURSORS of the store.

    Order: that of the rows.
    """
    for row in rows:
        if (row["topic"], row["group"]) == (HALF_TOPIC, CHECK_GROUP):
            continue
        bounds = _bounds(store, row["topic"], row["queue_id"])
        if bounds is None:
            continue
        first, end = bounds
        cursor = row["next_queue_offset"]
        is_beyond = cursor > end and not store.in_use
        if is_beyond or cursor < 0 or cursor < first:
            code, bound = (_BEYOND_END, end) if is_beyond else (_BEFORE_BEGIN, first)
            yield MisplacedCursor(code, row["file"], row["topic"], row["group"], row["queue_id"], cursor, bound)


def configuration_findings(store: Store) -> Iterator[Finding]:
    """Return configuration files beside the cursors that no broker can read; a missing file is no fault.

    Order: as in _CONFIGURATIONS.
    """
    for name, meaning in _CONFIGURATIONS.items():
        for finding in read_config(store, name).findings:
            if finding.code != "config-missing":
                yield replace(finding, meaning=meaning)


def _bounds(store: Store, topic: str, queue_id: int) -> tuple[int, int] | None:
    """Queue offsets of the first slot and past the last one; None if there is no queue or it cannot be read."""
    for kind in (SIMPLE, BATCH):
        name = (kind, topic_bytes(topic), queue_id)
        files = slot_files(store, name)
        try:
            end = used_end(files.segments, files.layout)
            if not end:
                continue
            if kind == SIMPLE:
                return files.first, end
            last = files.read(end - 1, end)[0]
            return 0, int(last["first_queue_offset"]) + int(last["batch_size"])
        except SourceError:  # reported by the comparison of the queue
            return None
        finally:
            files.close()
    return None


def index_file_findings(store: Store, *, whole: bool) -> Iterator[Finding]:
    """Return faults in index files; without `whole`, only those of their headers."""
    if not whole:
        yield from open_index(store).findings
        return
    yield from scan_entries(store).complete_findings()


def older_design_finding(store: Store, offset: int, count: int) -> Finding:
    """Return one finding for records of designs before 4.3. `offset`: commit-log offset of the first one."""
    log = store.log()
    segment = log.segment_at(offset)
    log.close()
    return Finding(
        store.root, "older-design", None if segment is None else segment.file,
        None if segment is None else offset - segment.base_offset, commit_log_offset=offset,
        actual=f"{count} prepared or rollback records",
    )


def backwards_finding(store: Store, offset: int, time_ms: int, before_offset: int, before_ms: int) -> Finding:
    """Return a finding for a record with an earlier store time than the record before it."""
    log = store.log()
    segment = log.segment_at(offset)
    log.close()
    return Finding(
        store.root, "store-time-backwards", None if segment is None else segment.file,
        None if segment is None else offset - segment.base_offset, commit_log_offset=offset,
        expected=f"at least {before_ms}, the store time of the record at {before_offset}", actual=str(time_ms),
    )


def latest(times: list[Int64s]) -> int | None:
    """Return the latest time; None for an empty list."""
    every = np.concatenate([np.empty(0, np.int64), *times])
    return int(every.max()) if len(every) else None
