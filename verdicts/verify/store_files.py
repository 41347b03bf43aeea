"""Faults outside the log: checkpoint, cursors of all groups, op marks without a half message, index files.

In an index file, the values that a broker derives when it adds a key are derived again: the chain of each slot, the
slot table and the slot count follow from the hashes in the order of the entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rmqtx.readers.cursors import read_cursors
from rmqtx.readers.index.index import BLOCK_ENTRIES, ENTRY, HEADER, INDEX_SLOT, IndexFile
from rmqtx.readers.index.index_scan import scan_entries
from rmqtx.readers.index.index_search import open_index
from rmqtx.readers.index.record_keys import record_offset
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.moments import BROKER_TIME_MAX_MS
from rmqtx.readers.queues.slot_files import BATCH, SIMPLE, slot_files, topic_bytes
from rmqtx.readers.queues.unit_files import used_end
from rmqtx.readers.storage.open_file import OpenFile
from rmqtx.readers.store.checkpoint import CHECKPOINT_FIELDS, checkpoint_values, impossible_value_findings
from rmqtx.readers.store.checkpoint import TIMES as _TIMES
from rmqtx.readers.store.fastjson import read_config
from rmqtx.readers.store.store import CHECK_GROUP, HALF_TOPIC, OP_TOPIC, Store
from rmqtx.verdicts.verify.index_entries import index_files, read_entries

#: Configuration that brokers write beside the cursors, and the effect if it cannot be read or is old.
_CONFIGURATIONS = {
    "topics.json": "topics that were created or changed since are missing in the broker until they are created again",
    "subscriptionGroup.json": "settings of consumer groups and their retries may have changed",
    "delayOffset.json": "delayed messages, COMMIT records among them, may be delivered once more, or wait permanently",
}
_RECORD_OFFSET = "logics_offset"
_BEYOND_END, _BEFORE_BEGIN = "group-cursor-beyond-end", "group-cursor-before-begin"
_SLOTS_AT_ONCE = 1 << 20


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
    """Return damage of the cursors, and cursors outside their queues; for those of the check see `half_queue_findings`.

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
        if is_beyond and (row["topic"], row["group"], row["queue_id"]) == (OP_TOPIC, CHECK_GROUP, 0):
            continue  # `op_queue_findings` reports it
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
            end = used_end(store, files.segments, files.layout)
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
    return Finding(
        store.root, "older-design", *store.log().place_of(offset), commit_log_offset=offset,
        actual=f"{count} prepared or rollback records",
    )


def backwards_finding(store: Store, offset: int, time_ms: int, before_offset: int, before_ms: int) -> Finding:
    """Return a finding for a record with an earlier store time than the record before it."""
    return Finding(
        store.root, "store-time-backwards", *store.log().place_of(offset), commit_log_offset=offset,
        expected=f"at least {before_ms}, the store time of the record at {before_offset}", actual=str(time_ms),
    )


def chain_findings(store: Store) -> Iterator[Finding]:
    """Return what in index files does not follow from the hashes: chains, slot table, slot count, the unused entry.

    Order: file; at most one finding of each kind.
    """
    if store.in_use:
        return
    for index in index_files(store):
        if not index.entries_count:
            continue
        try:
            with index.segment.open() as file:
                yield from _of_file(store, index, file)
        except SourceError as error:
            yield Finding(store.root, "unreadable-file", error.file, error.position_bytes, actual=error.message)


def _of_file(store: Store, index: IndexFile, file: OpenFile) -> Iterator[Finding]:
    assert index.slots_count is not None

    def finding(position: int, length: int, expected: str, actual: str) -> Finding:
        return Finding(store.root, "index-damaged", index.segment.file, position, length, expected=expected,
                       actual=actual)

    newest = np.zeros(index.slots_count, np.int64)
    wrong, first = 0, None
    for number in range(1, index.entries_count + 1, BLOCK_ENTRIES):
        entries = read_entries(index, file, number, min(number + BLOCK_ENTRIES, index.entries_count + 1))
        expected = _previous(entries["key_hash"].astype(np.int64) % index.slots_count, number, newest)
        rows = np.flatnonzero(entries["previous_entry_number"] != expected)
        wrong += len(rows)
        if first is None and len(rows):
            row = int(rows[0])
            first = number + row, int(expected[row]), int(entries["previous_entry_number"][row])
    if first is not None:
        number, expected_number, actual_number = first
        more = f", and {wrong - 1} more entries" if wrong > 1 else ""
        yield finding(index.entry_position(number), ENTRY.size_bytes,
                      f"previous_entry_number {expected_number}, from the hashes before it", f"{actual_number}{more}")
    yield from _of_table(store, index, file, newest, finding)
    # 4.3.0 and 4.4.0 count every entry, later versions every slot that is used; both may have written a file.
    used, counted = int(np.count_nonzero(newest)), index.header["used_slots_count"]
    if not used <= counted <= index.entries_count and not (store.aborted and counted == used + 1):
        yield finding(HEADER.offsets["used_slots_count"], 4,
                      f"used_slots_count {used}, from its hashes, to {index.entries_count}", str(counted))
    if any(file.read(index.entry_position(0), ENTRY.size_bytes)):
        yield finding(index.entry_position(0), ENTRY.size_bytes, "zeros: entries are numbered from 1", "other bytes")


def _previous(slots: Int64s, first_number: int, newest: Int64s) -> Int64s:
    """Return for each entry the previous one of its slot; `newest` has the last entry of each slot and is updated."""
    order = np.argsort(slots, kind="stable")
    sorted_slots, numbers = slots[order], first_number + order
    begins = np.r_[True, np.diff(sorted_slots) != 0]
    before = np.where(begins, newest[sorted_slots], np.r_[0, numbers[:-1]])
    ends = np.r_[begins[1:], True]
    newest[sorted_slots[ends]] = numbers[ends]
    previous = np.empty_like(before)
    previous[order] = before
    return previous


def _of_table(
    store: Store, index: IndexFile, file: OpenFile, newest: Int64s, finding: Callable[[int, int, str, str], Finding]
) -> Iterator[Finding]:
    """Slots that do not point to their newest entry; a broker may have been killed while it added one."""
    wrong, first = 0, None
    size = INDEX_SLOT.size_bytes
    for begin in range(0, len(newest), _SLOTS_AT_ONCE):
        expected = newest[begin : begin + _SLOTS_AT_ONCE]
        heads = np.frombuffer(file.read(HEADER.size_bytes + begin * size, len(expected) * size), ">i4")
        is_wrong = heads != expected
        if store.aborted:
            is_wrong &= heads != index.entries_count + 1
        rows = np.flatnonzero(is_wrong)
        wrong += len(rows)
        if first is None and len(rows):
            first = begin + int(rows[0]), int(expected[rows[0]]), int(heads[rows[0]])
    if first is not None:
        slot, expected_number, actual_number = first
        more = f", and {wrong - 1} more slots" if wrong > 1 else ""
        yield finding(HEADER.size_bytes + slot * size, size, f"newest_entry_number {expected_number}, from the hashes",
                      f"{actual_number}{more}")
