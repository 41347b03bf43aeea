"""Entries on half copies in tables beside the log: the state table and redo log of 3.0 and 3.1, the database of 3.2 to
4.2, RocksDB (5.4.0+).

The commit log decides. A table adds facts that are not in the log: whether the broker checks a transaction, how many
checks it made, which transactions it dropped. Entries are joined to half copies by commit-log offset, not by number.

| kind       | key              | value                                                                    |
|------------|------------------|--------------------------------------------------------------------------|
| statetable | slot number      | PREPARED, COMMIT or ROLLBACK                                             |
| redolog    | entry number     | PREPARED, or END for the entry of a COMMIT or ROLLBACK record            |
| database   | offset           | producer group                                                           |
| rocksdb    | the key's pieces | checks made; of the key lastOffsetPy, with null as offset: largest offset |
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.tables import STATE_ENTRIES

if TYPE_CHECKING:
    from rmqtx.readers.store.store import Store

STATE_TABLE, REDO_LOG, DATABASE, ROCKSDB = "statetable", "redolog", "database", "rocksdb"
#: Key of the entry with the last half message up to which the RocksDB table is built. Source:
#: docs/formats/rocksdb_transactions.md#table.
LAST_OFFSET_KEY = "lastOffsetPy"
#: Value of a slot of the state table that the broker still checks.
OPEN_SLOT = "PREPARED"
#: Value of an entry of the redo log for a COMMIT or ROLLBACK record.
END_ENTRY = "END"
NONE = -1


#: Rows of STATE_ENTRIES in memory: repeated texts are dictionary-encoded. A state table of 3.1 has one row for every
#: prepared record, and its redo log two.
_KEPT = pa.schema(
    [
        pa.field(one.name, pa.dictionary(pa.int32(), pa.string())) if one.name in ("store", "kind", "value") else one
        for one in STATE_ENTRIES
    ]
)


#: Returns the entries of one kind of table as rows of STATE_ENTRIES, None if the store has no such table or it cannot
#: be opened (a finding gives the reason). It is sent to other processes, so it can be pickled. Raises SourceError.
StateEntriesOf = Callable[["Store", list[Finding]], pa.Table | None]


@dataclass(frozen=True, slots=True)
class BesideLog:
    """Entries of the tables beside a log, by half copy.

    Shape: `kinds` are the tables that were read, `damaged` those with a part that could not be read; `entries` are rows
           of STATE_ENTRIES in a form that `taken` converts back, about 35 bytes each, ordered by half copy and then as
           read. `rebuilt`: the prepared records in the state table that the next start rebuilds, by slot number; None
           if the table is not rebuilt, or its contents are unknown.
    """

    kinds: frozenset[str] = frozenset()
    entries: pa.Table = field(default_factory=_KEPT.empty_table)
    rocksdb_last_offset: int = NONE
    damaged: frozenset[str] = frozenset()
    rebuilt: Int64s | None = None

    @staticmethod
    def of(
        tables: Iterable[tuple[str, pa.Table]], damaged: Iterable[str] = (), rebuilt: Int64s | None = None
    ) -> BesideLog:
        """Return the entries of tables by kind."""
        known = list(tables)
        if not known:
            return BesideLog(damaged=frozenset(damaged), rebuilt=rebuilt)
        entries = pa.concat_tables([_kept(table) for _, table in known]).unify_dictionaries().combine_chunks()
        without = entries.filter(pc.is_null(entries["half_commit_log_offset"])).cast(STATE_ENTRIES)
        last = without.filter(
            pc.and_(pc.equal(without["kind"], ROCKSDB), pc.equal(without["key"], LAST_OFFSET_KEY))
        )["value"].to_pylist()
        if without.num_rows:
            entries = entries.filter(pc.is_valid(entries["half_commit_log_offset"]))
        offsets = np.asarray(entries["half_commit_log_offset"])
        if (np.diff(offsets) < 0).any():
            entries = entries.take(pa.array(np.argsort(offsets, kind="stable"))).combine_chunks()
        return BesideLog(
            frozenset(kind for kind, _ in known), entries, int(last[0]) if last else NONE, frozenset(damaged), rebuilt
        )

    def taken(self, rows: Int64s) -> pa.Table:
        """Return some of the entries, as rows of STATE_ENTRIES."""
        return self.entries.take(pa.array(rows)).cast(STATE_ENTRIES)

    def digest(self) -> str:
        """Return a text that differs if any entry differs."""
        rebuilt = None if self.rebuilt is None else self.rebuilt.tolist()
        known = sorted(self.kinds), self.rocksdb_last_offset, sorted(self.damaged), rebuilt
        digest = hashlib.blake2b(repr(known).encode(), digest_size=16)
        for name in ("half_commit_log_offset", "kind", "key", "value", "position_bytes"):
            digest.update(repr(self.entries[name].to_pylist()).encode())
        return digest.hexdigest()

    def rows_of(self, offsets: Int64s) -> tuple[Int64s, Int64s]:
        """Return every entry of given half copies: (index in `offsets`, row of `entries`).

        Order: of the offsets, then of the entries.
        """
        mine = np.asarray(self.entries["half_commit_log_offset"])
        low, high = np.searchsorted(mine, offsets, "left"), np.searchsorted(mine, offsets, "right")
        counts = high - low
        asked = np.repeat(np.arange(len(offsets)), counts)
        steps = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        return asked, np.repeat(low, counts) + steps


def _kept(table: pa.Table) -> pa.Table:
    columns = [
        table[one.name].cast(pa.string()).dictionary_encode() if pa.types.is_dictionary(one.type)
        else table[one.name].cast(one.type)
        for one in _KEPT
    ]
    return pa.Table.from_arrays(columns, schema=_KEPT)


def read_beside(
    store: Store, tables: Iterable[tuple[str, StateEntriesOf]], findings: list[Finding],
    rebuilt_of: Callable[[Store], Int64s | None] = lambda _store: None,
) -> BesideLog:
    """Return the entries of the tables beside a store's log.

    `rebuilt_of` returns the prepared records in the state table that the next start rebuilds.
    Damage: a table that cannot be read is a finding, and not one of `kinds`.
    """
    found: list[tuple[str, pa.Table]] = []
    damaged: set[str] = set()
    for kind, entries_of in tables:
        own: list[Finding] = []
        try:
            entries = entries_of(store, own)
        except SourceError as error:
            own.append(Finding(store.root, "unreadable-file", error.file, actual=str(error)))
            entries = None
        findings += own
        if any(finding.is_error for finding in own):
            damaged.add(kind)
        if entries is not None:
            found.append((kind, _kept(entries)))
    rebuilt = None if REDO_LOG in damaged else rebuilt_of(store)
    return BesideLog.of(found, damaged, rebuilt)
