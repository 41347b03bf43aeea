"""The files of the state table and the redo log of brokers 3.0 and 3.1, read by the rules of `unit_files.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import pyarrow as pa

from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.layout import Layout
from rmqtx.readers.model.reading import Coverage, Note, NoteKind, Reading
from rmqtx.readers.model.tables import STATE_ENTRIES
from rmqtx.readers.queues.unit_files import Units, UnitScan, gaps_as, last_unit
from rmqtx.readers.storage.segments import Segment, list_segments
from rmqtx.readers.store.store import Store

INVALID = "table-entry-invalid"


@dataclass(frozen=True, slots=True)
class SoundUnits:
    """Sound units of one file; `positions` in the file and `numbers` belong to `units`, ascending. Units: bytes."""

    segment: Segment
    positions: Int64s
    numbers: Int64s
    units: Units


@dataclass(frozen=True)
class AllUnits:
    """All sound units of a table, as arrays of the same length.

    Shape: `files` are the table's files; `file_numbers` is the index of each unit's file. Order: number.
    """

    files: tuple[Segment, ...]
    file_numbers: Int64s
    positions: Int64s
    numbers: Int64s
    units: Units

    def values(self, name: str) -> Int64s:
        """Return a field of every unit."""
        return self.units[name].astype(np.int64)

    @cached_property
    def offsets(self) -> Int64s:
        """Commit-log offset of every unit's record."""
        return self.values("commit_log_offset")

    def __len__(self) -> int:
        return len(self.numbers)


_All = TypeVar("_All", bound=AllUnits)


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The files of one table: their directory, the layout of a unit, and the rule for sound units.

    `are_left_out`: which units a bundle left out: only their number is known. `expected`: the fields of a sound unit,
    as text.
    """

    directory: tuple[str, ...]
    layout: Layout
    are_sound: Callable[[Units], Bools]
    are_left_out: Callable[[Units], Bools]
    expected: str

    def segments(self, store: Store, findings: list[Finding]) -> tuple[Segment, ...]:
        """Return the files, in order. Damage: table-gap, stray-file, segment-size, segment-overlap, unreadable-file."""
        segments, found = list_segments([store.place(*self.directory)], store.root, lambda _: store.files)
        findings.extend(gaps_as("table-gap", found))
        return segments

    def exist(self, store: Store) -> bool:
        """Whether the table has a file; a directory alone does not count."""
        return bool(self.segments(store, []))

    def last(self, store: Store) -> tuple[int, Units] | None:
        """Return the number and value of the last used unit; None if there is none, or if it is not sound.

        Raises: UnreadableFile, FileChanged.
        """
        last = last_unit(store, self.segments(store, []), self.layout)
        return last if last is not None and self._kinds(last[1])[0].all() else None

    def units(self, store: Store, findings: list[Finding], coverage: list[Coverage]) -> Iterator[SoundUnits]:
        """Yield every sound unit, in blocks of one file; findings and coverage are complete at the end.

        Order:  number.
        Damage: table-entry-invalid for each run of damaged units; unreadable-file, and as `segments`.
        """
        size = self.layout.size_bytes
        scan = UnitScan(store, self.layout, INVALID, self.expected, self._kinds, findings, coverage)
        for block in scan.blocks(self.segments(store, findings)):
            rows = np.flatnonzero(block.sound)
            block.coverage.decoded_bytes += len(rows) * size
            if len(rows):
                positions = block.position + rows * size
                numbers = (block.segment.base_offset + positions) // size
                yield SoundUnits(block.segment, positions, numbers, block.units[rows])

    def reading(
        self, store: Store, schema: pa.Schema, rows: Callable[[Store, SoundUnits], pa.RecordBatch], writers: str
    ) -> Reading:
        """Return every sound unit as rows. `writers`: which brokers have such files, for a store without them.

        Damage: as `units`.
        """
        reading = Reading(schema, ())
        reading.batches = (rows(store, units) for units in self.units(store, reading.findings, reading.coverage))
        if not self.exist(store):
            why = f"{store.root} has no {'/'.join(self.directory[:2])}: {writers}"
            reading.notes.append(Note(NoteKind.WHY, why))
        return reading

    def all_units(self, store: Store, findings: list[Finding], kind: type[_All]) -> _All | None:
        """Return all sound units at once, as an instance of `kind`; None if there is no file.

        Units:  24 bytes of memory per unit, plus the unit's length.
        Damage: as `units`.
        """
        files = self.segments(store, [])
        if not files:
            return None
        blocks = list(self.units(store, findings, []))
        places = {segment.file: number for number, segment in enumerate(files)}
        none = np.empty(0, np.int64)
        return kind(
            files,
            np.concatenate([none, *(np.full(len(b.numbers), places[b.segment.file], np.int64) for b in blocks)]),
            np.concatenate([none, *(block.positions for block in blocks)]),
            np.concatenate([none, *(block.numbers for block in blocks)]),
            np.concatenate([np.empty(0, self.layout.dtype), *(block.units for block in blocks)]),
        )

    def _kinds(self, units: Units) -> tuple[Bools, Bools]:
        left_out = self.are_left_out(units)
        return self.are_sound(units) & ~left_out, left_out


def place_columns(store: Store, layout: Layout, units: SoundUnits) -> list[pa.Array]:
    """Return the place columns of units: store, file, position, length, number."""
    count = len(units.numbers)
    return [
        pa.repeat(pa.scalar(store.root, pa.string()), count),
        pa.repeat(pa.scalar(units.segment.file, pa.string()), count),
        pa.array(units.positions),
        pa.repeat(pa.scalar(layout.size_bytes, pa.int32()), count),
        pa.array(units.numbers),
    ]


def state_entries(store: Store, kind: str, units: AllUnits, half_offsets: Int64s, values: pa.Array) -> pa.Table:
    """Return units as rows of STATE_ENTRIES; `key` is a unit's number. Order: number."""
    columns = {
        "store": pa.repeat(pa.scalar(store.root, pa.string()), len(units)),
        "half_commit_log_offset": pa.array(half_offsets),
        "kind": pa.repeat(pa.scalar(kind, pa.string()), len(units)),
        "key": pa.array(units.numbers).cast(pa.string()),
        "value": values,
        "position_bytes": pa.array(units.positions),
    }
    return pa.Table.from_arrays([columns[name] for name in STATE_ENTRIES.names], schema=STATE_ENTRIES)
