"""Slots of a queue by their number, simple or batch, and what a process remembers of a store's derived files."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from readers.model.columns import Int64s, strings
from readers.queues.consume_queue import BATCH_SLOT, SLOT
from readers.queues.unit_files import Slots, UnitLog
from readers.store.fastjson import read_config
from readers.store.store import Store

SIMPLE, BATCH = "consumequeue", "batchconsumequeue"
LAYOUTS = {SIMPLE: SLOT, BATCH: BATCH_SLOT}
#: (kind, topic as bytes, queue number)
QueueName = tuple[str, bytes, int]

#: Numbers of records further apart than this are read apart: one of them may be damaged.
_APART_SLOTS = 4096
_STORES_KEPT = 4
#: Neighbours that are asked together in a search by halves.
_PROBED = 9


def topic_text(topic: bytes) -> str:
    """A topic as directories are named."""
    return topic.decode("utf-8", "surrogateescape")


def topic_bytes(text: str) -> bytes:
    """A topic as records have it, of the name of its directory."""
    return text.encode("utf-8", "surrogateescape")


class SlotFiles(UnitLog):
    """The files of one queue, simple or batch, read by slot number."""

    def __init__(self, store: Store, name: QueueName) -> None:
        kind, topic, queue_id = name
        found = store.queue_segments(topic_text(topic), queue_id, kind)[0] if queue_id >= 0 and _is_name(topic) else ()
        super().__init__(found, LAYOUTS[kind])
        self.bases = np.array([part.base_offset // self.layout.size_bytes for part in self.segments], np.int64)


def _is_name(topic: bytes) -> bool:
    """Whether a directory can have this name: a damaged topic may be anything."""
    return bool(topic) and b"/" not in topic and b"\0" not in topic and topic not in (b".", b"..")


#: What this process has listed of the last few stores: files of queues are looked up once, not once for each split.
_listed: OrderedDict[tuple[str, int], dict[object, object]] = OrderedDict()


def cache_of(store: Store) -> dict[object, object]:
    """What this process remembers of a store, by whatever name is asked for."""
    key = (store.root, store.taken_time_ms)
    if key not in _listed:
        _listed[key] = {}
        if len(_listed) > _STORES_KEPT:
            _close(_listed.popitem(last=False)[1])
    return _listed[key]


def close_slot_files(store: Store) -> None:
    """Give back the descriptors of all queues of a store in this process; what is read later is opened again."""
    _close(cache_of(store))


def _close(cache: dict[object, object]) -> None:
    for files in cache.values():
        if isinstance(files, SlotFiles):
            files.close()


def slot_files(store: Store, name: QueueName) -> SlotFiles:
    """The files of a queue; listed once in each process."""
    cache = cache_of(store)
    files = cache.get(name)
    if not isinstance(files, SlotFiles):
        files = cache[name] = SlotFiles(store, name)
    return files


def batch_queues(store: Store) -> frozenset[tuple[str, int]]:
    """The batch queues of a store, by their files and its topics' configuration; listed once in each process."""
    cache = cache_of(store)
    found = cache.get(BATCH)
    if not isinstance(found, frozenset):
        found = cache[BATCH] = frozenset([*store.queues(BATCH), *_configured_as_batch(store)])
    return found


def _configured_as_batch(store: Store) -> Iterator[tuple[str, int]]:
    """The queues of topics with `queue.type=BatchCQ` (5.0.0+); none where the configuration cannot be read."""
    config = read_config(store, "topics.json").value
    table = config.get("topicConfigTable") if isinstance(config, dict) else None
    for topic, about in table.items() if isinstance(table, dict) else ():
        attributes = about.get("attributes") if isinstance(about, dict) else None
        if isinstance(attributes, dict) and attributes.get("queue.type") == "BatchCQ":
            count = about.get("writeQueueNums")
            yield from ((topic, number) for number in range(count if isinstance(count, int) and count < 65_536 else 0))


def slots_of(files: SlotFiles, numbers: Int64s) -> Iterator[tuple[Int64s, Slots]]:
    """The slots of some numbers, near ones read together: rows of `numbers`, and each one's slot."""
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
    """Numbers of the slots that point at records, for queues whose slots carry their queue offset; −1: none."""
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
    """Numbers of a few slots among which the first is that points at or behind a place of the log."""
    return boundary(lambda low, high: _pointed(files, low, high), files.first, files.end, offset)


def _pointed(files: SlotFiles, first: int, end: int) -> Int64s:
    """Where slots point; those that are not used point behind all."""
    slots = files.read(first, end)
    offsets = slots["commit_log_offset"].astype(np.int64)
    offsets[slots["record_length_bytes"] <= 0] = np.iinfo(np.int64).max
    return offsets


def boundary(offsets_of: Callable[[int, int], Int64s], low: int, high: int, wanted: int) -> tuple[int, int]:
    """A few neighbours among which the first of some ascending numbers is that is not below `wanted`.

    Searches by halves, and asks the middle of several neighbours each time: one that is damaged misleads nothing.
    """
    while high - low > 4 * _PROBED:
        middle = (low + high) // 2
        if np.median(offsets_of(middle, middle + _PROBED)) >= wanted:
            high = middle + _PROBED
        else:
            low = middle
    return low, high


def queue_text(name: QueueName) -> str:
    """A queue in words."""
    return f"queue {name[2]} of {strings(pa.array([name[1]], pa.binary()))[0].as_py()}"
