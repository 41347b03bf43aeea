"""Read slots of a queue, simple or batch, by their number, and cache a store's derived files in the process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rmqtx.readers.model.columns import Int64s, strings
from rmqtx.readers.queues.consume_queue import BATCH_SLOT, SLOT, Slots
from rmqtx.readers.queues.unit_files import UnitLog
from rmqtx.readers.store.fastjson import config_table
from rmqtx.readers.store.store import Store

SIMPLE, BATCH = "consumequeue", "batchconsumequeue"
LAYOUTS = {SIMPLE: SLOT, BATCH: BATCH_SLOT}
#: (kind, topic as bytes, queue number)
QueueName = tuple[str, bytes, int]

#: Slots with a larger distance are read separately: one of their numbers may be damaged.
_APART_SLOTS = 4096
_STORES_KEPT = 4
#: Number of adjacent slots that a binary search compares at once.
_PROBED = 9


def topic_text(topic: bytes) -> str:
    """Return a topic as the name of a directory."""
    return topic.decode("utf-8", "surrogateescape")


def topic_bytes(text: str) -> bytes:
    """Return a topic as in records, from the name of its directory."""
    return text.encode("utf-8", "surrogateescape")


class SlotFiles(UnitLog):
    """The files of one queue, simple or batch, read by slot number."""

    def __init__(self, store: Store, name: QueueName) -> None:
        kind, topic, queue_id = name
        may_exist = queue_id >= 0 and is_directory_name(topic)
        found = store.queue_segments(topic_text(topic), queue_id, kind)[0] if may_exist else ()
        super().__init__(found, LAYOUTS[kind])
        self.bases = np.array([part.base_offset // self.layout.size_bytes for part in self.segments], np.int64)


def is_directory_name(topic: bytes) -> bool:
    """Whether a directory can have this name: a damaged topic may be any bytes."""
    return bool(topic) and b"/" not in topic and b"\0" not in topic and topic not in (b".", b"..")


#: The listed files of the last few stores in this process: a queue is listed once, not once for each split.
_listed: OrderedDict[tuple[str, int, str], dict[object, object]] = OrderedDict()


def cache_of(store: Store) -> dict[object, object]:
    """Return the cache of this process for a store, by any key."""
    key = (store.root, store.taken_time_ms, store.opening)
    if key not in _listed:
        _listed[key] = {}
        if len(_listed) > _STORES_KEPT:
            _close(_listed.popitem(last=False)[1])
    return _listed[key]


def close_slot_files(store: Store) -> None:
    """Close the files of all queues of a store in this process; a later read opens them again."""
    _close(cache_of(store))


def _close(cache: dict[object, object]) -> None:
    for files in cache.values():
        if isinstance(files, SlotFiles):
            files.close()


def slot_files(store: Store, name: QueueName) -> SlotFiles:
    """Return the files of a queue; listed once in each process."""
    cache = cache_of(store)
    files = cache.get(name)
    if not isinstance(files, SlotFiles):
        files = cache[name] = SlotFiles(store, name)
    return files


def batch_queues(store: Store) -> frozenset[tuple[str, int]]:
    """Return the batch queues of a store, by files and by topic configuration; listed once in each process."""
    cache = cache_of(store)
    found = cache.get(BATCH)
    if not isinstance(found, frozenset):
        found = cache[BATCH] = frozenset([*store.queues(BATCH), *_configured_as_batch(store)])
    return found


def _configured_as_batch(store: Store) -> Iterator[tuple[str, int]]:
    """Yield the queues of topics with `queue.type=BatchCQ` (5.0.0+); none if the configuration cannot be read."""
    for topic, about in (config_table(store, "topics.json", "topicConfigTable") or {}).items():
        attributes = about.get("attributes") if isinstance(about, dict) else None
        if isinstance(attributes, dict) and attributes.get("queue.type") == "BatchCQ":
            count = about.get("writeQueueNums")
            yield from ((topic, number) for number in range(count if isinstance(count, int) and count < 65_536 else 0))


def slots_of(files: SlotFiles, numbers: Int64s) -> Iterator[tuple[Int64s, Slots]]:
    """Yield the slots with given numbers, close ones read together: rows of `numbers`, and the slot of each."""
    held = np.flatnonzero((numbers >= files.first) & (numbers < files.end))
    if not len(held):
        return
    order = held[np.argsort(numbers[held], kind="stable")]
    ascending = numbers[order]
    cuts = np.flatnonzero(np.diff(ascending) > _APART_SLOTS) + 1
    for begin, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(order)], strict=True):
        first = int(ascending[begin])
        slots = files.read(first, int(ascending[end - 1]) + 1)
        yield order[begin:end], slots[ascending[begin:end] - first]


def places_by_offset(files: SlotFiles, offsets: Int64s) -> Int64s:
    """Return the numbers of the slots that point at records, for queues with queue offsets in slots; −1 for none."""
    places = np.full(len(offsets), -1, np.int64)
    if not len(offsets) or not files.segments:
        return places
    first, _ = pointed_boundary(files, int(offsets.min()))
    _, end = pointed_boundary(files, int(offsets.max()) + 1)
    pointed = files.read(first, end)["commit_log_offset"].astype(np.int64)
    order = np.argsort(pointed, kind="stable")
    if len(order):
        at = np.minimum(np.searchsorted(pointed[order], offsets), len(order) - 1)
        found = pointed[order][at] == offsets
        places[found] = order[at[found]] + first
    return places


def pointed_boundary(files: SlotFiles, offset: int) -> tuple[int, int]:
    """Return a short range of slot numbers that contains the first slot at or after a place of the log."""
    return boundary(lambda low, high: _pointed(files, low, high), files.first, files.end, offset)


def _pointed(files: SlotFiles, first: int, end: int) -> Int64s:
    """Return the places that slots point at; unused slots point after all others."""
    slots = files.read(first, end)
    offsets = slots["commit_log_offset"].astype(np.int64)
    offsets[slots["record_length_bytes"] <= 0] = np.iinfo(np.int64).max
    return offsets


def boundary(offsets_of: Callable[[int, int], Int64s], low: int, high: int, wanted: int) -> tuple[int, int]:
    """Return a short range of indexes that contains the first of some ascending numbers that is not below `wanted`.

    Binary search that compares the median of several adjacent numbers, so that a damaged one has no effect.
    """
    while high - low > 4 * _PROBED:
        middle = (low + high) // 2
        if np.median(offsets_of(middle, middle + _PROBED)) >= wanted:
            high = middle + _PROBED
        else:
            low = middle
    return low, high


def queue_text(name: QueueName) -> str:
    """Return a queue as text."""
    return f"queue {name[2]} of {strings(pa.array([name[1]], pa.binary()))[0].as_py()}"


@dataclass(slots=True)
class QueuePart:
    """The result of one split for one queue.

    Shape: `runs` are numbers of slots [from, to) that agree with a record. The other arrays go together and hold the
           records whose slot does not agree: the slot number in the record, its place and length, its tags code, and
           the values in the slot with that number (place −1: no slot).
    Units: bytes of the commit log.
    """

    runs: Int64s
    numbers: Int64s
    offsets: Int64s
    lengths: Int64s
    tags_codes: Int64s
    slot_offsets: Int64s
    slot_lengths: Int64s
    slot_tags: Int64s


#: The columns of a QueuePart about records whose slot does not agree.
RECORD_COLUMNS = (
    "numbers", "offsets", "lengths", "tags_codes", "slot_offsets", "slot_lengths", "slot_tags",
)
