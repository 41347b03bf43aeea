"""What the data source asks of a table: how many tasks it is, and the rows of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from readers.model.errors import UnreadableFile
from readers.model.reading import Reading
from spark_tasks.source.pushdown import PushedConditions, narrowed

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter


class TableScan(Protocol):
    """A table as tasks. It travels to where the bytes are read, so it is small and survives pickling."""

    def narrow(self, filters: Iterable[Filter]) -> list[Filter]:
        """Take over what can be taken of a query's conditions; gives those that Spark must keep."""

    def __len__(self) -> int:
        """How many tasks it is. Reads directories, no file."""

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        """The rows of one task, with at least the columns that were asked for.

        Raises: UnreadableFile, FileChanged: a file that cannot be read is never fewer rows without a word.
        """


class Narrowing:
    """A scan that takes conditions on some columns. `conditioned` are those, none of which is ever null."""

    conditioned: frozenset[str] = frozenset()

    def __init__(self, conditions: PushedConditions) -> None:
        self.conditions = conditions

    def narrow(self, filters: Iterable[Filter]) -> list[Filter]:
        """Take over what can be taken of a query's conditions; gives those that Spark must keep."""
        self.conditions, left = narrowed(self.conditions, filters, self.conditioned)
        return left


def whole(reading: Reading) -> Iterator[pa.RecordBatch]:
    """The batches of a reading.

    Raises: UnreadableFile where the reading told in a finding that a file could not be read.
    """
    yield from reading
    for finding in reading.findings:
        if finding.code == "unreadable-file":
            message = finding.actual or f"cannot read {finding.file}"
            raise UnreadableFile(message, file=finding.file, position_bytes=finding.position_bytes)
