"""The end of the table of transactions in RocksDB compared with the log and the half queue."""

from __future__ import annotations

from collections.abc import Iterator

from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.rocksdb.rocksdb_transactions import DIRECTORY, LAST_OFFSET
from rmqtx.readers.store.store import ROCKSDB_HALF_TOPIC, Store


def table_end_findings(store: Store, last_offset: int, log_end: int, *, is_complete: bool) -> Iterator[Finding]:
    """The end of the table: never after the log's end; after a clean stop at the last half in the queue.

    `last_offset`: that of the last half in the table; `is_complete`: the table is as a clean stop left it.
    Units:  bytes of the commit log.
    Damage: database-entry.
    """
    if store.in_use:
        return
    last = 0
    if last_offset >= log_end:
        expected = f"a last half before the log's end {log_end}"
    elif is_complete and (last := _last_half_offset(store)) > last_offset:
        expected = f"the last half, {last}, after a clean stop"
    else:
        return
    yield Finding(
        store.root, "database-entry", store.place(DIRECTORY), commit_log_offset=max(last, last_offset),
        expected=expected, actual=f"{LAST_OFFSET.decode()} {last_offset}",
    )


def _last_half_offset(store: Store) -> int:
    """Commit-log offset of the newest half in the queue; −1 without one, or if it cannot be read."""
    try:
        with open_queue(store, ROCKSDB_HALF_TOPIC, 0) as queue:
            places = queue.read(queue.max_offset - 1, queue.max_offset)[1]
            return int(places[-1]) if len(places) else -1
    except SourceError:
        return -1  # reported by the reader of the queue
