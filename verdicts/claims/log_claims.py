"""The claims of a store's other files about its commit log, read before the log itself.

A broker writes a record into the commit log first, and only then into queues, index, checkpoint and tables. So each of
these is a witness: if one refers to a record after the end of the log, the log has lost records. This also holds for a
killed broker, and for a running one if the claims are older than the reading of the log.

Nothing is compared here; `claim_proofs.py` decides which claims are broken and trustworthy. Old entries of other files
prove nothing: brokers delete the oldest files of a log and leave the slots.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rmqtx.readers.cursors import CheckCursors, check_cursors, transaction_metrics
from rmqtx.readers.index.index import HEADER
from rmqtx.readers.index.record_keys import indexed_end_offset, record_offset
from rmqtx.readers.log.commit_log import written_end
from rmqtx.readers.log.segment_scan import SegmentScan
from rmqtx.readers.model.columns import Bools
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import as_text
from rmqtx.readers.old_tables.beside_tables import may_have_rocksdb_halves
from rmqtx.readers.old_tables.redo_log import FILES as REDO_FILES
from rmqtx.readers.old_tables.state_table import FILES as STATE_FILES
from rmqtx.readers.queues.consume_queue import SLOT, Slots, are_filler, are_sound
from rmqtx.readers.queues.slot_files import BATCH, LAYOUTS, SIMPLE
from rmqtx.readers.queues.unit_files import is_well_named, last_unit
from rmqtx.readers.rocksdb.rocksdb import open_database
from rmqtx.readers.rocksdb.rocksdb_queues import QueueDatabase
from rmqtx.readers.rocksdb.rocksdb_transactions import DIRECTORY as ROCKSDB_DIRECTORY
from rmqtx.readers.rocksdb.rocksdb_transactions import FAMILY, LAST_OFFSET, LAST_OFFSET_VALUE, has_entries
from rmqtx.readers.store.checkpoint import flushed_time_ms
from rmqtx.readers.store.epoch_file import FILE_NAME as EPOCH_FILE
from rmqtx.readers.store.epoch_file import read_epochs
from rmqtx.readers.store.fastjson import config_table
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, TRANSACTION_TOPICS, Store

#: Kinds of witnesses; `claim_proofs.py` examines each in its own way.
QUEUE, BATCH_QUEUE, ROCKSDB_QUEUE = "queue", "batch queue", "RocksDB queue"
INDEX, REDO_LOG, STATE_TABLE, ROCKSDB_TABLE = "index", "redo log", "state table", "RocksDB table"
CHECKPOINT, EPOCHS, FILES, CURSOR, METRICS, TIMER = "checkpoint", "epochs", "files", "cursor", "metrics", "timer"
#: Index files, the newest ones first, whose headers are read: a new one is empty.
_INDEX_FILES = 2
#: Files that brokers create in advance: the one that is needed, and the next.
_FILES_AHEAD = 2
#: Position in config/timercheck of the next offset of the timer's queue. Source: docs/formats/cursors.md#timer.
_TIMER_QUEUE_OFFSET = 16
#: The most queues in files that are read: a store may have tens of thousands, and the index covers them too.
QUEUES_ASKED_MAX = 64
#: How much of the end of a log in object storage is read for guesses where queues end.
_NEWEST_BYTES = 1 << 20
#: The most queues in RocksDB that are read; the database also stores the offset up to which it was built.
_ROCKSDB_QUEUES_MAX = 20_000


@dataclass(frozen=True, slots=True)
class LogClaim:
    """The newest record of the log that another file refers to.

    Shape: `witness` is the place of that file as text; `record_offset` where the record begins, None if only
           `reach_offset` is known: the log was written up to there. Both are None if the file only shows that there
           were records. `slot` is topic, queue number and queue offset, for the claim of a queue.
    Units: commit-log offsets in bytes; milliseconds.
    """

    kind: str
    witness: str
    reach_offset: int | None = None
    record_offset: int | None = None
    record_length_bytes: int | None = None
    store_time_ms: int | None = None
    slot: tuple[str, int, int] | None = None

    @property
    def words(self) -> str:
        """The content of the claim, as the object of a sentence."""
        if self.reach_offset is not None:
            return f"records up to commit-log offset {self.reach_offset}"
        return "records" if self.store_time_ms is None else f"a record stored at {self.store_time_ms}"


def of_record(
    kind: str, witness: str, offset: int, length_bytes: int | None = None, *, slot: tuple[str, int, int] | None = None
) -> LogClaim:
    """Return a claim about a record with known place, and perhaps known length."""
    return LogClaim(kind, witness, offset + max(length_bytes or 1, 1), offset, length_bytes, slot=slot)


def checkpoint_claims(store: Store) -> Iterator[LogClaim]:
    """The checkpoint: the store time of the last flushed record, and from 5.5.0 on the place of a record.

    rocketmq-rust writes up to where the index is complete.
    """
    place = store.place("checkpoint")
    time_ms = flushed_time_ms(store)
    if time_ms is not None:
        yield LogClaim(CHECKPOINT, place, store_time_ms=time_ms)
    offset = record_offset(store)
    if offset > 0:
        yield of_record(CHECKPOINT, place, offset)
    end = indexed_end_offset(store)
    if end > 0:
        yield LogClaim(CHECKPOINT, place, end)


def index_claims(store: Store) -> Iterator[LogClaim]:
    """The newest index file that has an entry: its header has the last record with a key."""
    for segment in store.index_files[-1 : -_INDEX_FILES - 1 : -1]:
        try:
            with segment.open() as file:
                data = file.read(0, HEADER.size_bytes)
        except SourceError:
            continue
        if len(data) < HEADER.size_bytes:
            continue
        header = HEADER.unpack(data)
        if header["next_entry_number"] > 1 and 0 <= header["begin_offset"] <= header["end_offset"]:
            yield of_record(INDEX, segment.file, header["end_offset"])
            return


def table_claims(store: Store) -> Iterator[LogClaim]:
    """Redo log and state table of 3.0 and 3.1: their last entries."""
    for kind, files in ((REDO_LOG, REDO_FILES), (STATE_TABLE, STATE_FILES)):
        if not store.has(*files.directory):
            continue
        try:
            last = files.last(store)
        except SourceError:
            continue
        if last is not None:
            slot = last[1][0]
            offset, length = int(slot["commit_log_offset"]), int(slot["record_length_bytes"])
            yield of_record(kind, store.place(*files.directory), offset, length)


def epoch_claims(store: Store) -> Iterator[LogClaim]:
    """The epoch file of a replica under a controller: where its last master began to write (5.0.0+)."""
    if not store.has(EPOCH_FILE):
        return
    reading = read_epochs(store)
    begins = [begin for batch in reading for begin in batch["begin_offset"].to_pylist()]
    if begins and not reading.findings and max(begins) > 0:
        yield LogClaim(EPOCHS, store.place(EPOCH_FILE), max(begins))


def file_claims(store: Store) -> Iterator[LogClaim]:
    """The files of the log: brokers create the next one in advance, so one more proves that the log was longer.

    Source: store/MappedFileQueue.java getLastMappedFile, AllocateMappedFileService.java;
            docs/formats/store.md#segments.
    """
    if len(store.commit_log) > _FILES_AHEAD:
        segment = store.commit_log[-_FILES_AHEAD]
        if segment.base_offset > store.log_begin_offset:
            yield LogClaim(FILES, store.commit_log[-1].file, segment.base_offset)


def timer_claims(store: Store) -> Iterator[LogClaim]:
    """The offset up to which the timer's queue was read into its wheel (5.0.0+)."""
    place = store.place("config", "timercheck")
    try:
        data = store.files.content(place, 1 << 12)
    except OSError:
        return
    value = b"" if data is None else data[_TIMER_QUEUE_OFFSET : _TIMER_QUEUE_OFFSET + 8]
    if len(value) == 8 and int.from_bytes(value, "big", signed=True) > 0:
        yield LogClaim(TIMER, place)


