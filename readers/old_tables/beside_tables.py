"""Choose the tables beside the log that a verdict uses: only those of designs of which the log has half copies.

They are decoded by `state_table.py`, `redo_log.py` and `rocksdb_transactions.py`, and converted to rows of
STATE_ENTRIES here.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.log.designs import STATE_TABLE as STATE_TABLE_DESIGN
from rmqtx.readers.log.designs import designs_of
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.tables import STATE_ENTRIES
from rmqtx.readers.old_tables.beside_log import (
    LAST_OFFSET_KEY,
    REDO_LOG,
    ROCKSDB,
    STATE_TABLE,
    BesideLog,
    StateEntriesOf,
    read_beside,
)
from rmqtx.readers.old_tables.redo_log import rebuilt_offsets, redo_entries, redo_log_entries
from rmqtx.readers.old_tables.state_table import state_table_entries
from rmqtx.readers.rocksdb.rocksdb_transactions import rocksdb_entries
from rmqtx.readers.store.store import ROCKSDB_HALF_TOPIC, Store, is_bundle

#: The tables of a store with prepared records, by kind.
OF_PREPARED: tuple[tuple[str, StateEntriesOf], ...] = (
    (STATE_TABLE, state_table_entries), (REDO_LOG, redo_log_entries),
)


def beside_log(
    store: Store, findings: list[Finding], *, has_prepared: bool, has_rocksdb_halves: bool
) -> BesideLog:
    """Return the entries of the tables beside a store's log.

    `has_prepared`, `has_rocksdb_halves`: which half copies the log has; tables of other designs are not opened.
    Damage: findings; a table that cannot be read is not one of `kinds`.
    """
    tables: list[tuple[str, StateEntriesOf]] = []
    if has_prepared:
        tables += OF_PREPARED
    if has_rocksdb_halves:
        tables.append((ROCKSDB, rocksdb_state_entries))
    found = read_beside(store, tables, findings, _rebuilt if has_prepared else lambda _store: None)
    return replace(found, kinds=found.kinds | {STATE_TABLE}) if has_prepared and lacks_tables(store) else found


def has_tables(store: Store) -> bool:
    """Whether a store has the directory of a state table or a redo log."""
    return store.has("transaction", "statetable") or store.has("transaction", "redolog")


def expects_tables(store: Store) -> bool:
    """Whether state table and redo log are compared with the log: they are there, or the next start lacks them."""
    return has_tables(store) or lacks_tables(store)


def is_whole(store: Store) -> bool:
    """Whether a local store has more than its log, so that a file which is not there is missing for its broker too."""
    return not store.is_remote and not store.in_use and store.has("checkpoint") and not is_bundle(store)


def lacks_tables(store: Store) -> bool:
    """Whether the log has prepared records of 3.0 or 3.1, and state table and redo log are missing beside it.

    The next start makes an empty table, and its broker then checks no transaction.
    """
    if not is_whole(store) or has_tables(store):
        return False
    return any(seen.word == STATE_TABLE_DESIGN for seen in designs_of(store))


def _rebuilt(store: Store) -> Int64s | None:
    """Return the contents of the state table that the next start rebuilds; None after a clean stop."""
    if not store.aborted or store.in_use:
        return None
    try:
        entries = redo_entries(store, [])
        if entries is None and is_whole(store):
            return np.empty(0, np.int64)
        return None if entries is None or not entries.is_whole else rebuilt_offsets(store, entries, [])
    except SourceError:
        return None  # the code that reads the log reports it


def may_have_rocksdb_halves(store: Store) -> bool:
    """Whether the store may have transactions in RocksDB, by its directories."""
    return store.has("consumequeue", ROCKSDB_HALF_TOPIC) or store.has_rocksdb_queues


def rocksdb_state_entries(store: Store, findings: list[Finding]) -> pa.Table | None:
    """Return the half messages in the broker's RocksDB table, with checks made, and the entry with its last offset."""
    found = rocksdb_entries(store)
    findings.extend(found.findings)
    if found.entries is None:
        return None
    rows = found.entries
    count = rows.num_rows
    entries = {
        "store": rows["store"], "half_commit_log_offset": rows["half_commit_log_offset"],
        "kind": pa.repeat(ROCKSDB, count), "key": rows["key"],
        "value": pc.cast(rows["checks_count"], pa.string()), "position_bytes": pa.nulls(count, pa.int64()),
    }
    table = pa.Table.from_arrays([entries[name] for name in STATE_ENTRIES.names], schema=STATE_ENTRIES)
    last = {
        "store": store.root, "half_commit_log_offset": None, "kind": ROCKSDB, "key": LAST_OFFSET_KEY,
        "value": str(found.last_offset), "position_bytes": None,
    }
    return pa.concat_tables([table, pa.Table.from_pylist([last], schema=STATE_ENTRIES)])
