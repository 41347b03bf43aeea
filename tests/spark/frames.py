"""Tables through the data source without a session, as Spark's planner and workers call it, and the local engine's."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict, Filter

from rmqtx.readers.cursors import read_cursors
from rmqtx.readers.index.index_scan import scan_entries
from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.log.transaction_records import scan_halves, scan_ops
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.model.tables import findings_table
from rmqtx.readers.rocksdb.rocksdb_queue_scan import scan_all_slots
from rmqtx.readers.store.checkpoint import read_checkpoint
from rmqtx.readers.store.store import Store, open_store
from rmqtx.readers.traces import scan_traces
from rmqtx.spark_tasks.data_source import RmqtxDataSource, RmqtxReader
from rmqtx.spark_tasks.session.schemas import arrow_schema
from rmqtx.spark_tasks.source.derived_scans import read_segments
from rmqtx.spark_tasks.source.read_options import Settings, parse_options
from rmqtx.verdicts.audit.local_audit import audit

Row = dict[str, Any]


def reader_of(filters: Sequence[Filter] = (), **options: str) -> tuple[RmqtxReader, list[Filter], pa.Schema]:
    """A reader on its way from the planner to a worker, the filters that stay with Spark, and its Arrow schema."""
    if filters:
        options["push_filters"] = "true"
    source = pickle.loads(pickle.dumps(RmqtxDataSource(CaseInsensitiveDict(options))))
    reader = source.reader(source.schema())
    left = list(reader.pushFilters(list(filters)))
    return reader, left, arrow_schema(source.schema())


def through_the_source(filters: Sequence[Filter] = (), **options: str) -> tuple[pa.Table, int]:
    """The table's rows in the order of the tasks, and how many tasks there are."""
    reader, _, schema = reader_of(filters, **options)
    partitions = reader.partitions()
    worker = pickle.loads(pickle.dumps(reader))
    batches = [batch for partition in partitions for batch in worker.read(pickle.loads(pickle.dumps(partition)))]
    return pa.Table.from_batches(batches, schema), len(partitions)


def _audited(store: Store) -> Reading:
    return audit([store], Settings(parse_options({"path": store.root})))


def _findings(store: Store) -> pa.Table:
    reading = _audited(store)
    reading.table()
    return findings_table(reading.findings)


def _coverage(store: Store) -> pa.Table:
    reading = _audited(store)
    reading.table()
    return reading.coverage_table()


LOCAL: dict[str, Callable[[Store], pa.Table]] = {
    "records": lambda store: scan_records(store).table(),
    "halves": lambda store: scan_halves(store).table(),
    "ops": lambda store: scan_ops(store).table(),
    "traces": lambda store: scan_traces(store).table(),
    "queue_slots": lambda store: scan_all_slots(store).table(),
    "index_entries": lambda store: scan_entries(store).table(),
    "cursors": lambda store: read_cursors(store).table(),
    "checkpoint": lambda store: read_checkpoint(store).table(),
    "segments": lambda store: read_segments(store).table(),
    "transactions": lambda store: _audited(store).table(),
    "findings": _findings,
    "coverage": _coverage,
}


def locally(table: str, root: str) -> pa.Table:
    """The same table by the local engine."""
    return LOCAL[table](open_store(root))


def rows_of(table: pa.Table) -> list[str]:
    """Rows in an order that does not depend on who made them."""
    return sorted(repr(row) for row in table.to_pylist())