def metrics_claims(store: Store) -> Iterator[LogClaim]:
    """The broker's own count of open transactions (5.2.0+)."""
    if any(count > 0 for count in (transaction_metrics(store) or {}).values()):
        yield LogClaim(METRICS, store.place("config", "transactionMetrics"))


def cursor_claims(cursors: CheckCursors) -> Iterator[LogClaim]:
    """The cursors of the check in the half queue and the op queue: records before them were in the log."""
    for topic, known in ((HALF_TOPIC, cursors.half), (OP_TOPIC, cursors.op)):
        highest = max((known or {}).values(), default=0)
        if highest > 0:
            yield LogClaim(CURSOR, f"the check cursor of {topic} ({highest})", slot=(topic, 0, highest - 1))


def rocksdb_table_claims(store: Store) -> Iterator[LogClaim]:
    """The table of transactions in RocksDB: the largest place of a half that was written to it (5.4.0+).

    Every broker from 5.4.0 on has the database; it is opened if it may contain transactions.
    Raises: UnreadableFile, MissingLibrary.
    """
    if not may_have_rocksdb_halves(store) or not has_entries(store):
        return
    with open_database(store, ROCKSDB_DIRECTORY) as database:
        value = database.get(FAMILY, LAST_OFFSET)
    if value is not None and len(value) == LAST_OFFSET_VALUE.size_bytes:
        offset = LAST_OFFSET_VALUE.unpack(value)["half_commit_log_offset"]
        if offset >= 0:
            yield of_record(ROCKSDB_TABLE, store.place(ROCKSDB_DIRECTORY), offset)


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
    for name, queues in (config_table(store, "consumerOffset.json", "offsetTable") or {}).items():
        for queue_id, offset in queues.items() if isinstance(queues, dict) else ():
            if isinstance(offset, int) and queue_id.isdecimal():
                queue = name.partition("@")[0], int(queue_id)
                slots[queue] = max(slots.get(queue, 0), offset)
    end = written_end(store)
    for segment in store.commit_log:
        if segment.base_offset == end.last_base:
            begin = max(0, end.offset - end.last_base - _NEWEST_BYTES)
            for block in SegmentScan(segment, from_position=begin, stops_at_break=True, window_bytes=_NEWEST_BYTES):
                numbers, queue_ids = block.header("queue_offset").tolist(), block.header("queue_id").tolist()
                slots.update(zip(zip(block.topic_texts().to_pylist(), queue_ids, strict=True), numbers, strict=True))

    def guessed(topic: str, queue_id: int) -> int | None:
        if topic in TRANSACTION_TOPICS:
            return None
        return slots.get((topic, queue_id), 0) * SLOT.size_bytes

    return guessed


