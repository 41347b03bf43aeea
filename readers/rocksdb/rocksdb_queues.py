"""Read consume queues in RocksDB (5.2.0+: storeType=defaultRocksDB, or double writing beside queue files).

The default family has one entry for each slot, in the order topic length, topic, queue number, queue offset; the family
`offset` has the first and the last slot of each queue, and the commit-log offset up to which records were dispatched.
Nothing is written before a flush: for a running or killed broker the database can be empty, and the commit log decides
(docs/formats/consume_queues.md#rocksdb).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.errors import MissingLibrary, SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.layout import Field, Layout, VariablePart
from rmqtx.readers.queues.consume_queue import Slots
from rmqtx.readers.rocksdb.rocksdb import DEFAULT, Database, open_database, unread
from rmqtx.readers.store.store import CHECK_TOPICS, QUEUE_DATABASES, Store

OFFSETS = "offset"
MARK = b"\x01"
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"
BATCH_ROWS = 65_536
_SOURCE = "store/queue/RocksDBConsumeQueueTable.java, docs/formats/consume_queues.md#rocksdb"

SLOT_KEY = Layout(
    "rocksdb_slot_key",
    "Key of a consume queue's slot in RocksDB",
    (Field("topic_length_bytes", "i", "length of the topic", "byte"),),
    4,
    _SOURCE,
    (
        VariablePart("topic", "topic_length_bytes + 2", "UTF-8 between two bytes 01"),
        VariablePart("queue_id", "5", "queue number, 4 bytes, and a byte 01"),
        VariablePart("queue_offset", "8", "number of the slot in its queue"),
    ),
    since="5.2.0",
)
SLOT_VALUE = Layout(
    "rocksdb_slot",
    "Slot of a consume queue in RocksDB",
    (
        Field("commit_log_offset", "q", "commit-log offset of the record", "byte"),
        Field("record_length_bytes", "i", "length of the whole record", "byte"),
        Field("tags_code", "q", "Java hash of the tag, or due time in ms (delayed topics)"),
        Field("store_time_ms", "q", "broker clock at append", "ms"),
    ),
    28,
    _SOURCE,
    since="5.2.0",
)
END_VALUE = Layout(
    "rocksdb_queue_end",
    "First (min) or last (max) slot of a consume queue in RocksDB",
    (
        Field("commit_log_offset", "q", "commit-log offset of its record", "byte"),
        Field("queue_offset", "q", "queue offset of the slot; the next slot has the offset of max plus one"),
    ),
    16,
    "store/queue/RocksDBConsumeQueueOffsetTable.java, docs/formats/consume_queues.md#rocksdb",
    since="5.2.0",
)
#: After the topic of a slot's key: mark, queue number, mark, queue offset.
_TAIL = struct.Struct(">sisq")
#: After the topic of a key of the family `offset`: mark, which end, mark, queue number.
_END_TAIL = struct.Struct(">s3ssi")


def key_prefix(topic: str, queue_id: int) -> bytes:
    """Return the prefix of the keys of a queue's slots; the queue offset follows."""
    name = topic.encode("utf-8", "surrogateescape")
    return SLOT_KEY.pack(topic_length_bytes=len(name)) + MARK + name + MARK + struct.pack(">i", queue_id) + MARK


def slot_key(topic: str, queue_id: int, queue_offset: int) -> bytes:
    """Return the key of a slot."""
    return key_prefix(topic, queue_id) + struct.pack(">q", queue_offset)


@dataclass(slots=True)
class RocksdbSlots:
    """Consecutive slots of one queue. Shape: the arrays go together. Order: queue offset. Units: bytes, ms."""

    topic: str
    queue_id: int
    queue_offsets: Int64s
    slots: Slots


@dataclass(slots=True)
class _Part:
    """Slots of one queue during a read: `head` is the common prefix of their keys."""

    head: bytes | None = None
    queue: tuple[str, int] = ("", 0)
    numbers: list[bytes] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)

    def taken(self, begin: int, end: int) -> Iterator[RocksdbSlots]:
        """Return the slots with a number in [begin, end), or None, and clear the part."""
        if not self.values:
            return
        numbers = np.frombuffer(b"".join(self.numbers), ">i8").astype(np.int64)
        slots = np.frombuffer(b"".join(self.values), SLOT_VALUE.dtype)
        self.numbers, self.values = [], []
        wanted = (numbers >= begin) & (numbers < end)
        if wanted.any():
            yield RocksdbSlots(*self.queue, numbers[wanted], slots[wanted])


