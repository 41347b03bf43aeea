"""The interface of a table in the data source: its tasks, and the rows of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from rmqtx.readers.model.errors import UnreadableFile
from rmqtx.readers.model.reading import Reading
from rmqtx.spark_tasks.source.pushdown import PushedConditions, narrowed

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter


class TableScan(Protocol):
    """A table as tasks. It is sent to the workers, so it is small and can be pickled."""

    def narrow(self, filters: Iterable[Filter]) -> list[Filter]:
        """Take conditions of a query that can be evaluated exactly; return the others, for Spark."""

    def __len__(self) -> int:
        """Return the number of tasks. Reads directories, no file."""

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task, with at least the requested columns.

        Raises: UnreadableFile, FileChanged: a file that cannot be read is an error, not fewer rows.
        """


class Narrowing:
    """A scan that evaluates conditions on the columns `conditioned`, which are never null."""

    conditioned: frozenset[str] = frozenset()

    def __init__(self, conditions: PushedConditions) -> None:
        self.conditions = conditions

    def narrow(self, filters: Iterable[Filter]) -> list[Filter]:
        """Take conditions of a query that can be evaluated exactly; return the others, for Spark."""
        self.conditions, left = narrowed(self.conditions, filters, self.conditioned)
        return left


def whole(reading: Reading) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a reading.

    Raises: UnreadableFile if a finding of the reading reports a file that could not be read.
    """
    yield from reading
    for finding in reading.findings:
        if finding.code == "unreadable-file":
            message = finding.actual or f"cannot read {finding.file}"
            raise UnreadableFile(message, file=finding.file, position_bytes=finding.position_bytes)
