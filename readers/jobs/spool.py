"""Rows stored by partition: in memory for small stores, in files of a temporary directory for large ones.

A partition holds whole transactions, because it is chosen by the transaction's identity only.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa

from readers.model.columns import Int64s


class Spool:
    """Tables by name and partition.

    Shape: `add` takes rows with a partition number each; `part(name, number)` returns the rows of one partition.
    """

    def __init__(self, partitions_count: int, directory: Path | None) -> None:
        self.partitions_count = partitions_count
        self.directory = directory
        self._tables: dict[str, list[pa.Table]] = defaultdict(list)
        self._files: dict[str, list[Path]] = defaultdict(list)

    def add(self, name: str, batches: Iterable[pa.RecordBatch], numbers: Int64s, file_stem: str) -> None:
        """Store rows. `numbers`: the partition of each row. `file_stem` is unique per name and call."""
        table = pa.Table.from_batches(list(batches))
        if self.directory is None:
            self._tables[name].append(table)
            return
        order = np.argsort(numbers, kind="stable")
        table = table.take(pa.array(order))
        bounds = np.searchsorted(numbers[order], np.arange(self.partitions_count + 1)).tolist()
        path = self.directory / f"{name}-{file_stem}.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            for low, high in itertools.pairwise(bounds):
                part = table.slice(low, high - low).combine_chunks().to_batches()
                writer.write_batch(part[0] if part else _empty(table.schema))
        self._files[name].append(path)

    def merge(self, other: Spool) -> None:
        """Take over the rows of another spool with the same partitions."""
        for name, tables in other._tables.items():
            self._tables[name].extend(tables)
        for name, files in other._files.items():
            self._files[name].extend(files)

    def part(self, name: str, number: int) -> list[pa.RecordBatch]:
        """Return the rows of one partition, in the order in which they were added."""
        if self.directory is None:
            return [batch for table in self._tables[name] for batch in table.to_batches()]
        batches = []
        for path in self._files[name]:
            with pa.memory_map(str(path)) as file:
                batches.append(pa.ipc.open_file(file).get_batch(number))
        return batches


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


