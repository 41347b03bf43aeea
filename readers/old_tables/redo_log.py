"""Read the redo log of brokers 3.0 and 3.1: an entry for each prepared, COMMIT or ROLLBACK record, in log order.

It is a consume queue of a separate topic. After a crash the broker deletes its state table and rebuilds it from this
log, with slots numbered from 0. If there are fewer than 21 files, it reads only the first one and loses the entries in
later files (docs/formats/state_table.md#recovery; seen with 3.1.4).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa

from rmqtx.readers.log.commit_log import scan_segments
from rmqtx.readers.log.prepared_records import OldRecords
from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.layout import Field, Layout
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.model.tables import REDO_LOG
from rmqtx.readers.old_tables.beside_log import END_ENTRY
from rmqtx.readers.old_tables.table_files import AllUnits, SoundUnits, TableFiles, place_columns, state_entries
from rmqtx.readers.queues.consume_queue import are_left_out
from rmqtx.readers.queues.unit_files import Units
from rmqtx.readers.store.store import Store

REDO_ENTRY = Layout(
    "redo_entry",
    "Entry of the redo log (3.0, 3.1)",
    (
        Field("commit_log_offset", "q", "commit-log offset of the prepared, COMMIT or ROLLBACK record", "byte"),
        Field("record_length_bytes", "i", "length of the record", "byte"),
        Field(
            "tags_code", "q",
            "-1: a prepared record; else the commit-log offset of the prepared record that was decided"
        ),
    ),
    20,
    "store/transaction/TransactionStateService.java (3.1.4), docs/formats/state_table.md#redo-log",
    since="3.0.0",
)
TOPIC = "TRANSACTION_REDOLOG_TOPIC_XXXX"
DIRECTORY = ("transaction", "redolog", TOPIC, "0")
KIND = "redolog"
PREPARED_TAGS = -1
_KINDS = (END_ENTRY, "PREPARED")


def are_sound(entries: Units) -> Bools:
    """Return which entries are possible."""
    offsets, tags = entries["commit_log_offset"], entries["tags_code"]
    sound: Bools = (offsets >= 0) & (entries["record_length_bytes"] > 0)
    sound &= (tags == PREPARED_TAGS) | ((tags >= 0) & (tags < offsets))
    return sound


FILES = TableFiles(DIRECTORY, REDO_ENTRY, are_sound, are_left_out, "an offset, a length, and -1 or an earlier offset")


class RedoEntries(AllUnits):
    """All sound entries of a redo log."""

    @cached_property
    def lengths(self) -> Int64s:
        """Length of every entry's record. Units: bytes."""
        return self.values("record_length_bytes")

    @cached_property
    def tags(self) -> Int64s:
        """-1 for a prepared record, else the commit-log offset of the prepared record that was decided."""
        return self.values("tags_code")

    @cached_property
    def prepared_offsets(self) -> Int64s:
        """Commit-log offset of the prepared record that each entry refers to."""
        return np.where(self.tags == PREPARED_TAGS, self.offsets, self.tags)

    @property
    def is_whole(self) -> bool:
        """Whether no entry is missing from the first file on; a bundle leaves out entries of other transactions."""
        first = self.files[0].base_offset // REDO_ENTRY.size_bytes
        return bool((self.numbers == first + np.arange(len(self))).all())


def scan_redo_log(store: Store) -> Reading:
    """Return every entry of the redo log.

    Shape:  rows of REDO_LOG, at most 65,536 a batch.
    Order:  entry number.
    Damage: table-entry-invalid, table-gap, segment-size, stray-file, unreadable-file.
    Source: store/transaction/TransactionStateService.java (3.1.4); docs/formats/state_table.md#redo-log.
    """
    return FILES.reading(store, REDO_LOG, _rows, "only brokers 3.0 and 3.1 write one")


def redo_entries(store: Store, findings: list[Finding]) -> RedoEntries | None:
    """Return the whole redo log; None if there is none.

    Units:  44 bytes of memory per entry.
    Damage: as `scan_redo_log`.
    """
    return FILES.all_units(store, findings, RedoEntries)


