"""Tables of open transactions compared with the log, which is authoritative: a database (3.2 to 4.2), RocksDB.

In RocksDB, keys without a half, or for the half of another transaction, show that database and log are not of one store
or time.

Source: docs/formats/prepared_records.md#transaction-table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.log.designs import ROCKSDB, designs_of
from rmqtx.readers.log.prepared_records import NO_HASH, UNDECIDED, OldRecords
from rmqtx.readers.log.record_at import blocks_at
from rmqtx.readers.log.record_layout import COMMIT
from rmqtx.readers.log.transaction_records import JUDGED_HALVES, halves_of
from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.model.errors import MissingLibrary, SourceError
from rmqtx.readers.model.findings import FINDINGS_MAX, Finding, one_by_one
from rmqtx.readers.model.java_hashes import java_hash
from rmqtx.readers.model.ranges import LogRanges
from rmqtx.readers.old_tables.transaction_table import TransactionTable
from rmqtx.readers.rocksdb.rocksdb import open_database, unread
from rmqtx.readers.rocksdb.rocksdb_transactions import DIRECTORY, has_entries, no_database, rocksdb_entries
from rmqtx.readers.store.store import ROCKSDB_HALF_TOPIC, Store
from rmqtx.verdicts.compared.rocksdb_queues import table_end_findings

_UNKNOWN_GROUP = "unknown: its record has no producer group that can be read"
_MISSING_IN_PART = (
    "the table is older than they are, or they were never inserted: they are pending, or UNDECIDABLE where the damaged "
    "or missing part of the log may contain their decision (rmqtx audit)"
)
_KEYS_AT_ONCE = 1000
_KEY_CHARACTERS_MAX = 400
#: Directories below config/, and what they contain. Source: docs/formats/cursors.md#rocksdb.
_OF_SETTINGS = {
    "topics": "topics", "subscriptionGroups": "settings of consumer groups", "consumerOffsets": "cursors",
    "metadata": "topics, settings of consumer groups and cursors", "rdb": "topics, settings of consumer groups and "
    "cursors",
}


@dataclass(frozen=True)
class Joined:
    """The rows of a table joined with prepared records.

    Shape: `rows` is for each row of the table the row of its prepared record, −1 for none; `is_stale`, `is_expired`,
           `is_unknown`, `is_beyond` (the log's end) and `is_other_group` are of the table's rows; `is_missing` of the
           prepared records. `has_unknown_group`: the group of the row's record cannot be read.
    """

    table: TransactionTable
    prepared: OldRecords
    first_ends: Int64s
    rows: Int64s
    is_stale: Bools
    is_expired: Bools
    is_unknown: Bools
    is_beyond: Bools
    is_other_group: Bools
    is_missing: Bools
    has_unknown_group: Bools


def joined(table: TransactionTable, records: OldRecords, ranges: LogRanges) -> Joined:
    """Join table and records by commit-log offset."""
    prepared, ends = records.prepared, records.first_ends
    offsets = table.offsets
    rows = np.full(len(offsets), -1, np.int64)
    if len(prepared):
        places = np.minimum(np.searchsorted(prepared.offsets, offsets), len(prepared) - 1)
        rows = np.where(prepared.offsets[places] == offsets, places, -1)
    known = rows >= 0
    ended = np.full(len(offsets), UNDECIDED, np.int64)
    ended[known] = ends[rows[known]]
    expired = ~known & (offsets < ranges.begin_offset)
    unknown = ~known & ~expired & ~ranges.is_damaged(offsets)
    groups = [java_hash(group or "") for group in table.rows["producer_group"].to_pylist()]
    is_named = np.asarray(pc.is_valid(table.rows["producer_group"]))
    other, is_unread = np.zeros(len(offsets), np.bool_), np.zeros(len(offsets), np.bool_)
    other[known] = np.array(groups, np.int64)[known] != prepared.group_hashes[rows[known]]
    is_unread[known] = prepared.group_hashes[rows[known]] == NO_HASH
    return Joined(
        table, prepared, ends, rows, known & (ended != UNDECIDED), expired,
        unknown & (offsets < ranges.end_offset), unknown & (offsets >= ranges.end_offset), other & is_named,
        (ends == UNDECIDED) & ~np.isin(prepared.offsets, offsets), is_unread,
    )


def transaction_table_findings(
    store: Store, table: TransactionTable, records: OldRecords, ranges: LogRanges
) -> Iterator[Finding]:
    """Return where a table and the log differ.

    Order:  the table's own damage; its rows, kind by kind, by offset; prepared records without a row.
    """
    yield from table.findings
    found = joined(table, records, ranges)
    yield from _row_findings(store, table, found, ranges)
    if found.is_expired.any():
        yield Finding(
            store.root, "table-row-expired", table.name, expected=f"offsets from {ranges.begin_offset} on",
            actual=f"{int(found.is_expired.sum())} rows",
        )
    missing = found.prepared.chosen(found.is_missing)
    if len(missing):
        yield Finding(
            store.root, "table-row-missing", table.name, commit_log_offset=int(missing.offsets[0]),
            expected=f"rows for {int((found.first_ends == UNDECIDED).sum())} prepared records without a decision in "
            "the log",
            actual=f"{len(missing)} of them without a row, first {missing.offsets[0]}",
            meaning=_MISSING_IN_PART if len(ranges.damaged) else None,
        )


def _row_findings(store: Store, table: TransactionTable, found: Joined, ranges: LogRanges) -> Iterator[Finding]:
    """Return where single rows differ from the log, kind by kind, by offset."""
    offsets = table.offsets

    def each(code: str, rows: Bools, expected: str, actual: Callable[[int], str]) -> Iterator[Finding]:
        for row, more in one_by_one(np.flatnonzero(rows).tolist(), "rows"):
            yield Finding(
                store.root, code, table.name, commit_log_offset=int(offsets[row]), expected=expected,
                actual=f"row {offsets[row]}{actual(row)}{more}",
            )

    def ended(row: int) -> str:
        record = "COMMIT" if found.first_ends[found.rows[row]] == COMMIT else "ROLLBACK"
        return f", but the log has a {record} record"

    groups = table.rows["producer_group"]
    prepared_record = "the offset of a prepared record"
    yield from each("table-row-stale", found.is_stale, "no row", ended)
    yield from each("table-row-unknown", found.is_unknown, prepared_record, lambda _: ", where none begins")
    # The table was read before the log, so records that a running broker appended since are not in question.
    yield from each(
        "table-row-unknown", found.is_beyond, prepared_record, lambda _: f", and the log ends at {ranges.end_offset}"
    )
    is_unknown = found.has_unknown_group
    for is_of, expected in ((~is_unknown, "the producer group of its record"), (is_unknown, _UNKNOWN_GROUP)):
        yield from each(
            "table-row-group", found.is_other_group & is_of, expected,
            lambda row: f" of {str(groups[row].as_py())[:80]}",
        )


def rocksdb_table_findings(store: Store, ranges: LogRanges, *, with_records: bool) -> Iterator[Finding]:
    """Return the faults of the table of transactions in RocksDB; nothing for an empty table.

    `with_records`: also look up the half of each key. A key before the log's beginning is expected: the broker deletes
    it at its next check.
    Order:  the database's own damage, then keys by offset.
    Damage: database-unread, database-entry; at most 100 keys that contradict the log.
    """
    is_used = any(design.word == ROCKSDB for design in designs_of(store))
    if not has_entries(store):
        if is_used:
            yield no_database(store)
        return
    found = rocksdb_entries(store)
    yield from (finding for finding in found.findings if is_used or finding.code != "database-unread")
    if found.entries is None or not with_records:
        return
    yield from islice(_wrong_keys(store, found.entries, ranges), FINDINGS_MAX)
    yield from table_end_findings(store, found.last_offset, ranges.end_offset, is_complete=found.is_complete)


def _wrong_keys(store: Store, entries: pa.Table, ranges: LogRanges) -> Iterator[Finding]:
    places = np.asarray(entries["half_commit_log_offset"])
    held = entries.filter(pa.array((places >= ranges.begin_offset) & ~ranges.is_damaged(places)))
    with store.log() as log:
        for begin in range(0, held.num_rows, _KEYS_AT_ONCE):
            keys = held.slice(begin, _KEYS_AT_ONCE).to_pylist()
            blocks = list(blocks_at(log, [key["half_commit_log_offset"] for key in keys]))
            halves = {
                row["commit_log_offset"]: (row["topic"], row["real_topic"], row["transaction_id"], length)
                for block in blocks
                for row, length in zip(
                    halves_of(block, store.root, JUDGED_HALVES).to_pylist(), block.lengths.tolist(), strict=True
                )
            }
            for key in keys:
                half = halves.get(key["half_commit_log_offset"])
                wanted = (ROCKSDB_HALF_TOPIC, key["topic"], key["transaction_id"], key["record_length_bytes"])
                if key["transaction_id"] is not None and half != wanted:
                    yield _wrong_key(store, key, half)


def _wrong_key(store: Store, key: dict[str, object], half: tuple[object, ...] | None) -> Finding:
    place = key["half_commit_log_offset"]
    assert isinstance(place, int)
    actual, words = "no record begins there", str(key["key"])[:_KEY_CHARACTERS_MAX]
    if half is not None:
        actual = f"a record of {half[3]} bytes in {half[0]} for {half[1]}, transaction {half[2]}"
    return Finding(
        store.root, "database-entry", store.place(DIRECTORY), commit_log_offset=place,
        expected=f"the half of {words}, {key['record_length_bytes']} bytes", actual=actual,
    )


# The RocksDB databases of a store that its broker opens and that no other part of a verification reads whole.
#
# Topics, groups and cursors with storeType=defaultRocksDB or configManagerVersion=v2, and the database of
# transactions, which every broker from 5.4.0 on opens when it starts, used or not.


def database_findings(store: Store) -> Iterator[Finding]:
    """Return the databases that cannot be read up to their last entry, each once.

    Order:  settings, then transactions.
    Damage: database-unread. Without the library nothing is reported: what verdicts need is reported by its reader.
    """
    for name, content in _OF_SETTINGS.items():
        if store.has_database_files("config", name) and (found := _fault(store, "config", name)) is not None:
            yield replace(
                found, meaning=f"{content} in it are unknown; a broker that opens it may not start, or lose them"
            )
    is_used = any(design.word == ROCKSDB for design in designs_of(store))
    if not is_used and store.has_database_files(DIRECTORY) and (found := _fault(store, DIRECTORY)) is not None:
        yield replace(
            found, meaning="no half message of this log is in it, so no transaction depends on it; brokers from 5.4.0 "
            "on open it when they start",
        )


def _fault(store: Store, *names: str) -> Finding | None:
    try:
        with open_database(store, *names) as database:
            for family in database.families:
                for _ in database.items(family):
                    pass
    except MissingLibrary:
        return None
    except SourceError as error:
        return unread(store, store.place(*names), error)
    return None
