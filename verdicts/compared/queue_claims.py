"""Records compared with their consume queues, and the queues with the log.

A record contains its queue and queue offset, so its slot is read without a search, and whole queues are compared at
once. Each split returns the runs of slots that agree and the records that do not; slots that no split has claimed are
examined when the whole store is known. So the cost is that of the slots, for any size of a split, and a damaged slot or
record does not disturb others. Queues are derived: where they differ from the log, the log is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from rmqtx.readers.log.light_queues import further_slots
from rmqtx.readers.log.properties import OP_TAG, TAGS
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.record_layout import PREPARED, ROLLBACK, TRANSACTION_MASK
from rmqtx.readers.log.torn_properties import have_torn_properties
from rmqtx.readers.model.columns import Bools, Int64s, no_numbers
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.java_hashes import java_hash
from rmqtx.readers.model.ranges import runs_of
from rmqtx.readers.queues.consume_queue import Slots, open_queue
from rmqtx.readers.queues.consume_queue_extension import EXTENSION_ADDRESS_MAX
from rmqtx.readers.queues.slot_files import (
    BATCH,
    RECORD_COLUMNS,
    SIMPLE,
    QueueName,
    QueuePart,
    batch_queues,
    places_by_offset,
    slot_files,
    slots_of,
    topic_bytes,
    topic_text,
)
from rmqtx.readers.store.store import HALF_TOPIC, LEFT_OUT_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, Store

_DELAY = "DELAY"
_INNER_NUM = "INNER_NUM"
_OP_TAGS_CODE = java_hash(OP_TAG.encode())
#: The longest delay of any broker; `messageDelayLevel` is configuration, so any shorter delay can be right.
_DELAY_MS_MAX = 10 * 366 * 86_400_000
#: The most tags that are remembered with their hash; further ones are calculated each time.
_HASHES_MAX = 1 << 16


def unread_op_queues(store: Store) -> frozenset[QueueName]:
    """Return the op queues that no check reads: it reads that with the number of its half queue.

    A decision that names an ordinary message of another queue leaves its op message in another op queue, before 5.0.0.
    Source: TransactionalMessageServiceImpl.java check, getOpQueue.
    """
    numbers = {0, *store.queue_numbers(HALF_TOPIC)}
    topic = topic_bytes(OP_TOPIC)
    return frozenset((SIMPLE, topic, number) for number in store.queue_numbers(OP_TOPIC) if number not in numbers)


@dataclass(slots=True)
class QueueParts:
    """The parts of all queues of a split, in a few arrays: a store with many queues has a part per queue and split.

    Shape: `names` of queues; `run_owners` (for `runs`) and `record_owners` (for the columns of `records`) are indexes
           into the names.
    """

    names: list[QueueName] = field(default_factory=list)
    run_owners: Int64s = field(default_factory=no_numbers)
    runs: Int64s = field(default_factory=lambda: np.empty((0, 2), np.int64))
    record_owners: Int64s = field(default_factory=no_numbers)
    records: Int64s = field(default_factory=lambda: np.empty((len(RECORD_COLUMNS), 0), np.int64))

    @staticmethod
    def of(parts: dict[QueueName, QueuePart]) -> QueueParts:
        """Combine the parts of some queues."""
        if not parts:
            return QueueParts()
        records = [np.stack([getattr(part, name) for name in RECORD_COLUMNS]) for part in parts.values()]
        return QueueParts(
            list(parts),
            np.repeat(np.arange(len(parts)), [len(part.runs) for part in parts.values()]),
            np.concatenate([part.runs for part in parts.values()]),
            np.repeat(np.arange(len(parts)), [rows.shape[1] for rows in records]),
            np.concatenate(records, axis=1),
        )


@dataclass(slots=True)
class ClaimedRows:
    """Records of one block that should have a slot, and its expected content; `tags_codes` for undelayed records.

    `have_no_tags`: torn records, and op messages without their tag, which are reported as such: their slots show the
    tags that the broker read.
    """

    queue_numbers: Int64s
    queue_offsets: Int64s
    offsets: Int64s
    lengths: Int64s
    tags_codes: Int64s
    store_times: Int64s
    is_delayed: Bools
    sizes: Int64s
    have_no_tags: Bools


@dataclass(slots=True)
class QueueClaims:
    """The slots that the records of a split claim: blocks are added, then all are compared."""

    store: Store
    _names: dict[QueueName, int] = field(default_factory=dict)
    _rows: list[ClaimedRows] = field(default_factory=list)
    _hashes: dict[bytes, int] = field(default_factory=dict)

    def add(self, block: Block) -> None:
        """Add the records of a block.

        Prepared and ROLLBACK records of designs before 4.3 get no slot (docs/formats/consume_queues.md#dispatch), nor
        do records of a bundle that replace those it left out.
        """
        kinds = block.sys_flag & TRANSACTION_MASK
        has_slot = (kinds != PREPARED) & (kinds != ROLLBACK) & ~block.topic_is(LEFT_OUT_TOPIC)
        rows = block if has_slot.all() else block.take(has_slot)
        if not len(rows):
            return
        topics = rows.coded_topics()
        tags = self._tags_codes(rows)
        queue_ids = rows.header("queue_id").astype(np.int64)
        names = self._queue_numbers(topics, queue_ids)
        count = len(rows)
        is_delayed, sizes = np.zeros(count, np.bool_), np.ones(count, np.int64)
        have_no_tags = have_torn_properties(rows) | (rows.topic_is(OP_TOPIC) & (tags != _OP_TAGS_CODE))
        scheduled = np.flatnonzero(rows.topic_is(SCHEDULE_TOPIC))
        if len(scheduled):
            is_delayed[scheduled] = rows.take(scheduled).properties.locate(_DELAY)[2]
        if batch_queues(self.store):
            sizes = _batch_sizes(rows)
        self._rows.append(
            ClaimedRows(
                names, rows.header("queue_offset").astype(np.int64), rows.commit_log_offsets, rows.lengths, tags,
                rows.header("store_time_ms"), is_delayed, sizes, have_no_tags,
            )
        )
        self._add_dispatched(rows, tags)

    def _tags_codes(self, rows: Block) -> Int64s:
        """Java's hash of each record's tags; 0 where it has none."""
        tags = rows.properties.coded(TAGS)
        texts = tags.dictionary.to_pylist()
        for text in texts:
            if text not in self._hashes:
                self._hashes[text] = java_hash(text)
        codes = np.array([*(self._hashes[text] for text in texts), 0], np.int64)
        if len(self._hashes) > _HASHES_MAX:
            self._hashes.clear()
        found: Int64s = codes[np.asarray(tags.indices.fill_null(len(texts)))]
        return found

    def _queue_numbers(self, topics: pa.DictionaryArray, queue_ids: Int64s) -> Int64s:
        keys = np.asarray(topics.indices).astype(np.int64) << 32 | (queue_ids & 0xFFFFFFFF)
        encoded = pa.array(keys).dictionary_encode()
        known = np.asarray(encoded.dictionary)
        words = topics.dictionary.to_pylist()
        numbers = np.empty(len(known), np.int64)
        for place in np.argsort(known).tolist():
            key = int(known[place])
            topic, queue_id = words[key >> 32], int(np.int32(np.uint32(key & 0xFFFFFFFF)))
            kind = BATCH if (topic_text(topic), queue_id) in batch_queues(self.store) else SIMPLE
            numbers[place] = self._number((kind, topic, queue_id))
        found: Int64s = numbers[np.asarray(encoded.indices)]
        return found

    def _number(self, name: QueueName) -> int:
        return self._names.setdefault(name, len(self._names))

    def _add_dispatched(self, rows: Block, tags: Int64s) -> None:
        """Light queues: one record has further slots in the queues that a property names (4.9.3+)."""
        for row, queue, queue_id, offset in further_slots(rows):
            one = rows.take(np.array([row]))
            number = self._number((SIMPLE, topic_bytes(queue), queue_id))
            self._rows.append(
                ClaimedRows(
                    np.array([number]), np.array([offset]), one.commit_log_offsets, one.lengths,
                    tags[row : row + 1], one.header("store_time_ms"), np.zeros(1, np.bool_), np.ones(1, np.int64),
                    np.zeros(1, np.bool_),
                )
            )

    def taken(self) -> Iterator[tuple[QueueName, ClaimedRows]]:
        """Return the records added since the last call and forget them, queue by queue: the expected slots.

        Order: within a queue that of the log.
        """
        parts, self._rows = self._rows, []
        names = list(self._names)
        for rows in parts:
            columns = [getattr(rows, name) for name in ClaimedRows.__slots__]
            numbers = rows.queue_numbers
            order = np.argsort(numbers, kind="stable")
            for mine in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1):
                yield names[int(numbers[mine[0]])], ClaimedRows(*(column[mine] for column in columns))

    def compared(self) -> QueueParts:
        """Return the part of each queue after all blocks were added."""
        if not self._rows:
            return QueueParts()
        numbers, *columns = (
            np.concatenate([getattr(rows, name) for rows in self._rows]) for name in ClaimedRows.__slots__
        )
        order = np.argsort(numbers, kind="stable")
        cuts = np.searchsorted(numbers[order], np.arange(len(self._names) + 1))
        parts = {}
        for name, number in self._names.items():
            mine = order[cuts[number] : cuts[number + 1]]
            parts[name] = _compared(self.store, name, ClaimedRows(numbers[mine], *(column[mine] for column in columns)))
        self._rows = []
        return QueueParts.of(parts)


def _batch_sizes(rows: Block) -> Int64s:
    texts = rows.properties.text(_INNER_NUM)
    if texts.null_count == len(texts):
        return np.ones(len(rows), np.int64)
    return np.array([int(text) if text and text.isdecimal() else 1 for text in texts.to_pylist()], np.int64)


# --- comparing --------------------------------------------------------------------------------------------------------


def _compared(store: Store, name: QueueName, rows_of_queue: ClaimedRows) -> QueuePart:
    numbers, offsets, lengths = rows_of_queue.queue_offsets, rows_of_queue.offsets, rows_of_queue.lengths
    tags, times = rows_of_queue.tags_codes, rows_of_queue.store_times
    files = slot_files(store, name)
    count = len(numbers)
    slot_offsets, slot_lengths = np.full(count, -1, np.int64), np.zeros(count, np.int64)
    slot_tags = np.zeros(count, np.int64)
    places = numbers.copy()
    good = np.zeros(count, np.bool_)
    try:
        if name[0] == BATCH:
            places = places_by_offset(files, offsets)
        for rows, slots in slots_of(files, places):
            slot_offsets[rows] = slots["commit_log_offset"]
            slot_lengths[rows] = slots["record_length_bytes"]
            slot_tags[rows] = slots["tags_code"]
            good[rows] = _is_of_record(name, slots, numbers[rows], times[rows], rows_of_queue.sizes[rows])
    except SourceError:
        pass  # unreadable slots are reported when the whole store is examined
    finally:
        files.close()
    slot_offsets[slot_lengths <= 0] = -1
    if name[0] == SIMPLE and (slot_tags <= EXTENSION_ADDRESS_MAX).any():
        slot_tags = _resolved(store, name, slot_tags, places)
    good &= (slot_offsets == offsets) & (slot_lengths == lengths)
    good &= (slot_tags == tags) | due_slots(slot_tags, times, rows_of_queue.is_delayed) | rows_of_queue.have_no_tags
    bad = ~good
    return QueuePart(
        runs_of(places[good]), places[bad], offsets[bad], lengths[bad], tags[bad], slot_offsets[bad],
        slot_lengths[bad], slot_tags[bad],
    )


def due_slots(tags_codes: Int64s, store_times: Int64s, is_delayed: Bools) -> Bools:
    """Which slots of delayed records contain a possible due time in place of a hash."""
    delay = tags_codes - store_times
    due: Bools = is_delayed & (delay >= 0) & (delay <= _DELAY_MS_MAX)
    return due


def _is_of_record(name: QueueName, slots: Slots, numbers: Int64s, times: Int64s, sizes: Int64s) -> Bools:
    """Whether the fields that only batch slots have match their records."""
    if name[0] == SIMPLE:
        return np.ones(len(slots), np.bool_)
    same: Bools = (slots["first_queue_offset"] == numbers) & (slots["store_time_ms"] == times)
    same &= slots["batch_size"] == sizes
    return same


def _resolved(store: Store, name: QueueName, tags: Int64s, numbers: Int64s) -> Int64s:
    """Return tags codes, with addresses in the extension resolved as readers of the queue do."""
    resolved = tags.copy()
    rows = np.flatnonzero(tags <= EXTENSION_ADDRESS_MAX)
    with open_queue(store, topic_text(name[1]), name[2]) as queue:
        order = rows[np.argsort(numbers[rows], kind="stable")]
        found, _, _, codes = queue.read(int(numbers[order[0]]), int(numbers[order[-1]]) + 1)
        at = np.minimum(np.searchsorted(found, numbers[rows]), max(0, len(found) - 1))
        if len(found):
            same = found[at] == numbers[rows]
            resolved[rows[same]] = codes[at[same]]
    return resolved
