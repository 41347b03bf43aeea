"""The data source as a stream: `spark.readStream.format("rmqtx")` over stores that grow.

A batch is a range of commit-log offsets per store, so a query that is restarted from its checkpoint continues exactly
where it stopped. The limits are those of `rmqtx.readers.jobs.growing_logs`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from rmqtx.readers.jobs.growing_logs import Offsets, blocks_between, initial_offsets, latest_offsets, splits_between
from rmqtx.readers.log.splits import Split
from rmqtx.readers.model.errors import BadRequest
from rmqtx.spark_tasks.session.errors import marked
from rmqtx.spark_tasks.session.schemas import arrow_schema, as_spark_batch
from rmqtx.spark_tasks.source.log_scan import conditions_of, rows_of_split
from rmqtx.spark_tasks.source.read_options import CHANGE_TABLES, LOG_TABLES, ReadOptions, opened

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class SplitPartition(InputPartition):
    """One task of a batch."""

    split: Split


class RmqtxStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the tables records, halves, ops or traces while brokers write."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        if options.table not in LOG_TABLES:
            names = ", ".join(sorted(LOG_TABLES | CHANGE_TABLES))
            raise BadRequest(
                f"the table {options.table} cannot be streamed", advice=f"tables that can be streamed: {names}"
            )
        self._options = options
        self._schema = arrow_schema(schema)
        self._target: Offsets | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802
        """Return where a new query begins: the begin of each log, or the first record from the option `from` on."""
        with marked():
            return initial_offsets(opened(self._options), self._options.from_offset or 0)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the option `max_bytes_per_batch`."""
        return ReadMaxBytes(self._options.max_bytes_per_batch)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        """Return how far the next batch may go. Raises: FileChanged, UnreadableFile."""
        with marked():
            max_bytes = None if isinstance(limit, ReadAllAvailable) else self._options.max_bytes_per_batch
            if isinstance(limit, ReadMaxBytes):
                max_bytes = limit.max_bytes
            latest = self._latest(start, max_bytes)
            return {root: self._bounded(root, place, start.get(root, 0)) for root, place in latest.items()}

    def _bounded(self, root: str, place: int, start: int) -> int:
        target = place if self._target is None else self._target.get(root, start)
        to_offset = place if self._options.to_offset is None else self._options.to_offset
        return max(start, min(place, target, to_offset))

    def _latest(self, start: Offsets, max_bytes: int | None) -> Offsets:
        return latest_offsets(opened(self._options), start, max_bytes, skips_lost=not self._options.fails_on_data_loss)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the current end of the logs as the end of the query."""
        with marked():
            self._target = self._latest({}, None)

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        """Return the splits of a batch. Raises: FileChanged."""
        with marked():
            stores = opened(self._options)
            skips_lost = not self._options.fails_on_data_loss
            splits = splits_between(stores, start, end, self._options.split_bytes, skips_lost=skips_lost)
            return [SplitPartition(split) for split in splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one split. Raises: UnreadableFile, FileChanged."""
        if not isinstance(partition, SplitPartition):
            return
        with marked():
            blocks = blocks_between(partition.split)
            for batch in rows_of_split(partition.split, blocks, self._options, conditions_of(self._options)):
                yield as_spark_batch(batch, self._schema)
