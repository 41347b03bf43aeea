"""Rows stored by partition: in memory for small stores, in files of a temporary directory for large ones.

A partition holds whole transactions, because it is chosen by the transaction's identity only. A file has one Arrow
message for each partition; their positions are kept in memory, since a footer would be parsed for each part.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Int64s


@dataclass(frozen=True, slots=True)
class _File:
    """One file: a message for each partition, without the columns that have one value in all rows of the file.

    `positions`: where the message of each partition begins, and the end of the last; an empty partition has no bytes.
    """

    path: Path
    constants: Mapping[str, Any]
    positions: Int64s

    def part(self, number: int, schema: pa.Schema) -> list[pa.RecordBatch]:
        """Return the rows of one partition, without the constant columns. `schema`: without them too."""
        begin, end = self.positions[number : number + 2].tolist()
        if begin == end:
            return []
        with pa.OSFile(str(self.path)) as file:
            file.seek(begin)
            return [pa.ipc.read_record_batch(file.read_buffer(end - begin), schema)]


class Spool:
    """Tables by name and partition.

    Shape: `add` takes rows with a partition number each; `part(name, number)` returns the rows of one partition.
    """

    def __init__(self, partitions_count: int, directory: Path | None) -> None:
        self.partitions_count = partitions_count
        self.directory = directory
        self._tables: dict[str, list[pa.Table]] = defaultdict(list)
        self._files: dict[str, list[_File]] = defaultdict(list)
        self._schemas: dict[str, pa.Schema] = {}

    def add(self, name: str, batches: Iterable[pa.RecordBatch], numbers: Int64s, file_stem: str) -> None:
        """Store rows. `numbers`: the partition of each row. `file_stem` is unique per name and call."""
        table = pa.Table.from_batches(list(batches))
        if self.directory is None:
            self._tables[name].append(table)
            return
        constants = _constants(table)
        narrow = table.drop_columns(list(constants))
        # 16-bit numbers are sorted without comparisons.
        numbers = numbers.astype(np.uint16) if self.partitions_count <= 1 << 16 else numbers
        order = np.argsort(numbers, kind="stable")
        rows = _one_batch(narrow)
        rows = rows.take(pa.array(order)) if self.partitions_count > 1 else rows
        bounds = np.searchsorted(numbers[order], np.arange(self.partitions_count + 1)).tolist()
        path = self.directory / f"{name}-{file_stem}.arrow"
        positions = np.zeros(self.partitions_count + 1, np.int64)
        with pa.OSFile(str(path), "wb") as file:
            for number, (low, high) in enumerate(itertools.pairwise(bounds)):
                if high > low:  # a slice is written without the rows around it
                    file.write(rows.slice(low, high - low).serialize())
                positions[number + 1] = file.tell()
        self._files[name].append(_File(path, constants, positions))
        self._schemas[name] = table.schema

    def merge(self, other: Spool) -> None:
        """Take over the rows of another spool with the same partitions."""
        for name, tables in other._tables.items():
            self._tables[name].extend(tables)
        for name, files in other._files.items():
            self._files[name].extend(files)
        self._schemas |= other._schemas

    def part(self, name: str, number: int) -> list[pa.RecordBatch]:
        """Return the rows of one partition, in the order in which they were added."""
        if self.directory is None:
            return [batch for table in self._tables[name] for batch in table.to_batches()]
        files = self._files[name]
        if not files:
            return []
        whole = self._schemas[name]
        shared = _in_all([file.constants for file in files])
        others = [field for field in whole if field.name not in shared]
        # Files with the same columns are one table; a column that is constant in some files only is added to theirs.
        # So all rows become one batch, with one copy.
        tables = []
        for constants, same in itertools.groupby(files, key=lambda file: file.constants):
            narrow = pa.schema([field for field in whole if field.name not in constants])
            batches = [batch for file in same for batch in file.part(number, narrow)]
            if batches:
                tables.append(_widened(pa.Table.from_batches(batches, narrow), others, constants))
        rows = pa.concat_tables(tables) if tables else pa.schema(others).empty_table()
        return [_one_batch(_widened(rows, list(whole), shared))]


def _in_all(constants: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the columns that have one value in all rows of all files."""
    first, *more = constants
    return {
        name: value for name, value in first.items() if all(name in one and one[name] == value for one in more)
    }


def _constants(table: pa.Table) -> dict[str, object]:
    """Return the columns with one value in all rows, and this value; at least one column is left."""
    found: dict[str, object] = {}
    for name, column in zip(table.schema.names, table.columns, strict=True):
        if pa.types.is_nested(column.type):
            continue
        if column.null_count == len(column):
            found[name] = None
        elif not column.null_count and column[0].equals(column[len(column) - 1]):
            value = column[0]
            if pc.all(pc.equal(column, value)).as_py():
                found[name] = value.as_py()
    if len(found) == table.num_columns:  # a batch without columns has no rows
        found.popitem()
    return found


def _widened(table: pa.Table, fields: Sequence[pa.Field], constants: Mapping[str, Any]) -> pa.Table:
    """Return the rows with the given columns: those of the table, and constants."""
    if len(fields) == table.num_columns:
        return table
    columns = [
        pa.repeat(pa.scalar(constants[field.name], field.type), table.num_rows) if field.name in constants
        else table[field.name]
        for field in fields
    ]
    return pa.table(columns, schema=pa.schema(fields))


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([_one_array(column) for column in table.columns], schema=table.schema)


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays([pa.array([], column.type), *column.chunks])


def taken_batches(file: Path) -> Iterator[pa.RecordBatch]:
    """Read the batches of an Arrow file, then remove it."""
    with pa.memory_map(str(file)) as source:
        batches = pa.ipc.open_file(source)
        yield from (batches.get_batch(number) for number in range(batches.num_record_batches))
    file.unlink()
