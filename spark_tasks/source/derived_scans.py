"""Tables from the files beside the log: consume queues by ranges of slots, others by file or by store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.cursors import read_cursors
from rmqtx.readers.index.index import infer_slots_count
from rmqtx.readers.index.index_scan import scan_entries
from rmqtx.readers.model.errors import FileChanged, SourceError, UnreadableFile
from rmqtx.readers.model.findings import Finding, as_text
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.model.tables import SEGMENTS, findings_table
from rmqtx.readers.queues.consume_queue import SLOT
from rmqtx.readers.queues.consume_queue_scan import scan_slots
from rmqtx.readers.queues.slot_files import BATCH, SIMPLE
from rmqtx.readers.rocksdb.rocksdb_queue_scan import scan_rocksdb_slots
from rmqtx.readers.rocksdb.rocksdb_queues import SLOT_VALUE, queue_bounds
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.checkpoint import read_checkpoint
from rmqtx.readers.store.store import Store
from rmqtx.spark_tasks.source.pushdown import Narrowing, PushedConditions, whole
from rmqtx.spark_tasks.source.read_options import ReadOptions, Settings
from rmqtx.verdicts.audit.local_audit import audit

_ROWS_MAX = 65_536
_QUEUE_KINDS = ("consumequeue", "batchconsumequeue", "consumequeue_ext")
_Row = tuple[str, str, str | None, int | None, str, int | None, int]


def read_segments(store: Store) -> Reading:
    """Return the files of the commit log, of every queue, and of the index. Reads directories only.

    Shape:  rows of SEGMENTS; topic and queue number are null except for queues; the base offset is null for the index,
            whose files are named after times.
    Order:  commit log, queues by kind, topic and number, index; base offset ascending.
    Damage: files that do not belong there, gaps and different lengths are findings.
    """
    reading = Reading(SEGMENTS, (), list(store.findings))
    reading.batches = _batches(store, reading)
    return reading


def _batches(store: Store, reading: Reading) -> Iterator[pa.RecordBatch]:
    rows: list[_Row] = []
    for row in _rows(store, reading):
        rows.append(row)
        if len(rows) == _ROWS_MAX:
            yield _batch(rows)
            rows = []
    if rows:
        yield _batch(rows)


def _rows(store: Store, reading: Reading) -> Iterator[_Row]:
    yield from (_row(store, "commitlog", segment) for segment in store.commit_log)
    for kind in _QUEUE_KINDS:
        for topic, queue_id in store.queues(kind):
            segments, findings = store.queue_segments(topic, queue_id, kind)
            reading.findings.extend(findings)
            yield from (_row(store, kind, segment, as_text(topic), queue_id) for segment in segments)
    for segment in store.index_files:
        yield store.root, "index", None, None, segment.file, None, segment.size_bytes


def _row(store: Store, kind: str, segment: Segment, topic: str | None = None, queue_id: int | None = None) -> _Row:
    return store.root, kind, topic, queue_id, segment.file, segment.base_offset, segment.size_bytes


def _batch(rows: list[_Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SEGMENTS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SEGMENTS)


@dataclass(frozen=True, slots=True)
class _QueueRange:
    """A range of slots of one queue, and the files at the time of planning; None is no bound."""

    store: Store
    topic: str
    queue_id: int
    segments: tuple[Segment, ...]
    from_queue_offset: int | None = None
    to_queue_offset: int | None = None

    @property
    def size_bytes(self) -> int:
        """Approximate number of bytes to read."""
        if self.from_queue_offset is None or self.to_queue_offset is None:
            return sum(segment.size_bytes for segment in self.segments)
        return (self.to_queue_offset - self.from_queue_offset) * SLOT.size_bytes

    def require_files(self) -> None:
        """Check that the files still exist: a queue is listed again when it is read. Raises: FileChanged."""
        kinds = (SIMPLE, BATCH)
        lists = [self.store.queue_segments(self.topic, self.queue_id, kind)[0] for kind in kinds]
        there = {segment.file for segments in lists for segment in segments}
        for segment in self.segments:
            if segment.file not in there:
                raise FileChanged(
                    f"{segment.file} was removed while the query ran", file=segment.file, advice="run the query again"
                )


@dataclass(frozen=True, slots=True)
class _RocksdbQueue:
    """One queue in RocksDB."""

    store: Store
    topic: str
    queue_id: int
    slots_count: int

    @property
    def size_bytes(self) -> int:
        """Approximate number of bytes to read."""
        return self.slots_count * SLOT_VALUE.size_bytes


class QueueScan(Narrowing):
    """Consume-queue slots. A task is some small queues, or a range of a large one.

    Order: within a queue, queue offset ascending.
    """

    conditioned = frozenset({"store", "topic", "queue_id"})

    def __init__(self, options: ReadOptions, stores: list[Store]) -> None:
        super().__init__(PushedConditions(topics=None if options.topic is None else frozenset({options.topic})))
        self._split_bytes = options.split_bytes
        self._stores = stores

    def __len__(self) -> int:
        return len(self._tasks)

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the entries of one task's queues. Raises: UnreadableFile, FileChanged."""
        for part in self._tasks[number]:
            if isinstance(part, _RocksdbQueue):
                yield from whole(scan_rocksdb_slots(part.store, topic=part.topic, queue_id=part.queue_id))
                continue
            bounds = {"from_queue_offset": part.from_queue_offset, "to_queue_offset": part.to_queue_offset}
            part.require_files()
            yield from whole(scan_slots(part.store, topic=part.topic, queue_id=part.queue_id, **bounds))

    @cached_property
    def _tasks(self) -> list[list[_QueueRange | _RocksdbQueue]]:
        tasks: list[list[_QueueRange | _RocksdbQueue]] = []
        room_bytes = 0
        for part in self._ranges():
            if not tasks or part.size_bytes > room_bytes:
                tasks.append([])
                room_bytes = self._split_bytes
            tasks[-1].append(part)
            room_bytes -= part.size_bytes
        return tasks

    def _ranges(self) -> Iterator[_QueueRange | _RocksdbQueue]:
        for store in self._stores:
            if not self.conditions.has_store(store.root):
                continue
            batch_queues = set(store.queues("batchconsumequeue"))
            for topic, queue_id in sorted(batch_queues.union(store.queues())):
                if not self.conditions.has_queue(as_text(topic), queue_id):
                    continue
                segments, _ = store.queue_segments(topic, queue_id)
                if (topic, queue_id) in batch_queues:
                    # a slot of a batch queue contains its queue offset, so a batch queue is not divided
                    segments += store.queue_segments(topic, queue_id, "batchconsumequeue")[0]
                    yield _QueueRange(store, topic, queue_id, segments)
                else:
                    yield from _cut(_QueueRange(store, topic, queue_id, segments), self._split_bytes)
            yield from self._rocksdb_queues(store)

    def _rocksdb_queues(self, store: Store) -> Iterator[_RocksdbQueue]:
        findings: list[Finding] = []
        for (topic, queue_id), (first, end) in sorted(queue_bounds(store, findings).items()):
            if self.conditions.has_queue(as_text(topic), queue_id):
                yield _RocksdbQueue(store, topic, queue_id, end - first)
        for finding in findings:
            if finding.code == "database-unread":
                raise UnreadableFile(str(finding.actual), file=finding.file)


