"""The data source `rmqtx`: every table of a store as a DataFrame.

    spark.read.format("rmqtx").option("table", "transactions").load("/data/rocketmq/store")
    CREATE TEMPORARY VIEW halves USING rmqtx OPTIONS (table "halves", path "/evidence/*/store")

Spark's interface for data sources in Python has limits. It does not pass the columns that a query uses, so the option
`columns`, or a schema given to the reader, selects the columns to decode. A partition cannot state where its bytes
are, so tasks go to any executor. And conditions that are pushed down outlive their query (see `PushingReader`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.moments import timestamp_schema
from rmqtx.spark_tasks.session.errors import marked
from rmqtx.spark_tasks.session.schemas import arrow_schema, as_spark_batch, spark_schema
from rmqtx.spark_tasks.session.tasks import working
from rmqtx.spark_tasks.source.change_reader import ChangeStreamReader
from rmqtx.spark_tasks.source.derived_scans import AuditScan, IndexScan, QueueScan, StoreScan
from rmqtx.spark_tasks.source.log_scan import LogScan
from rmqtx.spark_tasks.source.pushdown import TableScan
from rmqtx.spark_tasks.source.read_options import (
    AUDIT_TABLES,
    CHANGE_TABLES,
    LOG_TABLES,
    SOURCE_TABLES,
    ReadOptions,
    opened,
    parse_options,
)
from rmqtx.spark_tasks.source.stream_reader import RmqtxStreamReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql.datasource import DataSourceStreamReader, Filter

    from rmqtx.readers.store.store import Store


class RmqtxDataSource(DataSource):
    """The data source, with the options of `rmqtx.spark_tasks.source.read_options.OPTIONS`."""

    @classmethod
    def name(cls) -> str:
        """The name for `format` and `USING`."""
        return "rmqtx"

    def schema(self) -> StructType:
        """The columns of the requested table, with a comment each. Raises: BadRequest."""
        with marked():
            return spark_schema(parse_options(self.options).frame_schema)

    def reader(self, schema: StructType) -> RmqtxReader:
        """Return the reader of a table. Raises: BadRequest, NotAStore, UnreadableFile."""
        with marked():
            options = with_schema(parse_options(self.options), schema)
            if options.table in CHANGE_TABLES:
                raise BadRequest(
                    f"the table {options.table} is only a stream", advice="use spark.readStream in place of spark.read"
                )
            reader = PushingReader if options.pushes_filters else RmqtxReader
            return reader(_scan(options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the stream reader of a table. Raises: BadRequest."""
        with marked():
            options = with_schema(parse_options(self.options), schema)
            reader = ChangeStreamReader if options.table in CHANGE_TABLES else RmqtxStreamReader
            return reader(options, schema)


def with_schema(options: ReadOptions, schema: StructType) -> ReadOptions:
    """Return the options with the columns of a query's schema, which must be columns of the table with their types.

    Raises: BadRequest.
    """
    whole = SOURCE_TABLES[options.table]
    table = spark_schema(timestamp_schema(whole) if options.has_timestamps else whole)
    kinds = {field.name: field.dataType for field in table}
    for field in schema:
        if field.name not in kinds:
            raise BadRequest(f"no column {field.name!r} in {options.table}", advice=f"columns: {', '.join(kinds)}")
        if arrow_schema(_one(field)).types != arrow_schema(_one(table[field.name])).types:
            raise BadRequest(f"{field.name} is {kinds[field.name].simpleString()}, not {field.dataType.simpleString()}")
    read = [name if name in whole.names else f"{name}_ms" for name in schema.fieldNames()]
    return replace(options, columns=tuple(read))


def _one(field: Any) -> StructType:
    return StructType([field])


def _scan(options: ReadOptions) -> TableScan:
    stores = opened(options)
    if options.table in LOG_TABLES:
        return LogScan(options, stores)
    if options.table in AUDIT_TABLES:
        return AuditScan(options, stores)
    scans: dict[str, Callable[[ReadOptions, list[Store]], TableScan]] = {
        "queue_slots": QueueScan,
        "index_entries": IndexScan,
    }
    return scans.get(options.table, StoreScan)(options, stores)


@dataclass(frozen=True)
class NumberedPartition(InputPartition):
    """One task of a scan. The scan is sent once, with the reader."""

    number: int


class RmqtxReader(DataSourceReader):
    """Reads one table without a session: `partitions()` plans, `read()` returns Arrow record batches."""

    def __init__(self, scan: TableScan, schema: StructType) -> None:
        self._scan = scan
        self._schema = arrow_schema(schema)

    def partitions(self) -> list[InputPartition]:
        """Return one partition for each task."""
        with marked():
            return [NumberedPartition(number) for number in range(len(self._scan))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition. Raises: UnreadableFile, FileChanged; a missing row is always an error."""
        if not isinstance(partition, NumberedPartition):  # Spark's own partition if there is nothing to read
            return
        with working():
            for batch in self._scan.rows(partition.number):
                if len(batch):
                    yield as_spark_batch(batch, self._schema)


class PushingReader(RmqtxReader):
    """A reader that evaluates conditions of the query in place of Spark, for frames with a single query.

    Spark 4.3.0 keeps the pushed conditions of one query with the loaded frame or view, so that the next query without
    conditions on the same frame silently gets too few rows. So nothing is pushed unless the option is set.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take conditions that can be evaluated exactly; yield the others, which stay with Spark."""
        with marked():
            return self._scan.narrow(filters)
