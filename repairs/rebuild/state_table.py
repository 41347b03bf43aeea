"""Rebuilding state table and redo log of 3.0 and 3.1 from the commit log.

A slot's number must be the queue offset in its prepared record: only then does the broker accept an answer. If two
records have the same number, which a crash can cause, the undecided record gets the slot, and of two undecided records
the newer one. If no record has a number, its slot repeats the neighbouring slot as rolled back, because an empty slot
is the table's end for a broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rmqtx.readers.log.prepared_records import NO_HASH, UNDECIDED, OldRecords
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.record_layout import PREPARED, ROLLBACK
from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.old_tables.redo_log import DIRECTORY as REDO_DIRECTORY
from rmqtx.readers.old_tables.redo_log import PREPARED_TAGS, REDO_ENTRY, redo_entries
from rmqtx.readers.old_tables.state_table import DIRECTORY as TABLE_DIRECTORY
from rmqtx.readers.old_tables.state_table import STATE_SLOT, state_slots
from rmqtx.readers.store.store import Store
from rmqtx.repairs.changes.new_stores import write_at
from rmqtx.repairs.records.store_sizes import number_of, whole_units

#: Slots and entries per file by default. Source: store/config/MessageStoreConfig.java (3.1.4).
_UNITS_PER_FILE = 2_000_000
#: Most numbers that may have lost their record by damage of the log.
_NUMBERS_LOST_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class TableSizes:
    """Lengths of the files of state table and redo log. Units: bytes."""

    table_file_bytes: int
    redo_file_bytes: int


def table_sizes(store: Store, conf: Mapping[str, str] | None = None) -> TableSizes:
    """Return the lengths from the broker's configuration, else from existing files, else the defaults.

    Raises: BadRequest for an invalid configuration.
    """
    given = conf or {}
    slots, entries = state_slots(store, []), redo_entries(store, [])
    table = number_of(given, "tranStateTableMapedFileSize") or (slots.files[0].size_bytes if slots else 0)
    redo = number_of(given, "tranRedoLogMapedFileSize") or (entries.files[0].size_bytes if entries else 0)
    return TableSizes(
        whole_units(table or _UNITS_PER_FILE * STATE_SLOT.size_bytes, STATE_SLOT.size_bytes),
        whole_units(redo or _UNITS_PER_FILE * REDO_ENTRY.size_bytes, REDO_ENTRY.size_bytes),
    )


@dataclass(slots=True)
class StateTableBuilder:
    """Builds the two tables of a store below `root` from blocks in the order of the log.

    Raises: OSError where a file cannot be written.
    """

    store: Store
    root: Path
    sizes: TableSizes
    findings: list[Finding] = field(default_factory=list)
    slots_count: int = 0
    open_count: int = 0
    entries_count: int = 0
    _parts: list[OldRecords] = field(default_factory=list)

    def add(self, block: Block) -> None:
        """Add the records of a block."""
        self._parts.append(OldRecords.of_block(block))

    def records(self) -> OldRecords:
        """The records that a broker with these tables wrote: records of a later broker are in neither table."""
        every = OldRecords.joined(self._parts)
        entries = redo_entries(self.store, [])
        if entries is None or not len(entries):
            return every
        later = every.offsets > int(np.intersect1d(entries.offsets, every.offsets).max(initial=-1))
        is_numbered = every.chosen(later & every.is_prepared).queue_offsets.any()
        return every if is_numbered else every.chosen(~later | ~every.is_prepared)

    def write_table(self) -> None:
        """Write the state table."""
        records = self.records()
        prepared, states = records.prepared, self._states(records)
        chosen = self._with_slot(prepared, states)
        self.slots_count, self.open_count = len(chosen), int((states[chosen] == PREPARED).sum())
        if not len(chosen):
            return
        numbers = prepared.queue_offsets[chosen]
        per_file = self.sizes.table_file_bytes // STATE_SLOT.size_bytes
        first = int(numbers[0]) // per_file * per_file
        slots = np.zeros(int(numbers[-1]) + 1 - first, STATE_SLOT.dtype)
        # each slot gets the record with its number, or the nearest one before it; slots before the first get the first
        rows = np.maximum(np.searchsorted(numbers, np.arange(first, first + len(slots)), "right") - 1, 0)
        taken = chosen[rows]
        slots["commit_log_offset"] = prepared.offsets[taken]
        slots["record_length_bytes"] = prepared.lengths[taken]
        slots["store_time_seconds"] = prepared.store_seconds[taken]
        slots["producer_group_hash"] = prepared.group_hashes[taken]
        slots["state"] = ROLLBACK
        slots["state"][numbers - first] = states[chosen]
        _write(self.root.joinpath(*TABLE_DIRECTORY), self.sizes.table_file_bytes, first, slots)

    def write_redo_log(self) -> None:
        """Write the redo log; entries of expired records are kept."""
        records = self.records()
        mine = records.is_prepared | np.isin(records.prepared_offsets, records.prepared.offsets)
        mine |= records.prepared_offsets < self.store.log_begin_offset
        records = records.chosen(mine)
        entries = redo_entries(self.store, [])
        old = np.empty(0, REDO_ENTRY.dtype)
        first = 0
        if entries is not None and len(entries):
            first = int(entries.numbers[0])
            old = entries.units[entries.offsets < self.store.log_begin_offset]
        made = np.zeros(len(records), REDO_ENTRY.dtype)
        made["commit_log_offset"] = records.offsets
        made["record_length_bytes"] = records.lengths
        made["tags_code"] = np.where(records.is_prepared, PREPARED_TAGS, records.prepared_offsets)
        self.entries_count = len(old) + len(made)
        units = np.concatenate([old, made]).astype(REDO_ENTRY.dtype)  # concatenate returns this machine's byte order
        _write(self.root.joinpath(*REDO_DIRECTORY), self.sizes.redo_file_bytes, first, units)

    def _states(self, records: OldRecords) -> Int64s:
        """Return the state of each prepared record: from the log, else from the old tables if they have a decision."""
        states = np.where(records.first_ends == UNDECIDED, PREPARED, records.first_ends)
        offsets = records.prepared.offsets
        slots, entries = state_slots(self.store, []), redo_entries(self.store, [])
        known = dict(zip(slots.offsets.tolist(), slots.states.tolist(), strict=True)) if slots is not None else {}
        ended = set() if entries is None else set(entries.tags[entries.tags != PREPARED_TAGS].tolist())
        for row in np.flatnonzero(states == PREPARED).tolist():
            offset = int(offsets[row])
            state = known.get(offset, PREPARED)
            if state == PREPARED and offset in ended:
                state = ROLLBACK  # unknown which of the two; it only matters that the broker does not check it again
            if state != PREPARED:
                states[row] = state
                self.findings.append(
                    Finding(
                        self.store.root, "table-slot-unproved", self.store.place(*TABLE_DIRECTORY),
                        commit_log_offset=offset, expected="a COMMIT or ROLLBACK record",
                        actual="only an entry in the state table or the redo log",
                    )
                )
        return states

    def _with_slot(self, prepared: OldRecords, states: Int64s) -> Int64s:
        """Rows of the records that get a slot, ordered by number."""
        usable: Bools = (prepared.queue_offsets >= 0) & (prepared.group_hashes != NO_HASH)
        rows = self._within_reach(prepared, np.flatnonzero(usable))
        is_open = states[rows] == PREPARED
        order = rows[np.lexsort((prepared.offsets[rows], is_open, prepared.queue_offsets[rows]))]
        is_last = np.append(np.diff(prepared.queue_offsets[order]) != 0, np.ones(min(1, len(order)), np.bool_))
        for row in order[~is_last].tolist():
            if states[row] == PREPARED:
                self.findings.append(
                    Finding(
                        self.store.root, "table-number-taken", self.store.place(*TABLE_DIRECTORY),
                        commit_log_offset=int(prepared.offsets[row]),
                        expected=f"slot {prepared.queue_offsets[row]}",
                    )
                )
        chosen: Int64s = order[is_last]
        return chosen

    def _within_reach(self, prepared: OldRecords, rows: Int64s) -> Int64s:
        """Rows of the records with a plausible number: in a damaged header it may have any value."""
        numbers = prepared.queue_offsets[rows]
        limit = int(numbers.min(initial=1 << 62)) + 2 * len(rows) + _NUMBERS_LOST_MAX
        for row in rows[numbers >= limit].tolist():
            self.findings.append(
                Finding(
                    self.store.root, "record-header", commit_log_offset=int(prepared.offsets[row]),
                    expected=f"a slot number below {limit}", actual=f"queue_offset {prepared.queue_offsets[row]}",
                )
            )
        within: Int64s = rows[numbers < limit]
        return within


def _write(directory: Path, file_bytes: int, first: int, units: np.ndarray[tuple[int], np.dtype[np.void]]) -> None:
    """Write the files of units that are numbered from `first` on."""
    directory.mkdir(parents=True, exist_ok=True)
    size = units.dtype.itemsize
    per_file = file_bytes // size
    begin = 0
    while begin < len(units):
        number = first + begin
        end = min(len(units), begin + per_file - number % per_file)
        name = f"{number // per_file * file_bytes:020}"
        write_at(directory / name, file_bytes, number % per_file * size, units[begin:end].tobytes())
        begin = end