def redo_log_entries(store: Store, findings: list[Finding]) -> pa.Table | None:
    """Return the entries of the redo log as rows of STATE_ENTRIES; None if there is no redo log.

    Shape:  `key` is the entry number, `value` PREPARED, or END for a COMMIT or ROLLBACK record.
    Order:  entry number.
    Damage: as `scan_redo_log`.
    """
    found = redo_entries(store, findings)
    if found is None:
        return None
    return state_entries(store, KIND, found, found.prepared_offsets, _kinds(found.tags))


# --- how 3.1 rebuilds its state table ---------------------------------------------------------------------------------


def recovered_offsets(
    offsets: Int64s, tags: Int64s, *, entries_per_file: int, numbers: Int64s | None = None
) -> Int64s:
    """Return the prepared records that a broker 3.1 writes into its new state table after a crash, from slot 0 on.

    `offsets`, `tags`, `numbers`: of the redo log's entries, ascending; without `numbers` they count from 0.
    The broker adds the number of bytes that it has read to the number of an entry, and so skips files.
    Order:  slot number, which is log order.
    Source: store/transaction/TransactionStateService.java recreateStateTable (3.1.4);
            docs/formats/state_table.md#recovery.
    """
    numbers = np.arange(len(offsets)) if numbers is None else numbers
    waiting: set[int] = set()
    begin, end = (int(numbers[0]), int(numbers[-1]) + 1) if len(numbers) else (0, 0)
    while begin < end:
        stop = min(end, begin // entries_per_file * entries_per_file + entries_per_file)
        first, last = np.searchsorted(numbers, (begin, stop)).tolist()
        for offset, tag in zip(offsets[first:last].tolist(), tags[first:last].tolist(), strict=True):
            if tag == PREPARED_TAGS:
                waiting.add(offset)
            else:
                waiting.discard(tag)
        begin += (stop - begin) * REDO_ENTRY.size_bytes
    return np.array(sorted(waiting), np.int64)


def numbers_with(entries: RedoEntries, later_count: int) -> Int64s:
    """Return the numbers of a redo log's entries, and of entries that the broker appends for later records."""
    following = int(entries.numbers[-1]) + 1 if len(entries) else 0
    return np.concatenate([entries.numbers, following + np.arange(later_count)])


def entries_per_file(entries: RedoEntries) -> int:
    """Return the number of entries that a file of this redo log has room for."""
    return max(1, entries.files[0].size_bytes // REDO_ENTRY.size_bytes)


def _rows(store: Store, found: SoundUnits) -> pa.RecordBatch:
    entries = found.units
    offsets, tags = entries["commit_log_offset"].astype(np.int64), entries["tags_code"].astype(np.int64)
    columns = [
        *place_columns(store, REDO_ENTRY, found),
        pa.array(offsets),
        pa.array(entries["record_length_bytes"].astype(np.int32)),
        pa.array(tags),
        _kinds(tags),
        pa.array(np.where(tags == PREPARED_TAGS, offsets, tags)),
    ]
    return pa.record_batch(columns, schema=REDO_LOG)


def _kinds(tags: Int64s) -> pa.Array:
    return pa.array(list(_KINDS)).take(pa.array((tags == PREPARED_TAGS).astype(np.int8)))


# The state table that a broker 3.0 or 3.1 rebuilds if it finds the file `abort` at its start.
#
# Source: docs/formats/state_table.md#recovery.


def rebuilt_offsets(store: Store, entries: RedoEntries, findings: list[Finding]) -> Int64s:
    """Return the prepared records in the rebuilt table: from the redo log, and from records after its last entry.

    Order:  slot number, from 0 on.
    Damage: as `scan_segments`.
    Source: store/transaction/TransactionStateService.java recreateStateTable (3.1.4).
    """
    last = int(entries.offsets.max(initial=-1))
    blocks = scan_segments(store, findings, [], from_offset=last + 1)
    later = OldRecords.joined(OldRecords.of_block(block) for block in blocks)
    return offsets_with(entries, later)


def offsets_with(entries: RedoEntries, later: OldRecords) -> Int64s:
    """Return the same. `later`: the records after the last entry."""
    return recovered_offsets(
        np.concatenate([entries.offsets, later.offsets]),
        np.concatenate([entries.tags, np.where(later.is_prepared, PREPARED_TAGS, later.prepared_offsets)]),
        entries_per_file=entries_per_file(entries),
        numbers=numbers_with(entries, len(later)),
    )
