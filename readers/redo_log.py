"""The redo log of brokers 3.0 and 3.1: an entry for each prepared, COMMIT or ROLLBACK record, in log order.

It is a consume queue of a topic of its own. After a crash the broker destroys its state table and makes it anew from
this log, with slots numbered from 0, and reads no more than the first file where there are less than 21: what is in
later files is forgotten (FORMATS 6.1; seen with 3.1.4).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from readers.columns import Bools, Int64s
from readers.consume_queue import Slots
from readers.findings import Finding
from readers.layout import Field, Layout
from readers.reading import Reading
from readers.sources import Segment
from readers.store import Store
from readers.tables import REDO_LOG, STATE_ENTRIES
from readers.unit_files import UnitFiles, Units

REDO_ENTRY = Layout(
    "redo_entry",
    "Entry of the redo log (3.0, 3.1)",
    (
        Field("commit_log_offset", "q", "place of the prepared, COMMIT or ROLLBACK record", "byte"),
        Field("record_length_bytes", "i", "length of that record", "byte"),
        Field("tags_code", "q", "-1: a prepared record; else the place of the prepared record that was ended"),
    ),
    20,
    "store/transaction/TransactionStateService.java (3.1.4), FORMATS 6.1",
    since="3.0.0",
)
TOPIC = "TRANSACTION_REDOLOG_TOPIC_XXXX"
DIRECTORY = ("transaction", "redolog", TOPIC, "0")
KIND = "redolog"
PREPARED_TAGS = -1
_KINDS = ("END", "PREPARED")


def are_sound(slots: Slots) -> Bools:
    """Which entries can be."""
    offsets, tags = slots["commit_log_offset"], slots["tags_code"]
    sound: Bools = (offsets >= 0) & (slots["record_length_bytes"] > 0)
    sound &= (tags == PREPARED_TAGS) | ((tags >= 0) & (tags < offsets))
    return sound


FILES = UnitFiles(DIRECTORY, REDO_ENTRY, are_sound, "an offset, a length, and -1 or an earlier offset")


@dataclass(frozen=True)
class RedoEntries:
    """All sound entries of a redo log, as arrays that go together.

    Shape: `files` are the log's; `file_numbers` says in which of them an entry is. Order: number.
    """

    files: tuple[Segment, ...]
    file_numbers: Int64s
    positions: Int64s
    numbers: Int64s
    slots: Slots

    @cached_property
    def offsets(self) -> Int64s:
        """Commit-log offset of every entry's record."""
        return self.slots["commit_log_offset"].astype(np.int64)

    @cached_property
    def lengths(self) -> Int64s:
        """Length of every entry's record. Units: bytes."""
        return self.slots["record_length_bytes"].astype(np.int64)

    @cached_property
    def tags(self) -> Int64s:
        """-1 for a prepared record, else the place of the one that was ended."""
        return self.slots["tags_code"].astype(np.int64)

    @cached_property
    def prepared_offsets(self) -> Int64s:
        """Commit-log offset of the prepared record that every entry is about."""
        return np.where(self.tags == PREPARED_TAGS, self.offsets, self.tags)

    def __len__(self) -> int:
        return len(self.numbers)


def scan_redo_log(store: Store) -> Reading:
    """Every entry of the redo log.

    Shape:  rows of REDO_LOG, at most 65,536 a batch.
    Order:  entry number.
    Damage: table-entry-invalid, table-gap, segment-size, stray-file, unreadable-file.
    Source: store/transaction/TransactionStateService.java (3.1.4); FORMATS 6.1.
    """
    reading = Reading(REDO_LOG, ())
    reading.batches = _batches(store, reading)
    if not FILES.exist(store):
        reading.notes.append(f"{store.root} has no transaction/redolog, because only brokers of 3.0 and 3.1 keep one")
    return reading


