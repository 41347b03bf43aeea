"""Which tables beside the log a verdict asks, and when: only where the log has half copies of their design.

What they hold is decoded by `state_table.py`, `redo_log.py` and `rocksdb_transactions.py`; here it becomes rows of
STATE_ENTRIES.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from readers.model.columns import Int64s
from readers.model.errors import SourceError
from readers.model.findings import Finding
from readers.model.tables import STATE_ENTRIES
from readers.old_tables.beside_log import (
    LAST_OFFSET_KEY,
    REDO_LOG,
    ROCKSDB,
    STATE_TABLE,
    BesideLog,
    StateEntriesOf,
    read_beside,
)
from readers.old_tables.redo_log import redo_entries, redo_log_entries
from readers.old_tables.state_table import state_table_entries
from readers.old_tables.state_table_rebuilt import rebuilt_offsets
from readers.store.store import ROCKSDB_HALF_TOPIC, Store

#: What is asked of a store with prepared records, by kind.
OF_PREPARED: tuple[tuple[str, StateEntriesOf], ...] = (
    (STATE_TABLE, state_table_entries), (REDO_LOG, redo_log_entries),
)  # fmt: skip


def beside_log(
    store: Store, findings: list[Finding], *, has_prepared: bool, has_rocksdb_halves: bool
) -> BesideLog:
    """What the tables beside a store's log say.

    `has_prepared`, `has_rocksdb_halves`: which half copies its log has; a table of none is not opened.
    Damage: findings; a table that cannot be read is not among the kinds that are known.
    """
    tables: list[tuple[str, StateEntriesOf]] = []
    if has_prepared:
        tables += OF_PREPARED
    if has_rocksdb_halves:
        tables.append((ROCKSDB, rocksdb_state_entries))
    return read_beside(store, tables, findings, _remade if has_prepared else lambda _store: None)


def _remade(store: Store) -> Int64s | None:
    """What the next start puts into the state table, where it makes that anew: the broker did not stop cleanly."""
    if not store.aborted or store.in_use:
        return None
    try:
        entries = redo_entries(store, [])
        return None if entries is None or not entries.is_whole else rebuilt_offsets(store, entries, [])
    except SourceError:
        return None  # what reads the log reports it


def may_have_rocksdb_halves(store: Store) -> bool:
    """Whether its transactions may be in RocksDB, as far as directories tell."""
    return store.has("consumequeue", ROCKSDB_HALF_TOPIC) or store.has_rocksdb_queues


def rocksdb_state_entries(store: Store, findings: list[Finding]) -> pa.Table | None:
    """The halves that the broker's RocksDB table has before it, with the checks made, and how far it was built."""
    from readers.rocksdb.rocksdb_transactions import rocksdb_entries

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
