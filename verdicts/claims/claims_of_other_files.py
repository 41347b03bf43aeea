"""Claims about the commit log, except those of queues: index, checkpoint, tables, epochs, cursors, counts, files."""

from __future__ import annotations

from collections.abc import Iterator

from rmqtx.readers.cursors.cursors import CheckCursors, transaction_metrics
from rmqtx.readers.index.index import HEADER
from rmqtx.readers.index.record_keys import indexed_end_offset, record_offset
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.old_tables.redo_log import FILES as REDO_FILES
from rmqtx.readers.old_tables.state_table import FILES as STATE_FILES
from rmqtx.readers.rocksdb.rocksdb import open_database
from rmqtx.readers.rocksdb.rocksdb_transactions import DIRECTORY as ROCKSDB_DIRECTORY
from rmqtx.readers.rocksdb.rocksdb_transactions import FAMILY, LAST_OFFSET, LAST_OFFSET_VALUE, has_entries
from rmqtx.readers.store.checkpoint import flushed_time_ms
from rmqtx.readers.store.epoch_file import FILE_NAME as EPOCH_FILE
from rmqtx.readers.store.epoch_file import read_epochs
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC, Store
from rmqtx.verdicts.claims.log_claim import (
    CHECKPOINT,
    CURSOR,
    EPOCHS,
    FILES,
    INDEX,
    METRICS,
    REDO_LOG,
    ROCKSDB_TABLE,
    STATE_TABLE,
    TIMER,
    LogClaim,
    of_record,
)

#: Index files, the newest ones first, whose headers are read: a new one is empty.
_INDEX_FILES = 2
#: Files that brokers create in advance: the one that is needed, and the next.
_FILES_AHEAD = 2
#: Position in config/timercheck of the next offset of the timer's queue. Source: docs/formats/cursors.md#timer.
_TIMER_QUEUE_OFFSET = 16


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
    may_have = store.has("consumequeue", ROCKSDB_HALF_TOPIC) or store.has_rocksdb_queues
    if not has_entries(store) or not may_have:
        return
    with open_database(store, ROCKSDB_DIRECTORY) as database:
        value = database.get(FAMILY, LAST_OFFSET)
    if value is not None and len(value) == LAST_OFFSET_VALUE.size_bytes:
        offset = LAST_OFFSET_VALUE.unpack(value)["half_commit_log_offset"]
        if offset >= 0:
            yield of_record(ROCKSDB_TABLE, store.place(ROCKSDB_DIRECTORY), offset)