def _queues(store: Store, kind: str) -> Iterator[tuple[str, int]]:
    """Queues by importance: those of the check, those of other topics, and those of consumer groups."""
    topics = store.topics(kind)
    own = [topic for topic in TRANSACTION_TOPICS if topic in topics]
    others = [topic for topic in topics if topic not in own]
    for topic in [*own, *sorted(others, key=lambda topic: topic.startswith("%"))]:
        for queue_id in store.queue_numbers(topic, kind):
            yield topic, queue_id


def _newest(store: Store, kind: str, topic: str, queue_id: int) -> LogClaim | None:
    layout = LAYOUTS[kind]
    segments = tuple(one for one in store.queue_segments(topic, queue_id, kind)[0] if is_well_named(one, layout))
    last = last_unit(store, segments, layout, _are_records)
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


@dataclass(frozen=True, slots=True)
class LogClaims:
    """The claims of a store's other files about its log.

    Shape: `newest` are the claims, the furthest first, those without a place last. `has_unasked_queues`: there are more
           than QUEUES_ASKED_MAX queues, and some were not read; index and transaction topics were.
    """

    newest: tuple[LogClaim, ...] = ()
    has_unasked_queues: bool = False

    @property
    def note(self) -> str | None:
        """A note about queues that were not read; None if there are none."""
        if not self.has_unasked_queues:
            return None
        return f"more than {QUEUES_ASKED_MAX} queues: some were not compared with the end of the log"


#: All sources of claims, cheap ones first.
_WITNESSES: tuple[Callable[[Store], Iterator[LogClaim]], ...] = (
    checkpoint_claims, index_claims, table_claims, epoch_claims, file_claims, timer_claims, metrics_claims,
    rocksdb_table_claims, rocksdb_queue_claims,
)


def log_claims(store: Store, cursors: CheckCursors | None = None, *, by_samples: bool = False) -> LogClaims:
    """Return the claims of a store's other files about its log: the newest entry of each; only their ends are read.

    `cursors`: those of the check, if they were read already. `by_samples`: as for `queue_claims`.
    Damage: a witness that cannot be read claims nothing; its reader reports that.
    """
    claims, has_unasked_queues = queue_claims(store, by_samples=by_samples)
    for ask in _WITNESSES:
        try:
            claims.extend(ask(store))
        except SourceError:
            continue
    claims.extend(cursor_claims(check_cursors(store) if cursors is None else cursors))
    claims.sort(key=lambda claim: -1 if claim.reach_offset is None else claim.reach_offset, reverse=True)
    return LogClaims(tuple(claims), has_unasked_queues)
