"""What queues know of ranges of a log: the slots that point into each, and those nearest before and behind it.

Queues in files and in RocksDB are asked alike; batch queues are not, so their records are bytes that no queue knows.
The effort is bounded: of a store with more queues, or more slots in its ranges, nothing is said, and a range of which
nothing is said may hide anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from readers.model.columns import Int64s
from readers.model.errors import SourceError
from readers.queues.consume_queue import open_queue
from readers.rocksdb.rocksdb import open_database
from readers.rocksdb.rocksdb_queues import QueueDatabase, queue_directories
from readers.store.store import Store

Range = tuple[int, int]

#: So many pairs of a queue and a range are looked at.
_LOOKS_MAX = 1 << 14
#: So many slots are read, of all queues together.
_SLOTS_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class RangeSlots:
    """The slots of one queue that point into a range, with the nearest one on each side.

    Shape: three arrays that go together; `numbers` are queue offsets. `is_from_begin`: there is no earlier slot.
    Order: queue offset. Units: bytes of the commit log.
    """

    topic: str
    queue_id: int
    numbers: Int64s
    offsets: Int64s
    lengths: Int64s
    is_from_begin: bool

    @property
    def is_in_order(self) -> bool:
        """Whether they are numbered without a hole and stand in the log in that order: then none is missing here."""
        return bool((np.diff(self.numbers) == 1).all() and (np.diff(self.offsets) > 0).all())


class TooMany(Exception):
    """There is more to look at than the bounds allow."""


def slots_of_ranges(store: Store, ranges: Sequence[Range]) -> list[list[RangeSlots]] | None:
    """For each range what every queue knows there; None where that cannot be found out with bounded effort.

    Shape: a queue that cannot be read is left out. Units: commit-log offsets in bytes.
    """
    found: list[list[RangeSlots]] = [[] for _ in ranges]
    budget = _Budget()
    try:
        for topic, queue_id in store.prepared_queues(store.queues()):
            budget.look(len(ranges))
            try:
                parts = list(_in_file(store, topic, queue_id, ranges, budget))
            except SourceError:
                continue
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
        if self.looks > _LOOKS_MAX:
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
    for directory in queue_directories(store):
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
            continue
        for (topic, queue_id), pieces in parts.items():
            numbers, offsets, lengths = (np.concatenate(columns) for columns in zip(*pieces, strict=True))
            if (np.diff(offsets) <= 0).any():
                continue  # it cannot be searched by halves, and proves nothing
            for row, (begin, end) in zip(found, ranges, strict=True):
                first, last = np.searchsorted(offsets, (begin, end)).tolist()
                near = slice(max(first - 1, 0), last + 1)
                is_from_begin = first == 0 and len(numbers) > 0 and int(numbers[0]) == 0
                row.append(
                    RangeSlots(topic, queue_id, numbers[near], offsets[near], lengths[near], is_from_begin)
                )
    return found