def redo_entries(store: Store, findings: list[Finding]) -> RedoEntries | None:
    """The whole redo log; None where there is none.

    Units:  36 bytes of memory per entry.
    Damage: as `scan_redo_log`.
    """
    files = FILES.segments(store, [])
    if not files:
        return None
    blocks = list(FILES.units(store, findings, []))
    places = {segment.file: number for number, segment in enumerate(files)}
    none = np.empty(0, np.int64)
    return RedoEntries(
        files,
        np.concatenate([none, *(np.full(len(b.numbers), places[b.segment.file], np.int64) for b in blocks)]),
        np.concatenate([none, *(block.positions for block in blocks)]),
        np.concatenate([none, *(block.numbers for block in blocks)]),
        np.concatenate([np.empty(0, REDO_ENTRY.dtype), *(block.slots for block in blocks)]),
    )


def redo_log_entries(store: Store, findings: list[Finding]) -> pa.Table | None:
    """What the redo log says of prepared records, as rows of STATE_ENTRIES; None where there is no redo log.

    Shape:  `key` is the entry number, `value` PREPARED, or END for a COMMIT or ROLLBACK record.
    Order:  entry number.
    Damage: as `scan_redo_log`.
    """
    found = redo_entries(store, findings)
    if found is None:
        return None
    count = len(found)
    columns = {
        "store": pa.repeat(pa.scalar(store.root, pa.string()), count),
        "half_commit_log_offset": pa.array(found.prepared_offsets),
        "kind": pa.repeat(pa.scalar(KIND, pa.string()), count),
        "key": pa.array(found.numbers).cast(pa.string()),
        "value": _kinds(found.tags),
        "position_bytes": pa.array(found.positions),
    }
    return pa.Table.from_arrays([columns[name] for name in STATE_ENTRIES.names], schema=STATE_ENTRIES)


# --- how 3.1 makes its state table anew -------------------------------------------------------------------------------


def recovered_offsets(
    offsets: Int64s, tags: Int64s, *, entries_per_file: int, first_number: int = 0, has_walk_bug: bool = True
) -> Int64s:
    """The prepared records that a broker of 3.1 puts into its new state table after a crash, from slot 0 on.

    `offsets`, `tags`: of the redo log's entries, the first of which has the number `first_number`. `has_walk_bug`:
    as the broker walks: it adds the bytes that it has read to the number of an entry, and so leaves out files.
    Order:  slot number, which is log order.
    Source: store/transaction/TransactionStateService.java recreateStateTable (3.1.4); FORMATS 6.1.
    """
    waiting: set[int] = set()
    begin, end = 0, len(offsets)
    while begin < end:
        stop = min(end, (first_number + begin) // entries_per_file * entries_per_file + entries_per_file - first_number)
        for offset, tag in zip(offsets[begin:stop].tolist(), tags[begin:stop].tolist(), strict=True):
            if tag == PREPARED_TAGS:
                waiting.add(offset)
            else:
                waiting.discard(tag)
        begin += (stop - begin) * (REDO_ENTRY.size_bytes if has_walk_bug else 1)
    return np.array(sorted(waiting), np.int64)


def entries_per_file(entries: RedoEntries) -> int:
    """How many entries a file of this redo log has room for."""
    return max(1, entries.files[0].size_bytes // REDO_ENTRY.size_bytes)


def _batches(store: Store, reading: Reading) -> Iterator[pa.RecordBatch]:
    for units in FILES.units(store, reading.findings, reading.coverage):
        yield _rows(store, units)


def _rows(store: Store, units: Units) -> pa.RecordBatch:
    count, slots = len(units.numbers), units.slots
    offsets, tags = slots["commit_log_offset"].astype(np.int64), slots["tags_code"].astype(np.int64)
    columns = [
        pa.repeat(pa.scalar(store.root, pa.string()), count),
        pa.repeat(pa.scalar(units.segment.file, pa.string()), count),
        pa.array(units.positions),
        pa.repeat(pa.scalar(REDO_ENTRY.size_bytes, pa.int32()), count),
        pa.array(units.numbers),
        pa.array(offsets),
        pa.array(slots["record_length_bytes"].astype(np.int32)),
        pa.array(tags),
        _kinds(tags),
        pa.array(np.where(tags == PREPARED_TAGS, offsets, tags)),
    ]
    return pa.record_batch(columns, schema=REDO_LOG)


def _kinds(tags: Int64s) -> pa.Array:
    return pa.array(list(_KINDS)).take(pa.array((tags == PREPARED_TAGS).astype(np.int8)))
