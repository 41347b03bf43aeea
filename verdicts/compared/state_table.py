"""The state table and the redo log of 3.0 and 3.1 compared with the commit log, which is authoritative.

Source: docs/formats/state_table.md#slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np

from rmqtx.readers.log.prepared_records import NO_HASH, UNDECIDED, OldRecords
from rmqtx.readers.log.record_layout import COMMIT, PREPARED
from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.model.findings import Finding, one_by_one
from rmqtx.readers.model.ranges import LogRanges
from rmqtx.readers.model.releases import PREPARED_NOT_CHECKED
from rmqtx.readers.old_tables.beside_tables import lacks_tables
from rmqtx.readers.old_tables.redo_log import FILES as REDO_FILES
from rmqtx.readers.old_tables.redo_log import PREPARED_TAGS, RedoEntries, offsets_with, redo_entries
from rmqtx.readers.old_tables.state_table import FILES as TABLE_FILES
from rmqtx.readers.old_tables.state_table import STATE_SLOT, STATES, StateSlots, state_slots
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.broker_settings import BrokerSettings
from rmqtx.readers.store.store import Store

_NO_TYPE = 0
#: Advice that writes tables again, and the one that needs no producer groups.
_REBUILD, _REBUILD_REDO = "rmqtx rebuild ", "rmqtx rebuild redolog"
_UNREAD_MEANING = (
    "a later broker has left the table behind (from 3.2 on): no broker reads it, and the commit log is used"
)
_UNREAD_ADVICE = "leave the table as it is: no broker reads it"
_LACKING_ADVICE = (
    "find the records that the log lacks in a backup or on a slave: a table that is written again from this log lacks "
    "their transactions"
)
#: Expected and actual value, by row.
_Words = Callable[[int], tuple[str, str]]


def state_table_findings(
    store: Store, settings: BrokerSettings, records: OldRecords, ranges: LogRanges
) -> Iterator[Finding]:
    """Return where state table, redo log and commit log differ, and the effect at a broker's next start.

    `records`: those of the whole log.
    Order:  the files' own damage, slots by number, records by offset, redo entries by number.
    Damage: table-entry-invalid, table-gap, unreadable-file.
    """
    found: list[Finding] = []
    slots, entries = state_slots(store, found), redo_entries(store, found)
    work = _TableComparison(store, settings, records, ranges, slots, entries, is_whole=not found)
    yield from map(work.fitted, found)
    if not store.commit_log:  # a missing log is reported once, elsewhere
        return
    if slots is None and entries is None and not lacks_tables(store):
        return
    yield from map(work.fitted, work.findings())


class _TableComparison:
    """The comparison of one store."""

    def __init__(
        self, store: Store, settings: BrokerSettings, records: OldRecords, ranges: LogRanges,
        slots: StateSlots | None, entries: RedoEntries | None, *, is_whole: bool,
    ) -> None:
        self._store, self._ranges = store, ranges
        self._slots, self._entries = slots, entries
        known = np.empty(0, np.int64) if entries is None else np.intersect1d(entries.offsets, records.offsets)
        self._last_known = int(known.max(initial=-1))
        later = records.offsets > self._last_known
        self._later = records.chosen(later)
        low = settings.version_low
        #: Whether a broker without a table has written later: then no broker checks what is open in the table.
        self._is_leftover = low is not None and PREPARED_NOT_CHECKED.holds(low)
        if entries is not None and len(entries) and is_whole and not store.in_use and not store.aborted:
            self._is_leftover |= int(entries.offsets[-1]) == self._last_known and _is_of_later_broker(self._later)
        self._is_behind = store.in_use or store.aborted or self._is_leftover
        self._records = records.chosen(~later | ~records.is_prepared) if self._is_leftover else records

    def fitted(self, finding: Finding) -> Finding:
        """Return a finding with the advice that works on this store.

        A rebuild needs a broker that reads the tables, and a log that has the record of the finding, or all records.
        """
        if _REBUILD not in finding.kind.advice:
            return finding
        if self._is_leftover:
            return replace(finding, meaning=_UNREAD_MEANING, advice=_UNREAD_ADVICE)
        return finding if self._can_be_written(finding) else replace(finding, advice=_LACKING_ADVICE)

    def _can_be_written(self, finding: Finding) -> bool:
        """Whether a rebuild writes what a finding is about."""
        records, place = self._records, finding.commit_log_offset
        row = -1 if place is None else int(_rows_of(records.offsets, np.array([place], np.int64))[0])
        if row < 0:
            return not self._lacks_records
        is_numbered = not records.is_prepared[row] or records.group_hashes[row] != NO_HASH
        return bool(is_numbered or finding.kind.advice.startswith(_REBUILD_REDO))

    @cached_property
    def _lacks_records(self) -> bool:
        """Whether the log lacks records that the tables have, or may have had."""
        if not self._store.commit_log or len(self._ranges.damaged):
            return True
        if (self._records.prepared.group_hashes == NO_HASH).any():  # no slot can be written for it
            return True
        named = [part.offsets.max(initial=-1) for part in (self._slots, self._entries) if part is not None]
        return not self._store.in_use and int(max(named, default=-1)) >= self._ranges.end_offset

    def findings(self) -> Iterator[Finding]:
        """Return where the tables and the log differ."""
        if self._slots is None and self._entries is None:
            if not self._is_leftover:
                yield self._without_redo_log("table-lost")
            return
        if self._slots is None:
            yield from self._without_table()
        else:
            yield from self._of_slots(self._slots)
            yield from self._without_slot(self._slots)
        if self._entries is not None:
            yield from self._of_entries(self._entries)
        elif not self._is_leftover and self._slots is not None:
            yield self._without_redo_log("table-lost" if self._store.was_killed else "redo-log-missing")
        if self._is_leftover:
            yield self._leftover()
        elif self._store.aborted and not self._store.in_use and self._entries is not None:
            yield self._rebuilt(self._entries)

    # -- slots ---------------------------------------------------------------------------------------------------------

    def _of_slots(self, slots: StateSlots) -> Iterator[Finding]:
        prepared, offsets = self._records.prepared, slots.offsets
        rows = _rows_of(prepared.offsets, offsets)
        known = rows >= 0
        expired = ~known & (offsets < self._ranges.begin_offset)
        unknown = ~known & ~expired & ~self._ranges.is_damaged(offsets)
        if self._store.in_use:  # written by the broker since
            unknown &= offsets < self._ranges.end_offset
        yield from self._slot_findings(
            slots, "table-slot-mismatch", unknown,
            lambda row: ("the place of a prepared record", f"commit-log offset {offsets[row]}"),
        )
        yield from self._runs(slots, "table-slot-expired", expired)
        ended = np.where(known, self._records.first_ends[rows] if len(prepared) else _NO_TYPE, _NO_TYPE)
        yield from self._field_findings(slots, rows, known, prepared, ended)
        is_open, is_ended = slots.states == PREPARED, ended != UNDECIDED
        if not self._is_leftover:
            stale = known & is_open & is_ended
            yield from self._slot_findings(
                slots, "table-slot-stale", stale, lambda row: (STATES[int(ended[row])], "PREPARED")
            )
            own = np.where(known, prepared.queue_offsets[rows] if len(prepared) else 0, 0)
            if not self._store.aborted:  # a start after a crash changes the numbers
                yield from self._slot_findings(
                    slots, "table-unanswerable", known & is_open & ~is_ended & (own != slots.numbers),
                    lambda row: (f"slot {own[row]}, the number in the record", f"slot {slots.numbers[row]}"),
                )
        yield from self._slot_findings(
            slots, "table-slot-unproved", known & ~is_open & ~is_ended,
            lambda row: ("a COMMIT or ROLLBACK record", STATES[int(slots.states[row])]),
        )

    def _field_findings(
        self, slots: StateSlots, rows: Int64s, known: Bools, prepared: OldRecords, ended: Int64s
    ) -> Iterator[Finding]:
        """Findings for slots with fields that differ from their record."""
        if not len(prepared):
            return
        compared = [
            ("length", slots.values("record_length_bytes"), prepared.lengths[rows]),
            ("seconds", slots.values("store_time_seconds"), prepared.store_seconds[rows]),
            ("group hash", slots.values("producer_group_hash"), prepared.group_hashes[rows]),
        ]
        if _is_numbered_once(self._records):  # else the slot was rebuilt, and decided by a later record
            decided = (slots.states != PREPARED) & (ended != UNDECIDED)
            compared.append(("state", np.where(decided, slots.states, ended), ended))
        for name, found, right in compared:
            wrong = known & (found != right)
            yield from self._slot_findings(slots, "table-slot-mismatch", wrong, _words_of_field(name, found, right))

    def _slot_findings(self, slots: StateSlots, code: str, wrong: Bools, words: _Words) -> Iterator[Finding]:
        """A finding for each slot."""
        for row, more in one_by_one(np.flatnonzero(wrong).tolist(), "slots"):
            expected, actual = words(row)
            yield Finding(
                self._store.root, code, slots.files[int(slots.file_numbers[row])].file, int(slots.positions[row]),
                STATE_SLOT.size_bytes, commit_log_offset=int(slots.offsets[row]), expected=expected,
                actual=f"{actual}{more}",
            )

    def _runs(self, slots: StateSlots, code: str, wrong: Bools) -> Iterator[Finding]:
        """One finding for each file with wrong slots."""
        for number in np.unique(slots.file_numbers[wrong]).tolist():
            rows = np.flatnonzero(wrong & (slots.file_numbers == number))
            yield Finding(
                self._store.root, code, slots.files[number].file, int(slots.positions[rows[0]]),
                STATE_SLOT.size_bytes, expected=f"offsets from {self._ranges.begin_offset} on",
                actual=f"{len(rows)} slots, {int((slots.states[rows] == PREPARED).sum())} of them PREPARED",
            )

    # -- records -------------------------------------------------------------------------------------------------------

    def _without_slot(self, slots: StateSlots) -> Iterator[Finding]:
        """Prepared records without a decision in the log and without a slot, which the broker never checks."""
        prepared = self._records.prepared
        lost = (self._records.first_ends == UNDECIDED) & (_rows_of(np.unique(slots.offsets), prepared.offsets) < 0)
        if self._store.in_use or self._store.aborted:  # not dispatched yet
            lost &= prepared.offsets < int(slots.offsets.max(initial=-1))
        yield from self._record_findings(
            "table-slot-missing", prepared.chosen(lost),
            lambda row: (f"slot {prepared.queue_offsets[lost][row]}", "this record has no slot"),
        )

    def _without_table(self) -> Iterator[Finding]:
        waiting = int((self._records.first_ends == UNDECIDED).sum())
        yield Finding(
            self._store.root, "table-missing", self._store.place(*TABLE_FILES.directory),
            expected=f"slots for {len(self._records.prepared)} prepared records, {waiting} of them without a decision "
            "in the log",
            actual="no file",
        )

    def _without_redo_log(self, code: str) -> Finding:
        waiting = int((self._records.first_ends == UNDECIDED).sum())
        return Finding(
            self._store.root, code, self._store.place(*REDO_FILES.directory),
            expected=f"entries of {len(self._records)} records, {waiting} of them prepared records without a decision "
            "in the log",
            actual="no file",
        )

    def _record_findings(self, code: str, records: OldRecords, words: _Words) -> Iterator[Finding]:
        with self._store.log() as log:
            for (row, offset), more in one_by_one(list(enumerate(records.offsets.tolist())), "records"):
                expected, actual = words(row)
                yield Finding(
                    self._store.root, code, *log.place_of(offset), int(records.lengths[row]),
                    commit_log_offset=offset, expected=expected, actual=f"{actual}{more}",
                )

    # -- redo entries --------------------------------------------------------------------------------------------------

    def _of_entries(self, entries: RedoEntries) -> Iterator[Finding]:
        records = self._records
        rows = _rows_of(records.offsets, entries.offsets)
        known = rows >= 0
        wrong = ~known & (entries.offsets >= self._ranges.begin_offset) & ~self._ranges.is_damaged(entries.offsets)
        if self._store.in_use:
            wrong &= entries.offsets < self._ranges.end_offset
        if len(records):
            tags = np.where(records.is_prepared, PREPARED_TAGS, records.prepared_offsets)[rows]
            wrong |= known & ((tags != entries.tags) | (records.lengths[rows] != entries.lengths))
        wrong[1:] |= np.diff(entries.offsets) <= 0  # entries are written in the order of the log
        for row, more in one_by_one(np.flatnonzero(wrong).tolist(), "entries"):
            segment: Segment = entries.files[int(entries.file_numbers[row])]
            actual = f"offset {entries.offsets[row]}, length {entries.lengths[row]}, tags code {entries.tags[row]}"
            yield Finding(
                self._store.root, "redo-entry-mismatch", segment.file, int(entries.positions[row]),
                REDO_FILES.layout.size_bytes, commit_log_offset=int(entries.offsets[row]),
                expected="the values of a prepared, COMMIT or ROLLBACK record",
                actual=f"{actual}{more}",
            )
        mine = _is_of_prepared(records)
        lacking = mine & (_rows_of(np.unique(entries.offsets), records.offsets) < 0)
        if self._is_behind:  # not dispatched yet
            lacking &= records.offsets < self._last_known
        yield from self._record_findings(
            "redo-entry-missing", records.chosen(lacking), lambda _row: ("an entry of the redo log", "none")
        )

    def _leftover(self) -> Finding:
        slots = self._slots
        still = 0 if slots is None else int((slots.states == PREPARED).sum())
        waiting = int((self._later.first_ends == UNDECIDED).sum()) if len(self._later.prepared) else 0
        return Finding(
            self._store.root, "table-leftover", self._store.place("transaction"),
            actual=f"{still} slots in state PREPARED; {len(self._later)} records written later, {waiting} of "
            "them prepared records without a decision in the log",
        )

    def _rebuilt(self, entries: RedoEntries) -> Finding:
        """Return how the next start rebuilds the state table."""
        rebuilt = offsets_with(entries, self._later)
        prepared = self._records.prepared
        waiting = prepared.offsets[self._records.first_ends == UNDECIDED]
        rows = _rows_of(prepared.offsets, rebuilt)
        held = rows >= 0
        is_waiting = np.isin(rebuilt, waiting)
        own = prepared.queue_offsets[rows] if len(prepared) else rows
        unanswerable = int((held & is_waiting & (own != np.arange(len(rebuilt)))).sum())
        forgotten = int((~np.isin(waiting, rebuilt)).sum())
        again = int((held & ~is_waiting).sum())
        return Finding(
            self._store.root, "table-remade", self._store.place(*TABLE_FILES.directory),
            actual=f"{len(rebuilt)} slots, numbered from 0: {unanswerable} without a decision in the log and with "
            f"another number than in their records, {again} decided ones; {forgotten} transactions without a "
            "decision in the log get no slot",
        )


def _words_of_field(name: str, found: Int64s, right: Int64s) -> _Words:
    """Return the texts of a field: the value in the record and the value in the slot."""
    def words(row: int) -> tuple[str, str]:
        is_unknown = right[row] == NO_HASH
        known = "unknown: its record has no producer group that can be read"
        return known if is_unknown else f"{name} {right[row]}, the value in its record", f"{name} {found[row]}"

    return words


def _rows_of(known: Int64s, wanted: Int64s) -> Int64s:
    """Return the row of each wanted value among ascending known ones, −1 if it is missing."""
    if not len(known):
        return np.full(len(wanted), -1, np.int64)
    places = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[places] == wanted, places, -1)


def _is_of_prepared(records: OldRecords) -> Bools:
    """Which records are prepared, or end a prepared record here: COMMIT records of later designs have the same type."""
    return records.is_prepared | (_rows_of(records.prepared.offsets, records.prepared_offsets) >= 0)


def _is_of_later_broker(records: OldRecords) -> bool:
    """Whether 3.2 or later wrote the records: from 3.2 on prepared and ROLLBACK records have the queue offset 0."""
    return bool(len(records)) and not records.queue_offsets[records.types != COMMIT].any()


def _is_numbered_once(records: OldRecords) -> bool:
    """Whether the table was never rebuilt: the numbers increase from record to record."""
    return bool((np.diff(records.prepared.queue_offsets) == 1).all())
