"""A database table of open transactions (3.2 to 4.2) compared with the commit log, which is authoritative.

Source: docs/formats/prepared_records.md#transaction-table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from rmqtx.readers.log.prepared_records import NO_HASH, UNDECIDED, OldRecords
from rmqtx.readers.log.record_layout import COMMIT
from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.model.findings import Finding, one_by_one
from rmqtx.readers.model.java_hashes import java_hash
from rmqtx.readers.model.ranges import LogRanges
from rmqtx.readers.old_tables.transaction_table import TransactionTable
from rmqtx.readers.store.store import Store

_UNKNOWN_GROUP = "unknown: its record has no producer group that can be read"
_MISSING_IN_PART = (
    "the table is older than they are, or they were never inserted: they are pending, or UNDECIDABLE where the damaged "
    "or missing part of the log may contain their decision (rmqtx audit)"
)


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
    )  # fmt: skip


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
        )  # fmt: skip
