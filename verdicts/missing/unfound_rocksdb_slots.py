"""Slots of queues in RocksDB whose record is missing, as `missing_ranges.unfound_slots` finds them in files.

The database is opened once for each range of the log. For a remote store this would copy the database each time, so
only its newest slots are read there (`log_claims.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np

from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.rocksdb.rocksdb import DEFAULT, open_database
from rmqtx.readers.rocksdb.rocksdb_queues import SLOT_VALUE, QueueDatabase, slot_key
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.missing.missing_ranges import UnfoundSlot, unfound_among

_PLACE = struct.Struct(">q")


def unfound_rocksdb_slots(
    store: Store, found: Mapping[str, tuple[Int64s, Int64s]], begin_offset: int, end_offset: int
) -> list[UnfoundSlot]:
    """Return slots that point into a range of the log where their record was not found.

    `found`: by topic, places and slots of its records of queue 0 in the range, in log order.
    Units: bytes of the commit log.
    Damage: a database that cannot be read proves nothing against the log.
    """
    unfound: list[UnfoundSlot] = []
    if store.is_remote:
        return unfound
    for name in store.queue_databases:
        try:
            with open_database(store, name) as database:
                queues = QueueDatabase(store, database)
                ends = queues.ends()
                for topic, (offsets, queue_offsets) in found.items():
                    end = ends.get((topic, 0))
                    if end is None or end.last is None:
                        continue
                    first = _number_at(queues, topic, begin_offset, end.last[0] + 1)
                    last = _number_at(queues, topic, end_offset, end.last[0] + 1)
                    for some in queues.slots(topic, 0, first, last):
                        places = some.slots["commit_log_offset"].astype(np.int64)
                        inside = (places >= begin_offset) & (places < end_offset)
                        lengths = some.slots["record_length_bytes"].astype(np.int64)
                        unfound += unfound_among(
                            topic, some.queue_offsets[inside], places[inside], lengths[inside], offsets, queue_offsets
                        )
        except SourceError:
            continue  # reported where it is read for the whole log
    return unfound


def _number_at(queues: QueueDatabase, topic: str, commit_log_offset: int, end: int) -> int:
    """Number of the first slot of queue 0 that points at or after a place of the log; `end` if none does.

    A binary search: the records of a queue have the same order in the log.
    """
    low, high = 0, end
    while low < high:
        middle = (low + high) // 2
        keys = slot_key(topic, 0, middle), slot_key(topic, 0, high)
        key, value = next(queues.database.items(DEFAULT, *keys), (b"", b""))
        if len(value) != SLOT_VALUE.size_bytes or _PLACE.unpack_from(value)[0] >= commit_log_offset:
            high = middle
        else:
            low = int.from_bytes(key[-8:], "big") + 1
    return low
