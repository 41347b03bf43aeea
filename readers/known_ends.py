"""What stands beside a log and knows records behind its end: then its last records are lost, or were not copied.

The half queue and the op queue know where the log of their design goes on (`missing.py`). Prepared records and what
ends them are in neither, and queues in RocksDB are not read slot by slot. For these designs every consume queue, the
redo log and the state table (3.0, 3.1) and the tables in RocksDB are asked. One of them is believed if what it says of
the log's last records is so: else it is of another log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from readers.columns import Int64s
from readers.commit_log import written_bytes
from readers.consume_queue import open_queue
from readers.errors import SourceError
from readers.findings import as_text
from readers.missing import SEARCHED_BYTES_MAX, UnfoundSlot, stands_between_its_neighbours
from readers.record_at import block_at
from readers.record_layout import TRANSACTION_MASK
from readers.redo_log import redo_entries
from readers.rocksdb import open_database
from readers.rocksdb_queues import QueueDatabase, QueueEnds, queue_directories
from readers.segment_scan import SegmentScan
from readers.sources import Segment, SegmentedLog
from readers.state_entries import ROCKSDB, BesideLog
from readers.state_table import state_slots
from readers.store import Store

#: So many of a table's entries before the log's end are compared with their records.
_COMPARED = 8
#: Queues in RocksDB, those that go furthest first, of which one must be of this log.
_QUEUES_TRIED = 8
_LENGTH_UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class KnownEnd:
    """How far something beside the log knows it. Units: commit-log offsets, past a record's last byte."""

    what: str
    log_end_offset: int
    known_end_offset: int


@dataclass(frozen=True, slots=True)
class _Known:
    """Entries of one table, as offset and length: some of those before the log's end, and the last one."""

    what: str
    before: Sequence[tuple[int, int]]
    last: tuple[int, int]
    needs_proof: bool = True


def known_end(store: Store, tails: Sequence[tuple[Segment, int, int]], beside: BesideLog) -> KnownEnd | None:
    """What knows the log furthest, if that is behind its end.

    `tails`: (segment, position, length) of what seems unused. Nothing for a store in use, whose tables are read later
    than its log.
    Raises: SourceError if the log cannot be read any more.
    """
    if store.in_use or not store.commit_log:
        return None
    end = _end_of(store, tails)
    best: KnownEnd | None = None
    log = store.log()
    try:
        for make in (_by_queues, _by_old_tables, _by_rocksdb_queues):
            for known in _safely(make, store, end):
                best = _further(best, known, end, log)
        for known in _by_rocksdb_table(beside, end):
            best = _further(best, known, end, log)
    finally:
        log.close()
    return best


def _end_of(store: Store, tails: Sequence[tuple[Segment, int, int]]) -> int:
    """Where the data seems to end: files behind that hold none."""
    unused = {segment.file: position for segment, position, length in tails if position + length == segment.size_bytes}
    for segment in reversed(store.commit_log):
        position = unused.get(segment.file, segment.size_bytes if written_bytes(segment) else 0)
        if position:
            return segment.base_offset + position
    return store.log_begin_offset


def _further(best: KnownEnd | None, known: _Known, end: int, log: SegmentedLog) -> KnownEnd | None:
    offset, length = known.last
    reach = offset + max(length, 1)
    if offset < end or (best is not None and best.known_end_offset >= reach):
        return best
    there = sum(_is_there(log, place, size) for place, size in known.before)
    is_believed = 2 * there > len(known.before) or not (known.before or known.needs_proof)
    return KnownEnd(known.what, end, reach) if is_believed else best


def _is_there(log: SegmentedLog, offset: int, length: int) -> bool:
    block = block_at(log, offset)
    return block is not None and length in (_LENGTH_UNKNOWN, int(block.header("length_bytes")[0]))


def _safely(make: Callable[[Store, int], Iterator[_Known]], store: Store, end: int) -> Iterator[_Known]:
    """What a source knows; one that cannot be read proves nothing against the log, and whoever reads it says so."""
    try:
        yield from make(store, end)
    except SourceError:
        return


def _by_queues(store: Store, end: int) -> Iterator[_Known]:
    """Consume queues in files."""
    for topic, queue_id in store.prepared_queues(store.queues()):
        try:
            with open_queue(store, topic, queue_id) as queue:
                _, offsets, lengths, _ = queue.read(queue.max_offset - 1, queue.max_offset)
                if not len(offsets) or offsets[0] < end:
                    continue
                first = queue.offset_of(end)
                _, places, sizes, _ = queue.read(max(queue.min_offset, first - _COMPARED), first)
        except SourceError:
            continue
        slot = UnfoundSlot(topic, queue.max_offset - 1, int(offsets[0]), int(lengths[0]), queue_id)
        if stands_between_its_neighbours(store, slot):
            continue  # the slot is what is damaged
        yield _Known(
            as_text(store.queue_directory(topic, queue_id)),
            list(zip(places.tolist(), sizes.tolist(), strict=True)), (int(offsets[0]), int(lengths[0])),
        )


