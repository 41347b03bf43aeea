"""What the tasks of a scan count while it runs: Spark adds up the counts of each task that has ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from rmqtx.readers.log.segment_scan import Span
from rmqtx.spark_tasks.session.packages import is_connected

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class ScanCounts:
    """Counts for the progress bar: a task that Spark runs twice is counted twice. Results never depend on them."""

    _bytes: Accumulator[int]
    _records: Accumulator[int]
    _damaged_spans: Accumulator[int]

    @classmethod
    def of(cls, spark: SparkSession) -> Self | None:
        """Return counts that begin at 0; None with Spark Connect, which has none."""
        if is_connected(spark):
            return None
        return cls(*(spark.sparkContext.accumulator(0) for _ in range(3)))

    def add(self, bytes_count: int, spans: list[Span], records_count: int = 0) -> None:
        """Add what was read in a task; `records_count` is 0 if it was not counted."""
        self._bytes.add(bytes_count)
        self._records.add(records_count)
        self._damaged_spans.add(sum(span.kind == "damaged" for span in spans))

    @property
    def bytes_count(self) -> int:
        """The bytes that were read, in the driver."""
        return self._bytes.value

    @property
    def words(self) -> str:
        """The other counts in words."""
        counts = (self._records.value, "record"), (self._damaged_spans.value, "damaged span")
        return ", ".join(f"{count:,} {name}{'s' * (count > 1)}" for count, name in counts if count)
