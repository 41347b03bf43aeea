"""Tables beside the log: from state table and redo log (3.0, 3.1) a bundle has the units of its transactions.

A unit of another transaction keeps its number and loses its content (`are_left_out` in `state_table.py`,
`redo_log.py`), so every unit in the bundle stays at its place. RocksDB's table is left out, and this is reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.java_hashes import java_hash
from rmqtx.readers.old_tables import redo_log, state_table
from rmqtx.readers.old_tables.table_files import TableFiles
from rmqtx.readers.queues.consume_queue import LEFT_OUT_TAGS, PRE_BLANK_LENGTH
from rmqtx.readers.queues.unit_files import BLOCK_UNITS, Units, is_not_zero, units_in
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.store import ROCKSDB_HALF_TOPIC
from rmqtx.repairs.bundles.files import Extent, PlannedFile
from rmqtx.repairs.bundles.redaction import Redactor
from rmqtx.repairs.bundles.selection import Selection
from rmqtx.verdicts.model.transaction import Transaction

_OF_ROCKSDB = "rocksdbstore"
#: A broker that did not stop cleanly numbers its slots from scratch, from the whole redo log.
_OF_REDO_LOG = "transaction/redolog"
#: Columns of a verdict that may depend on a table that is left out.
COLUMNS = (
    "state", "flags", "reason", "advice", "checks_count", "state_entries", "deliveries_count", "reason_code", "causes",
)


def planned_tables(selection: Selection, redactor: Redactor | None) -> Iterator[PlannedFile]:
    """Yield state table and redo log, from the first file with a unit of the bundle's transactions to the last unit.

    A table without such a unit has its first unit, without content: the table's existence matters.
    """
    rows = selection.every
    table = _Cut(selection, state_table.FILES, _left_out_slots)
    redo = _Cut(selection, redo_log.FILES, _left_out_entries)
    hashes = {} if redactor is None else {
        number: java_hash(redactor.text(row.producer_group or ""))
        for row in rows for number in _numbers(row, state_table.KIND)
    }
    yield from table.planned({number for row in rows for number in _numbers(row, state_table.KIND)}, hashes)
    yield from redo.planned({number for row in rows for number in _numbers(row, redo_log.KIND)}, {})


def _numbers(row: Transaction, kind: str) -> list[int]:
    return [int(entry.key) for entry in row.state_entries if entry.kind == kind]


def _left_out_slots(slots: Units) -> None:
    slots["record_length_bytes"], slots["state"] = PRE_BLANK_LENGTH, state_table.LEFT_OUT_STATE


def _left_out_entries(entries: Units) -> None:
    entries["record_length_bytes"], entries["tags_code"] = PRE_BLANK_LENGTH, LEFT_OUT_TAGS


class _Cut:
    """One table to write to a bundle."""

    def __init__(self, selection: Selection, files: TableFiles, mark: Any) -> None:
        self._files, self._mark = files, mark
        self._segments = files.segments(selection.store, [])

    def planned(self, numbers: set[int], hashes: Mapping[int, int]) -> Iterator[PlannedFile]:
        """Yield the files with these units; `hashes`: by unit number, the redacted hash of its group."""
        kept = np.array(sorted(numbers), np.int64)
        size = self._files.layout.size_bytes
        chosen = [
            (segment, mine) for segment in self._segments
            if len(mine := kept[(kept * size >= segment.base_offset) & (kept * size < segment.end_offset)])
        ]
        if not chosen:
            chosen = [(segment, kept) for segment in self._segments[:1]]
        first, last = (chosen[place][0].base_offset for place in (0, -1)) if chosen else (0, -1)
        for segment in self._segments:
            if first <= segment.base_offset <= last:
                mine = next((mine for one, mine in chosen if one is segment), kept[:0])
                yield self._file(segment, mine, hashes, is_last=segment.base_offset == last)

    def _file(self, segment: Segment, kept: Int64s, hashes: Mapping[int, int], *, is_last: bool) -> PlannedFile:
        size = self._files.layout.size_bytes
        first = segment.base_offset // size
        count = segment.size_bytes // size
        if is_last:
            count = min(count, int(kept[-1]) + 1 - first if len(kept) else 1)
        extents = []
        with segment.open() as file:
            for begin in range(0, count, BLOCK_UNITS):
                data = file.read(begin * size, min(BLOCK_UNITS, count - begin) * size)
                units = units_in(data, self._files.layout).copy()
                own = first + begin + np.arange(len(units))
                others = is_not_zero(units) & ~np.isin(own, kept)
                blank = np.zeros(int(others.sum()), units.dtype)
                self._mark(blank)
                units[others] = blank
                for row in np.flatnonzero(~others).tolist():
                    if int(own[row]) in hashes:
                        units["producer_group_hash"][row] = hashes[int(own[row])]
                extents.append(Extent.of(begin * size, units.tobytes()))
        path = "/".join(("store", *self._files.directory, f"{segment.base_offset:020d}"))
        return PlannedFile(path, segment.size_bytes, tuple(extents))


def tables_of(selection: Selection, row: Transaction) -> tuple[str, ...]:
    """Return the tables that the verdict on a transaction rests on and the bundle leaves out."""
    records = (selection.records.get(copy.commit_log_offset) for copy in row.half_copies)
    is_in_rocksdb = ROCKSDB_HALF_TOPIC in {record.topic for record in records if record is not None}
    if is_in_rocksdb and selection.store.has(_OF_ROCKSDB):
        return (_OF_ROCKSDB,)
    is_rebuilt = selection.store.aborted and bool(_numbers(row, redo_log.KIND))
    return (_OF_REDO_LOG,) if is_rebuilt else ()


@dataclass(slots=True)
class JudgedByLog:
    """Transactions of a bundle whose rows differ because tables are left out.

    `states`: how many have another state, by the state in the store and in the bundle.
    """

    names: set[str] = field(default_factory=set)
    states: Counter[tuple[str, str]] = field(default_factory=Counter)


def left_out_notes(left_out: Mapping[tuple[str, ...], JudgedByLog]) -> Iterator[str]:
    """Yield a sentence for each group of left-out tables, with the number of transactions that differ without them."""
    for tables, judged in sorted(left_out.items(), key=lambda one: one[0]):
        count = len(judged.names)
        if tables == (_OF_REDO_LOG,):
            yield (
                f"{_OF_REDO_LOG} contains only the entries of the chosen transactions: the next start of the broker "
                f"would give {count} of them other slots"
            )
            continue
        others = "".join(
            f"; {number} {mine} in the store, {other} in the bundle"
            for (mine, other), number in sorted(judged.states.items())
        )
        yield (
            f"{' and '.join(tables)} is left out, because it contains transactions that were not chosen: in the "
            f"bundle, {count} of the chosen transactions are judged by the log alone{others}"
        )