def _by_old_tables(store: Store, end: int) -> Iterator[_Known]:
    """Redo log and state table of 3.0 and 3.1."""
    entries = redo_entries(store, [])
    if entries is not None and len(entries):
        yield from _of_arrays(store, "redolog", entries.offsets, entries.lengths, end)
    slots = state_slots(store, [])
    if slots is not None and len(slots):
        yield from _of_arrays(store, "statetable", slots.offsets, slots.values("record_length_bytes"), end)


def _of_arrays(store: Store, name: str, offsets: Int64s, lengths: Int64s, end: int) -> Iterator[_Known]:
    order = np.argsort(offsets, kind="stable")
    offsets, lengths = offsets[order], lengths[order]
    first = int(np.searchsorted(offsets, end))
    if first == len(offsets) - 1:
        begin = int(offsets[first - 1] + lengths[first - 1]) if first else store.log_begin_offset
        if _has_transactions(store, begin):
            return  # the one entry that leads behind the end is what is damaged
    before = slice(max(0, first - _COMPARED), first)
    yield _Known(
        store.place("transaction", name), list(zip(offsets[before].tolist(), lengths[before].tolist(), strict=True)),
        (int(offsets[-1]), int(lengths[-1])),
    )


def _has_transactions(store: Store, begin: int) -> bool:
    """Whether the log has a prepared, COMMIT or ROLLBACK record at or behind a place, not too far from it."""
    for segment in store.commit_log:
        low = max(begin - segment.base_offset, 0)
        if low >= segment.size_bytes or segment.base_offset - begin > SEARCHED_BYTES_MAX:
            continue
        for block in SegmentScan(segment, from_position=low, to_position=low + SEARCHED_BYTES_MAX):
            if (block.sys_flag & TRANSACTION_MASK).any():
                return True
    return False


def _by_rocksdb_queues(store: Store, end: int) -> Iterator[_Known]:
    for name in queue_directories(store):
        with open_database(store, name) as database:
            queues = QueueDatabase(store, database)
            ends = {queue: known for queue, known in queues.ends().items() if known.last and known.last[1] >= end}
            furthest = sorted(ends.items(), key=lambda entry: (entry[1].last or (0, 0))[1], reverse=True)
            for (topic, queue_id), known in furthest[:_QUEUES_TRIED]:
                yield _of_rocksdb_queue(queues, topic, queue_id, known, end)


def _of_rocksdb_queue(queues: QueueDatabase, topic: str, queue_id: int, known: QueueEnds, end: int) -> _Known:
    assert known.last is not None
    low, high = 0 if known.first is None else known.first[0], known.last[0]
    while low < high:  # the first slot that points at or behind the end
        middle = (low + high) // 2
        places = _places(queues, topic, queue_id, middle, middle + 1)
        low, high = (low, middle) if places and places[0][0] >= end else (middle + 1, high)
    before = [place for place in _places(queues, topic, queue_id, max(0, low - _COMPARED), low) if place[0] < end]
    last = _places(queues, topic, queue_id, known.last[0], known.last[0] + 1)
    return _Known(queues.database.directory, before, last[0] if last else (known.last[1], _LENGTH_UNKNOWN))


def _places(queues: QueueDatabase, topic: str, queue_id: int, begin: int, end: int) -> list[tuple[int, int]]:
    return [
        (int(slot["commit_log_offset"]), int(slot["record_length_bytes"]))
        for part in queues.slots(topic, queue_id, begin, end) for slot in part.slots
    ]


def _by_rocksdb_table(beside: BesideLog, end: int) -> Iterator[_Known]:
    """The table of transactions in RocksDB: halves, and the last one that was entered."""
    if ROCKSDB not in beside.kinds:
        return
    offsets = np.asarray(beside.of_kind(ROCKSDB)["half_commit_log_offset"]).astype(np.int64)
    before = offsets[offsets < end][-_COMPARED:].tolist()
    last = max([beside.rocksdb_last_offset, *offsets[-1:].tolist()])
    # Mostly nothing before is open, and it is of this log or of none that is known: both ways it proves no drop.
    yield _Known(
        "the RocksDB table", [(place, _LENGTH_UNKNOWN) for place in before], (last, _LENGTH_UNKNOWN), needs_proof=False
    )
