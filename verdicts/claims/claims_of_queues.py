"""Claims of consume queues about the commit log: the newest slot of each queue, in files and in RocksDB."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from rmqtx.readers.log.commit_log import last_with_data, written_bytes
from rmqtx.readers.log.segment_scan import SegmentScan
from rmqtx.readers.model.columns import Bools
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import as_text
from rmqtx.readers.queues.consume_queue import SLOT, Slots, are_filler, are_sound
from rmqtx.readers.queues.slot_files import BATCH, LAYOUTS, SIMPLE
from rmqtx.readers.queues.unit_files import is_well_named, last_unit
from rmqtx.readers.rocksdb.rocksdb import open_database
from rmqtx.readers.rocksdb.rocksdb_queues import QueueDatabase
from rmqtx.readers.store.fastjson import read_config
from rmqtx.readers.store.store import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC, Store
from rmqtx.verdicts.claims.log_claim import BATCH_QUEUE, QUEUE, ROCKSDB_QUEUE, LogClaim, of_record

#: The most queues in files that are read: a store may have tens of thousands, and the index covers them too.
QUEUES_ASKED_MAX = 64
#: How much of the end of a log in object storage is read for guesses where queues end.
_NEWEST_BYTES = 1 << 20
#: The most queues in RocksDB that are read; the database also stores the offset up to which it was built.
_ROCKSDB_QUEUES_MAX = 20_000
_OWN_TOPICS = (HALF_TOPIC, OP_TOPIC, DISCARD_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC)


def queue_claims(store: Store, *, by_samples: bool = False) -> tuple[list[LogClaim], bool]:
    """Return the claims of queues in files, and whether some queues were not read.

    `by_samples`: of a remote store, samples show where queues end, except those of the check.
    Order: the broker's own topics, then names.
    Damage: a queue that cannot be read claims nothing.
    """
    claims: list[LogClaim] = []
    has_more = False
    guesses = _guessed_ends(store) if by_samples and store.is_remote else _no_guess
    for kind in (SIMPLE, BATCH):
        wanted = list(itertools.islice(_queues(store, kind), QUEUES_ASKED_MAX + 1))
        has_more |= len(wanted) > QUEUES_ASKED_MAX
        asked = store.queues_opened_together(
            wanted[:QUEUES_ASKED_MAX], kind, guesses if kind == SIMPLE else _no_guess
        )
        for topic, queue_id in asked:
            try:
                claim = _newest(store, kind, topic, queue_id)
            except SourceError:
                continue
            if claim is not None:
                claims.append(claim)
    return claims, has_more


def _no_guess(_topic: str, _queue_id: int) -> int | None:
    """Return that a queue must be read."""
    return None


def _guessed_ends(store: Store) -> Callable[[str, int], int | None]:
    """Return a function that returns about where a queue ends, by the newest records of the log; else by what consumer
    groups have read.
    """
    slots: dict[tuple[str, int], int] = {}
    offsets = read_config(store, "consumerOffset.json").value
    table = offsets.get("offsetTable") if isinstance(offsets, dict) else None
    for name, queues in table.items() if isinstance(table, dict) else ():
        for queue_id, offset in queues.items() if isinstance(queues, dict) else ():
            if isinstance(offset, int) and queue_id.isdecimal():
                queue = name.partition("@")[0], int(queue_id)
                slots[queue] = max(slots.get(queue, 0), offset)
    last = last_with_data(store.commit_log)
    for segment in store.commit_log:
        if segment.base_offset == last:
            begin = max(0, written_bytes(segment) - _NEWEST_BYTES)
            for block in SegmentScan(segment, from_position=begin, stops_at_break=True, window_bytes=_NEWEST_BYTES):
                numbers, queue_ids = block.header("queue_offset").tolist(), block.header("queue_id").tolist()
                slots.update(zip(zip(block.topic_texts().to_pylist(), queue_ids, strict=True), numbers, strict=True))

    def guessed(topic: str, queue_id: int) -> int | None:
        if topic in _OWN_TOPICS:
            return None
        return slots.get((topic, queue_id), 0) * SLOT.size_bytes

    return guessed


def _queues(store: Store, kind: str) -> Iterator[tuple[str, int]]:
    """Queues by importance: those of the check, those of other topics, and those of consumer groups."""
    topics = store.topics(kind)
    own = [topic for topic in _OWN_TOPICS if topic in topics]
    others = [topic for topic in topics if topic not in own]
    for topic in [*own, *sorted(others, key=lambda topic: topic.startswith("%"))]:
        for queue_id in store.queue_numbers(topic, kind):
            yield topic, queue_id


def _newest(store: Store, kind: str, topic: str, queue_id: int) -> LogClaim | None:
    layout = LAYOUTS[kind]
    segments = tuple(one for one in store.queue_segments(topic, queue_id, kind)[0] if is_well_named(one, layout))
    last = last_unit(segments, layout, _are_records)
    if last is None:
        return None
    position, (slot,) = last
    return of_record(
        QUEUE if kind == SIMPLE else BATCH_QUEUE, as_text(store.queue_directory(topic, queue_id, kind)),
        int(slot["commit_log_offset"]), int(slot["record_length_bytes"]), slot=(topic, queue_id, position),
    )


def _are_records(slots: Slots) -> Bools:
    sound = are_sound(slots)
    return sound & ~are_filler(slots) if "first_queue_offset" not in (slots.dtype.names or ()) else sound


def rocksdb_queue_claims(store: Store) -> Iterator[LogClaim]:
    """The claims of queues in RocksDB: the last slot of each queue, and the offset up to which the log was dispatched.

    For a running or killed broker they are as old as its last flush, and still true
    (docs/formats/consume_queues.md#rocksdb).
    Raises: UnreadableFile, MissingLibrary.
    """
    for name in store.queue_databases:
        with open_database(store, name) as database:
            queues = QueueDatabase(store, database)
            place = store.place(name)
            taken_in = queues.taken_in_offset()
            if taken_in is not None and taken_in > 0:
                yield LogClaim(ROCKSDB_QUEUE, place, taken_in)
            for (topic, queue_id), ends in itertools.islice(queues.ends().items(), _ROCKSDB_QUEUES_MAX):
                if ends.last is not None:
                    number, offset = ends.last
                    yield of_record(ROCKSDB_QUEUE, place, offset, slot=(topic, queue_id, number))
