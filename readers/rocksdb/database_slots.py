"""The slots of one queue in RocksDB as its broker finds them after a start: those of the database, then of the log.

A start adds a slot for each record that the database does not have yet, under the record's own number. So the slots are
known where the database ends and the following records have the following numbers; anything else is not predicted.

Source: store/queue/RocksDBConsumeQueueStore.java, RocksDBConsumeQueueOffsetTable.java (5.2.0 to 5.5.0).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rmqtx.readers.log.commit_log import scan_segments, written_end
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.rocksdb.rocksdb import open_database
from rmqtx.readers.rocksdb.rocksdb_queues import QueueDatabase
from rmqtx.readers.store.store import Store, is_bundle

#: How much of a log is read for records that a database does not have.
_BEHIND_BYTES_MAX = 192 << 20


class UnknownSlots(SourceError):
    """The slots of a queue in RocksDB after the next start are not known."""


@dataclass(frozen=True, slots=True)
class DatabaseSlots:
    """All slots of a queue, without a gap.

    Shape: `numbers`: consecutive, from the first slot whose record the log can still contain.
    Units: bytes of the log.
    """

    topic: str
    numbers: Int64s
    offsets: Int64s
    lengths: Int64s

    @property
    def begin(self) -> int:
        """The number of the first slot; 0 for a queue without any."""
        return int(self.numbers[0]) if len(self.numbers) else 0

    @property
    def end(self) -> int:
        """The number past the last slot."""
        return self.begin + len(self.numbers)


def slots_after_start(store: Store, topics: Sequence[str], queue_id: int) -> dict[str, DatabaseSlots]:
    """Return the slots of a queue of some topics, by topic; for a running broker with the records it has not flushed.

    Raises: UnknownSlots; MissingLibrary, UnreadableFile, FileChanged.
    """
    if is_bundle(store):
        raise _unknown(store, "a bundle has a part of them")
    if len(store.queue_databases) != 1:
        raise _unknown(store, f"{len(store.queue_databases)} databases have them")
    stored: dict[str, list[Int64s]] = {}
    with open_database(store, store.queue_databases[0]) as database:
        queues = QueueDatabase(store, database)
        taken_in = queues.taken_in_offset()
        for topic in topics:
            stored[topic] = [np.empty((0, 3), np.int64), *_rows(queues, topic, queue_id)]
        if queues.findings:
            raise _unknown(store, "the database has other entries")
    known = {topic: np.concatenate(parts) for topic, parts in stored.items()}
    last = {topic: int(rows[-1, 1]) if len(rows) else -1 for topic, rows in known.items()}
    begin = min(last.values())
    if taken_in is not None and not (store.aborted or store.in_use):  # a clean stop flushes all entries
        begin = max(begin, taken_in)
    begin = max(begin, store.log_begin_offset)
    if written_end(store).offset - begin > _BEHIND_BYTES_MAX:
        raise _unknown(store, f"the log has more than {_BEHIND_BYTES_MAX >> 20} MiB behind the database")
    behind: dict[str, list[Int64s]] = {topic: [] for topic in topics}
    for block in scan_segments(store, [], [], from_offset=begin, with_fillers=True):
        mine = block.header("queue_id") == queue_id
        for topic in topics:
            rows = block.take(mine & block.topic_is(topic) & (block.commit_log_offsets > last[topic]))
            # The slot leads to the place that the record has as its own (seen on 5.2.0 to 5.5.0).
            if len(moved := np.flatnonzero(rows.header("commit_log_offset") != rows.commit_log_offsets)):
                place, own = rows.commit_log_offsets[moved[0]], rows.header("commit_log_offset")[moved[0]]
                raise _unknown(store, f"the record at commit-log offset {place} names {own} as its own place")
            columns = (rows.header("queue_offset"), rows.commit_log_offsets, rows.lengths)
            behind[topic].append(np.stack([one.astype(np.int64) for one in columns], axis=1))
    return {topic: _joined(store, topic, np.concatenate([known[topic], *behind[topic]])) for topic in topics}


def _rows(queues: QueueDatabase, topic: str, queue_id: int) -> Iterator[Int64s]:
    for some in queues.slots(topic, queue_id):
        yield np.stack(
            [
                some.queue_offsets,
                *(some.slots[name].astype(np.int64) for name in ("commit_log_offset", "record_length_bytes")),
            ],
            axis=1,
        )


def _joined(store: Store, topic: str, rows: Int64s) -> DatabaseSlots:
    """Return the slots of rows (number, place, length); those of expired records at the begin do not count, nor those
    that a running broker has added since the log files were listed.
    """
    if store.in_use:
        rows = rows[rows[:, 1] < store.log().end_offset]
    rows = rows[np.argmax(rows[:, 1] >= store.log_begin_offset):] if len(rows) else rows
    numbers, offsets, lengths = (np.ascontiguousarray(column) for column in rows.T)
    is_first = store.log_begin_offset > 0 or not len(rows) or int(numbers[0]) == 0
    is_whole = bool((np.diff(numbers) == 1).all() and (np.diff(offsets) > 0).all())
    if not (is_first and is_whole) or (store.log_begin_offset > 0 and not (offsets >= store.log_begin_offset).any()):
        raise _unknown(store, f"{topic} has not one slot for each number")
    return DatabaseSlots(topic, numbers, offsets, lengths)


def _unknown(store: Store, why: str) -> UnknownSlots:
    return UnknownSlots(
        f"{store.root}: its half queue is in RocksDB, and its slots after the next start are not known: {why}",
        file=store.root, advice="rmqtx pending reads the log itself",
    )