@dataclass(slots=True)
class QueueEnds:
    """The first and the last slot of a queue in the family `offset`; None if there is no entry.

    Shape: queue offset and commit-log offset. The first is 0 and 0 if a client requested it before there was a slot,
           even if the queue still has none; an empty queue has no last slot.
    """

    first: tuple[int, int] | None = None
    last: tuple[int, int] | None = None


@dataclass(slots=True)
class QueueDatabase:
    """Consume queues in one database; `findings` grow while it is read."""

    store: Store
    database: Database
    findings: list[Finding] = field(default_factory=list)

    def slots(
        self, topic: str | None = None, queue_id: int | None = None, from_queue_offset: int = 0,
        to_queue_offset: int = 2**63 - 1,
    ) -> Iterator[RocksdbSlots]:
        """Yield the slots of all queues, or of a topic, a queue number, a range of queue offsets; 65,536 at most.

        Order:  length of the topic, topic, queue number, queue offset.
        Damage: database-entry.
        Raises: UnreadableFile.
        """
        begin, end = _range(topic, queue_id, from_queue_offset, to_queue_offset)
        part = _Part()
        for key, value in self.database.items(DEFAULT, begin, end):
            if key[:-8] != part.head or len(value) != SLOT_VALUE.size_bytes:
                yield from part.taken(from_queue_offset, to_queue_offset)
                queue = self._queue_of(key, value)
                if queue is None or topic not in (None, queue[0]) or queue_id not in (None, queue[1]):
                    part = _Part()
                    continue
                part = _Part(key[:-8], queue)
            part.numbers.append(key[-8:])
            part.values.append(value)
            if len(part.values) == BATCH_ROWS:
                yield from part.taken(from_queue_offset, to_queue_offset)
        yield from part.taken(from_queue_offset, to_queue_offset)

    def ends(self) -> dict[tuple[str, int], QueueEnds]:
        """Return the broker's entries for the first and last slot of each queue, by topic and queue number.

        Damage: database-entry.
        Raises: UnreadableFile.
        """
        found: dict[tuple[str, int], QueueEnds] = {}
        for key, value in self.database.items(OFFSETS):
            parsed = _end_key(key)
            if parsed is None or len(value) < END_VALUE.size_bytes:
                if parsed is None or parsed[0] != CHECKPOINT_TOPIC:
                    self._report(key, value)
                continue
            topic, which, queue_id = parsed
            end = END_VALUE.unpack(value)
            entry = found.setdefault((topic, queue_id), QueueEnds())
            place = (end["queue_offset"], end["commit_log_offset"])
            if which == b"max":
                entry.last = place
            else:
                entry.first = place
        return found

    def taken_in_offset(self) -> int | None:
        """Return the commit-log offset up to which records were dispatched; None if the database has no such entry.

        Units:  bytes of the commit log.
        Raises: UnreadableFile.
        """
        name = CHECKPOINT_TOPIC.encode()
        head = SLOT_KEY.pack(topic_length_bytes=len(name)) + MARK + name
        key = head + _END_TAIL.pack(MARK, b"max", MARK, 0)
        value = self.database.get(OFFSETS, key)
        return None if value is None or len(value) < 8 else int.from_bytes(value[:8], "big", signed=True)

    def _queue_of(self, key: bytes, value: bytes) -> tuple[str, int] | None:
        """Return topic and queue number of a slot; report an entry that is not a slot and return None."""
        length = int.from_bytes(key[:4], "big", signed=True)
        end = SLOT_KEY.size_bytes + 1 + length
        if len(key) == end + _TAIL.size and length >= 0 and len(value) == SLOT_VALUE.size_bytes:
            first, queue_id, second, _ = _TAIL.unpack_from(key, end)
            if key[4:5] == first == second == MARK:
                return _text(key[5:end]), queue_id
        self._report(key, value)
        return None

    def _report(self, key: bytes, value: bytes) -> None:
        self.findings.append(
            Finding(
                self.store.root, "database-entry", self.database.directory,
                expected=f"a key of topic, queue number and queue offset, and a value of {SLOT_VALUE.size_bytes} bytes",
                actual=f"key {key[:200]!r}, value of {len(value)} bytes",
            )
        )


