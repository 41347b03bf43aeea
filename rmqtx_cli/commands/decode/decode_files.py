"""`rmqtx decode KIND` for the files beside the commit log, and for the entries of a DLedger log."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from rmqtx.readers.cursors import read_cursors
from rmqtx.readers.index import index_scan
from rmqtx.readers.log import dledger as dledger_entries
from rmqtx.readers.log.commit_log import written_end
from rmqtx.readers.model import exit_status
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.model.tables import DLEDGER_ENTRIES, EPOCHS, REDO_LOG, ROCKSDB_TRANSACTIONS, STATE_TABLE
from rmqtx.readers.old_tables.redo_log import scan_redo_log
from rmqtx.readers.old_tables.state_table import scan_state_table
from rmqtx.readers.rocksdb.rocksdb_queue_scan import scan_all_slots
from rmqtx.readers.rocksdb.rocksdb_transactions import read_rocksdb_transactions
from rmqtx.readers.store.checkpoint import read_checkpoint
from rmqtx.readers.store.epoch_file import read_epochs
from rmqtx.readers.store.store import Store
from rmqtx_cli.commands.declared.decode import (
    DecodeCheckpoint,
    DecodeConsumequeue,
    DecodeCursors,
    DecodeDledger,
    DecodeEpochs,
    DecodeIndex,
    DecodeRedolog,
    DecodeRocksdb,
    DecodeStatetable,
)
from rmqtx_cli.commands.decode.shared import asked_of, bounds_of, list_rows

_OfAStore = (
    DecodeCheckpoint | DecodeCursors | DecodeDledger | DecodeEpochs | DecodeIndex | DecodeRedolog | DecodeRocksdb
    | DecodeStatetable
)


def consumequeue(options: DecodeConsumequeue) -> int:
    """Print the slots of queues; return the exit status."""
    def read(one: Store, _columns: list[str]) -> Reading:
        return scan_all_slots(
            one, topic=options.topic, queue_id=options.queue, from_queue_offset=options.begin,
            to_queue_offset=options.end,
        )

    return list_rows(
        asked_of(options.rows, options.store, options.voice, options.commit_log), "queue_slots", read,
        topic=options.topic,
    )


def dledger(options: DecodeDledger) -> int:
    """Print the entries of a DLedger log; return the exit status."""
    bounds = bounds_of(options.within, options.voice)
    if bounds.from_time_ms is not None or bounds.to_time_ms is not None:
        raise BadRequest("DLedger entries have no time: give --from and --to as commit-log offsets")

    def read(one: Store) -> Reading:
        return dledger_entries.scan_entries(one, from_offset=bounds.from_offset, to_offset=bounds.to_offset)

    return _list(options, "dledger_entries", read, options.topic, DLEDGER_ENTRIES)


def checkpoint(options: DecodeCheckpoint) -> int:
    """Print times and offsets of the checkpoint; return the exit status."""
    return _list(options, "checkpoint", read_checkpoint)


def cursors(options: DecodeCursors) -> int:
    """Print the cursors of groups; return the exit status.

    Without the file nothing is known about them: that is an answer only for a broker that never got a message.
    """
    lacks = False

    def read(store: Store) -> Reading:
        nonlocal lacks
        reading = read_cursors(store)
        lacks |= written_end(store).has_data and any(one.code == "config-missing" for one in reading.findings)
        return reading

    status = _list(options, "cursors", read, options.topic)
    return exit_status.INCOMPLETE if lacks else status


def epochs(options: DecodeEpochs) -> int:
    """Print the epochs of a master; return the exit status."""
    return _list(options, "epochs", read_epochs, schema=EPOCHS)


def index(options: DecodeIndex) -> int:
    """Print the entries of the index; return the exit status."""
    return _list(options, "index_entries", index_scan.scan_entries)


def redolog(options: DecodeRedolog) -> int:
    """Print the redo log; return the exit status."""
    return _list(options, "redo_log", scan_redo_log, schema=REDO_LOG)


def rocksdb(options: DecodeRocksdb) -> int:
    """Print the transactions in RocksDB; return the exit status."""
    return _list(options, "rocksdb_transactions", read_rocksdb_transactions, options.topic, ROCKSDB_TRANSACTIONS)


def statetable(options: DecodeStatetable) -> int:
    """Print the state table; return the exit status."""
    return _list(options, "state_table", scan_state_table, schema=STATE_TABLE)


def _list(
    options: _OfAStore, table: str, read: Callable[[Store], Reading], topic: str | None = None,
    schema: pa.Schema | None = None,
) -> int:
    asked = asked_of(options.rows, options.store, options.voice)
    return list_rows(
        asked, table, lambda one, _columns: read(one), named={"--topic": ("topic", topic)}, schema=schema
    )