def _cut(queue: _QueueRange, split_bytes: int) -> Iterator[_QueueRange]:
    if queue.size_bytes <= split_bytes:
        yield queue
        return
    slots = max(1, split_bytes // SLOT.size_bytes)
    for segment in queue.segments:  # one by one: the distance between two files is arbitrary
        first, end = (-(-offset // SLOT.size_bytes) for offset in (segment.base_offset, segment.end_offset))
        for begin in range(first, end, slots):
            stop = min(begin + slots, end)
            yield replace(queue, segments=(segment,), from_queue_offset=begin, to_queue_offset=stop)


class IndexScan(Narrowing):
    """Index entries, one file a task. Order: within a task, entry number ascending."""

    conditioned = frozenset({"store"})

    def __init__(self, _options: ReadOptions, stores: list[Store]) -> None:
        super().__init__(PushedConditions())
        self._stores = stores

    def __len__(self) -> int:
        return len(self._files)

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the entries of one file. Raises: UnreadableFile, FileChanged."""
        store, file = self._files[number]
        before = [earlier for other, earlier in self._files[:number] if other.root == store.root]
        yield from whole(scan_entries(store, _slots_count(before), (file,)))

    @cached_property
    def _files(self) -> list[tuple[Store, Segment]]:
        wanted = [store for store in self._stores if self.conditions.has_store(store.root)]
        return [(store, file) for store in wanted for file in store.index_files]


def _slots_count(files: list[Segment]) -> int | None:
    """Return the length of the slot table from the nearest earlier file; it is the same in all files of a store."""
    for file in reversed(files):
        try:
            count = infer_slots_count(file)
        except SourceError:  # the file's task reports it
            continue
        if count is not None:
            return count
    return None


class StoreScan(Narrowing):
    """A table with one task per store: cursors, checkpoint, segments."""

    def __init__(self, options: ReadOptions, stores: list[Store]) -> None:
        super().__init__(PushedConditions(topics=None if options.topic is None else frozenset({options.topic})))
        self.conditioned = frozenset({"store", "topic"} if options.table == "cursors" else {"store"})
        self._read = _READERS[options.table]
        self._stores = stores

    def __len__(self) -> int:
        return len(self._wanted)

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one store. Raises: UnreadableFile."""
        topics = self.conditions.topics
        for batch in whole(self._read(self._wanted[number])):
            if topics is None:
                yield batch
            else:
                yield batch.filter(pc.is_in(batch["topic"], value_set=pa.array(sorted(topics), pa.string())))

    @cached_property
    def _wanted(self) -> list[Store]:
        return [store for store in self._stores if self.conditions.has_store(store.root)]


_READERS: dict[str, Callable[[Store], Reading]] = {
    "cursors": read_cursors,
    "checkpoint": read_checkpoint,
    "segments": read_segments,
}


class AuditScan(Narrowing):
    """The result of one audit over all the stores: transactions, findings, or coverage of the commit logs.

    One task, because a data source cannot shuffle; its memory is bounded and it spills to disk.
    `rmqtx.spark_tasks.jobs.audit` distributes the same verdicts. No condition is pushed: without one of the stores, the
    verdicts on another store's transactions differ.
    """

    def __init__(self, options: ReadOptions, stores: list[Store]) -> None:
        super().__init__(PushedConditions())
        self._table = options.table
        self._at_ms = options.at_ms
        self._settings = Settings(options)
        self._stores = stores

    def __len__(self) -> int:
        return 1

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Yield the rows of the table."""
        reading = audit(self._stores, self._settings, at_ms=self._at_ms, processes=1)
        if self._table == "transactions":
            yield from reading
            return
        for _ in reading:
            pass
        table = findings_table(reading.findings) if self._table == "findings" else reading.coverage_table()
        yield from table.to_batches()
