"""Find the slots of queues that point into ranges of a log, with the nearest slots before and after each range.

Queues in files and in RocksDB are searched, batch queues are not, so records of batch queues are bytes without a slot.
The effort is bounded: for a store with more queues, or more slots in its ranges, the result is None, and any record may
have been in the ranges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.rocksdb.rocksdb import open_database
from rmqtx.readers.rocksdb.rocksdb_queues import QueueDatabase
from rmqtx.readers.store.store import Store

Range = tuple[int, int]

#: Limit of searches: pairs of a queue and a range.
_SEARCHES_MAX = 1 << 14
#: Limit of slots that are read, over all queues.
_SLOTS_MAX = 1 << 20
#: In place of the topic of queues that a database may have, and that are unknown because it cannot be read.
ANY_TOPIC = ""
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class RangeSlots:
    """The slots of one queue that point into a range, and the nearest slot on each side.

    Shape: three arrays that go together; `numbers` are queue offsets. `is_from_begin`: there is no earlier slot.
           `is_readable`: False for a queue that exists, and whose slots are not known.
    Order: queue offset. Units: bytes of the commit log.
    """

    topic: str
    queue_id: int
    numbers: Int64s
    offsets: Int64s
    lengths: Int64s
    is_from_begin: bool
    is_readable: bool = True

    @classmethod
    def unknown(cls, topic: str, queue_id: int) -> RangeSlots:
        """Return those of a queue that cannot be read."""
        return cls(topic, queue_id, _NONE, _NONE, _NONE, is_from_begin=False, is_readable=False)

    @property
    def is_in_order(self) -> bool:
        """Whether the slots have consecutive numbers and ascending places: then no slot is missing here."""
        return self.is_readable and bool((np.diff(self.numbers) == 1).all() and (np.diff(self.offsets) > 0).all())


class TooMany(Exception):
    """More searches or slots are needed than the limits allow."""


def slots_of_ranges(store: Store, ranges: Sequence[Range]) -> list[list[RangeSlots]] | None:
    """Return for each range the slots of every queue; None if the limits do not allow it.

    Damage: a queue that cannot be read is there without slots, for a database with `ANY_TOPIC`.
    Units: commit-log offsets in bytes.
    """
    found: list[list[RangeSlots]] = [[] for _ in ranges]
    budget = _Budget()
    try:
        for topic, queue_id in store.queues_opened_together(store.queues()):
            budget.look(len(ranges))
            try:
                parts = list(_in_file(store, topic, queue_id, ranges, budget))
            except SourceError:
                parts = [RangeSlots.unknown(topic, queue_id)] * len(ranges)
            for row, part in zip(found, parts, strict=True):
                row.append(part)
        for row, database_parts in zip(found, _in_databases(store, ranges, budget), strict=True):
            row.extend(database_parts)
    except TooMany:
        return None
    return found


@dataclass(slots=True)
class _Budget:
    looks: int = 0
    slots: int = 0

    def look(self, count: int) -> None:
        self.looks += count
        if self.looks > _SEARCHES_MAX:
            raise TooMany

    def read(self, count: int) -> None:
        self.slots += count
        if self.slots > _SLOTS_MAX:
            raise TooMany


def _in_file(
    store: Store, topic: str, queue_id: int, ranges: Sequence[Range], budget: _Budget
) -> Iterator[RangeSlots]:
    with open_queue(store, topic, queue_id) as queue:
        for begin, end in ranges:
            first, last = queue.offset_of(begin), queue.offset_of(end)
            budget.read(last - first + 2)
            numbers, offsets, lengths, _ = queue.read(max(first - 1, 0), min(last + 1, queue.max_offset))
            is_from_begin = first == 0 and queue.first_offset == 0
            yield RangeSlots(topic, queue_id, numbers, offsets, lengths.astype(np.int64), is_from_begin)


def _in_databases(store: Store, ranges: Sequence[Range], budget: _Budget) -> list[list[RangeSlots]]:
    found: list[list[RangeSlots]] = [[] for _ in ranges]
    for directory in store.queue_databases:
        parts: dict[tuple[str, int], list[tuple[Int64s, Int64s, Int64s]]] = {}
        try:
            with open_database(store, directory) as database:
                for some in QueueDatabase(store, database).slots():
                    budget.read(len(some.queue_offsets))
                    offsets, lengths = (
                        some.slots[name].astype(np.int64) for name in ("commit_log_offset", "record_length_bytes")
                    )
                    parts.setdefault((some.topic, some.queue_id), []).append((some.queue_offsets, offsets, lengths))
        except SourceError:
            for row in found:
                row.append(RangeSlots.unknown(ANY_TOPIC, 0))
            continue
        for (topic, queue_id), pieces in parts.items():
            numbers, offsets, lengths = (np.concatenate(columns) for columns in zip(*pieces, strict=True))
            if (np.diff(offsets) <= 0).any():  # a binary search is not possible, and the queue proves nothing
                for row in found:
                    row.append(RangeSlots.unknown(topic, queue_id))
                continue
            for row, (begin, end) in zip(found, ranges, strict=True):
                first, last = np.searchsorted(offsets, (begin, end)).tolist()
                near = slice(max(first - 1, 0), last + 1)
                is_from_begin = first == 0 and len(numbers) > 0 and int(numbers[0]) == 0
                row.append(
                    RangeSlots(topic, queue_id, numbers[near], offsets[near], lengths[near], is_from_begin)
                )
    return found
