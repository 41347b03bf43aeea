"""What tables beside the log say of half copies: the state table and redo log of 3.0 and 3.1, the database of 3.2 to
4.2, RocksDB (5.4.0+).

The log is the truth; a table adds what only it knows: whether the broker asks, how often it did, what it dropped. So
entries are joined to half copies by commit-log offset, never by number.

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

from readers.model.columns import Int64s
from readers.model.errors import SourceError
from readers.model.findings import Finding
from readers.model.tables import STATE_ENTRIES

if TYPE_CHECKING:
    from readers.store.store import Store

STATE_TABLE, REDO_LOG, DATABASE, ROCKSDB = "statetable", "redolog", "database", "rocksdb"
#: Key of the entry that says up to which half the RocksDB table is built. Source:
#: docs/formats/rocksdb_transactions.md#table.
LAST_OFFSET_KEY = "lastOffsetPy"
#: Value of a slot of the state table that the broker still asks for.
OPEN_SLOT = "PREPARED"
#: Value of an entry of the redo log that is of a COMMIT or ROLLBACK record.
END_ENTRY = "END"
NONE = -1


#: Rows of STATE_ENTRIES as they are kept: words that repeat in each row stand once. A state table of 3.1 has a row for
#: every prepared record, and its redo log two.
_KEPT = pa.schema(
    [
        pa.field(one.name, pa.dictionary(pa.int32(), pa.string())) if one.name in ("store", "kind", "value") else one
        for one in STATE_ENTRIES
    ]
)


#: One kind of table beside the log: its entries as rows of STATE_ENTRIES, None where the store has no such table or
#: nothing here can open it (then a finding says why). It travels to other processes, so it pickles. Raises SourceError.
StateEntriesOf = Callable[["Store", list[Finding]], pa.Table | None]


@dataclass(frozen=True, slots=True)
class BesideLog:
    """What the tables beside a log say, by half copy.

    Shape: `kinds` are those that were there and could be read, `damaged` those of which a part could not be; `entries`
           are rows like STATE_ENTRIES by half copy, and those of one half copy as they were read: some 35 bytes each,
           in a form that `taken` gives back. `remade`: the prepared records that a state table made anew at the next
           start will have, by slot number; None where it is not made anew, or nothing says what it will have.
    """

    kinds: frozenset[str] = frozenset()
    entries: pa.Table = field(default_factory=_KEPT.empty_table)
    rocksdb_last_offset: int = NONE
    damaged: frozenset[str] = frozenset()
    remade: Int64s | None = None

    @staticmethod
    def of(
        tables: Iterable[tuple[str, pa.Table]], damaged: Iterable[str] = (), remade: Int64s | None = None
    ) -> BesideLog:
        """The same from tables by kind."""
        known = list(tables)
        if not known:
            return BesideLog(damaged=frozenset(damaged), remade=remade)
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
            frozenset(kind for kind, _ in known), entries, int(last[0]) if last else NONE, frozenset(damaged), remade
        )

    def taken(self, rows: Int64s) -> pa.Table:
        """Some of the entries, as rows of STATE_ENTRIES."""
        return self.entries.take(pa.array(rows)).cast(STATE_ENTRIES)

    def digest(self) -> str:
        """Another text where anything in the tables is another."""
        remade = None if self.remade is None else self.remade.tolist()
        known = sorted(self.kinds), self.rocksdb_last_offset, sorted(self.damaged), remade
        digest = hashlib.blake2b(repr(known).encode(), digest_size=16)
        for name in ("half_commit_log_offset", "kind", "key", "value", "position_bytes"):
            digest.update(repr(self.entries[name].to_pylist()).encode())
        return digest.hexdigest()

    def rows_of(self, offsets: Int64s) -> tuple[Int64s, Int64s]:
        """Every entry of some half copies: (row of the question, row of `entries`).

        Order: of the question, then of the entries.
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
    remade_of: Callable[[Store], Int64s | None] = lambda _store: None,
) -> BesideLog:
    """What the tables beside a store's log say. `remade_of` says what a state table that is made anew will have.

    Damage: a table that cannot be read is a finding, and not among the kinds that are known.
    """
    found: list[tuple[str, pa.Table]] = []
    damaged: set[str] = set()
    for kind, entries_of in tables:
        met: list[Finding] = []
        try:
            entries = entries_of(store, met)
        except SourceError as error:
            met.append(Finding(store.root, "unreadable-file", error.file, actual=str(error)))
            entries = None
        findings += met
        if any(finding.kind.severity == "error" for finding in met):
            damaged.add(kind)
        if entries is not None:
            found.append((kind, _kept(entries)))
    remade = None if REDO_LOG in damaged else remade_of(store)
    return BesideLog.of(found, damaged, remade)
