"""Light queues: additional queues of a record, named in its properties (4.9.3+, enableMultiDispatch or enableLmq)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from rmqtx.readers.log.properties import MULTI_DISPATCH
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.store.store import HALF_TOPIC, Store

_NONE = np.empty(0, np.int64)
#: How many light queues are read: a broker may have one for each client, and each is a file.
_QUEUES_MAX = 1_000
PREFIX = "%LMQ%"
_OFFSETS = "INNER_MULTI_QUEUE_OFFSET"


def halves_in_light_queues(store: Store) -> Int64s:
    """Return where the half messages are that slots of light queues name; reads up to _QUEUES_MAX of these queues, and
    the half queue.

    Units: commit-log offsets.
    Order: ascending, without repetition.
    Damage: what cannot be read is left out; the audit reports it.
    """
    if store.has_rocksdb_queues:
        return _NONE
    light = slot_offsets(store, light_queues(store))
    if not len(light):
        return _NONE
    halves = [(HALF_TOPIC, queue_id) for queue_id in store.queue_numbers(HALF_TOPIC)]
    return np.intersect1d(light, slot_offsets(store, halves))


def light_queues(store: Store) -> list[tuple[str, int]]:
    """Return up to _QUEUES_MAX light queues of a store: topic and queue number."""
    topics = [topic for topic in store.topics() if topic.startswith(PREFIX)][:_QUEUES_MAX]
    return [(topic, queue_id) for topic in topics for queue_id in store.queue_numbers(topic)]


def slot_offsets(store: Store, queues: list[tuple[str, int]]) -> Int64s:
    """Return the commit-log offsets in the slots of queues.

    Damage: queues that cannot be read are left out; the audit reports them.
    """
    found = [_NONE]
    for topic, queue_id in store.queues_opened_together(queues):
        try:
            with open_queue(store, topic, queue_id) as queue:
                found.append(queue.read(queue.first_offset, queue.max_offset)[1])
        except SourceError:
            continue
    return np.concatenate(found)


def further_slots(rows: Block) -> Iterator[tuple[int, str, int, int]]:
    """Return the slots of records in queues other than their own: row, topic, queue number, queue offset.

    Order: that of the rows, then the property's.
    Damage: values that are not numbers are left out.
    Source: store/MultiDispatch.java, LmqDispatch.java; queues without the prefix have the record's queue number.
    """
    if not rows.properties.locate(MULTI_DISPATCH)[2].any():
        return
    names = rows.properties.text(MULTI_DISPATCH).to_pylist()
    places = rows.properties.text(_OFFSETS).to_pylist()
    for row, (queues, offsets) in enumerate(zip(names, places, strict=True)):
        if not queues or not offsets:
            continue
        for queue, offset in zip(queues.split(","), offsets.split(","), strict=False):
            if re.fullmatch(r"\d{1,18}", offset):
                queue_id = 0 if queue.startswith(PREFIX) else int(rows.header("queue_id")[row])
                yield row, queue, queue_id, int(offset)