def _range(topic: str | None, queue_id: int | None, begin: int, end: int) -> tuple[bytes, bytes | None]:
    """Return the range of keys that contains the requested slots."""
    if topic is None:
        return b"", None
    name = topic.encode("utf-8", "surrogateescape")
    if queue_id is None:
        prefix = SLOT_KEY.pack(topic_length_bytes=len(name)) + MARK + name
        return prefix + MARK, prefix + b"\x02"
    return slot_key(topic, queue_id, begin), slot_key(topic, queue_id, end)


def _end_key(key: bytes) -> tuple[str, bytes, int] | None:
    end = SLOT_KEY.size_bytes + 1 + int.from_bytes(key[:4], "big", signed=True)
    if end <= SLOT_KEY.size_bytes or len(key) != end + _END_TAIL.size:
        return None
    first, which, second, queue_id = _END_TAIL.unpack_from(key, end)
    if not key[4:5] == first == second == MARK or which not in (b"max", b"min"):
        return None
    return _text(key[5:end]), which, queue_id


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def queue_bounds(store: Store, findings: list[Finding]) -> dict[tuple[str, int], tuple[int, int]]:
    """Return the queue offsets of the first slot and past the last slot, for every queue in RocksDB that has a slot.

    Damage: database-unread, database-entry.
    """
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for name in store.queue_databases:
        try:
            with open_database(store, name) as database:
                for queue, ends in QueueDatabase(store, database, findings).ends().items():
                    if ends.last is not None:
                        found[queue] = (0 if ends.first is None else ends.first[0], ends.last[0] + 1)
        except SourceError as error:
            findings.append(unread(store, store.place(name), error))
    return found


def joined_bounds(in_files: tuple[int, int] | None, in_rocksdb: tuple[int, int] | None) -> tuple[int, int] | None:
    """Return the queue offsets of the first slot and past the last slot of a queue; None for no queue.

    A broker that was switched to queues in RocksDB leaves the files of before, which end earlier (seen on 5.5.0).
    """
    if in_files is None or in_rocksdb is None:
        return in_files or in_rocksdb
    return min(in_files[0], in_rocksdb[0]), max(in_files[1], in_rocksdb[1])


def end_in_rocksdb(store: Store, topic: str) -> int:
    """Return the queue offset past the last slot of a topic's queue 0 in RocksDB; 0 if no readable database has one.

    A broker that was switched to queues in RocksDB leaves the files of before, which end earlier (seen on 5.5.0).
    Damage: reported by `unread_queues`.
    """
    return queue_bounds(store, []).get((topic, 0), (0, 0))[1] if store.has_rocksdb_queues else 0


def unread_queues(store: Store) -> list[Finding]:
    """Return why queues in RocksDB cannot be read; nothing if they can, or if the store has only files.

    Of the slots only those that the check reads are read.
    Damage: database-unread, database-entry, queue-database-missing.
    """
    findings = lacking_database(store)
    if findings or not store.has_rocksdb_queues:
        return findings
    queue_bounds(store, findings)
    for name in [] if findings else store.queue_databases:
        try:
            with open_database(store, name) as database:
                queues = QueueDatabase(store, database)
                for topic in CHECK_TOPICS:
                    for _ in queues.slots(topic):
                        pass
                findings += dict.fromkeys(queues.findings)
        except SourceError as error:
            findings.append(unread(store, store.place(name), error))
    return findings


def damaged_databases(store: Store) -> list[Finding]:
    """Return the databases of consume queues that cannot be opened because of damage: a broker does not start on them.

    Damage: start-refused. Without the library nothing is known.
    Source: seen on 5.4.0 and 5.5.0 without CURRENT or the .sst files, also with queues in files beside the database.
    """
    found: list[Finding] = []
    for name in store.queue_databases:
        try:
            open_database(store, name).close()
        except MissingLibrary:
            return []
        except SourceError as error:
            found.append(Finding(
                store.root, "start-refused", store.place(name), expected="a RocksDB database that can be opened",
                actual=error.message,
                advice="move the directory out of the store, after a copy of the whole store: the next start writes "
                "the queues again from the log (seen on 5.5.0); or replace it from a backup",
            ))
    return found


def lacking_database(store: Store) -> list[Finding]:
    """Return a finding if the database of consume queues is missing."""
    if not store.lacks_queue_database:
        return []
    return [Finding(
        store.root, "queue-database-missing", store.place(QUEUE_DATABASES[0]),
        expected="a RocksDB database, because the settings are in RocksDB (storeType=defaultRocksDB)",
        actual="neither a database nor queue files",
    )]
