"""Half messages that consumers of light queues read before they are decided (enableLmq)."""

from __future__ import annotations

import numpy as np

from readers.log.light_queues import PREFIX
from readers.model.columns import Int64s
from readers.model.errors import SourceError
from readers.queues.consume_queue import open_queue
from readers.store.store import HALF_TOPIC, Store

_NONE = np.empty(0, np.int64)
#: How many light queues are read: a broker may have one for each client, and each is a file.
_QUEUES_MAX = 1_000


def halves_in_light_queues(store: Store) -> Int64s:
    """Return where the half messages are that slots of light queues name; reads up to _QUEUES_MAX of these queues, and
    the half queue.

    Units: commit-log offsets.
    Order: ascending, without repetition.
    Damage: what cannot be read is left out; the audit reports it.
    """
    if store.has_rocksdb_queues:
        return _NONE
    topics = [topic for topic in store.topics() if topic.startswith(PREFIX)][:_QUEUES_MAX]
    light = _offsets(store, topics)
    return np.intersect1d(light, _offsets(store, [HALF_TOPIC])) if len(light) else _NONE


def _offsets(store: Store, topics: list[str]) -> Int64s:
    """Return the commit-log offsets in the slots of the queues of topics."""
    found = [_NONE]
    queues = [(topic, queue_id) for topic in topics for queue_id in store.queue_numbers(topic)]
    for topic, queue_id in store.queues_opened_together(queues):
        try:
            with open_queue(store, topic, queue_id) as queue:
                found.append(queue.read(queue.first_offset, queue.max_offset)[1])
        except SourceError:
            continue
    return np.concatenate(found)
