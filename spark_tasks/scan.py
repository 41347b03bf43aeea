"""Any scan job over the splits of some stores, in Spark tasks: the same rows as `readers.job_runner` gives."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from readers.commit_log import last_with_data
from readers.job_runner import Tally
from readers.reading import Reading
from readers.scan_job import ScanJob, SplitResult
from readers.splits import SPLIT_BYTES, SplitPlan
from readers.store import Store
from readers.workers import Progress
from spark_tasks.progress import tracked
from spark_tasks.tasks import fetched, from_bytes, in_tasks, results, to_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMNS = "split int, is_rows boolean, data binary"


def run_job(
    spark: SparkSession,
    job: ScanJob,
    stores: list[Store],
    *,
    split_bytes: int = SPLIT_BYTES,
    from_offset: int | None = None,
    to_offset: int | None = None,
    progress: Progress | None = None,
) -> Reading:
    """The rows of a job over every split of some stores, then over every store.

    Units: bytes of the commit log. `progress` is told bytes.
    Order: none, between splits; what only a whole store shows comes last.
    """
    reading = Reading(job.schema, [], [finding for store in stores for finding in store.findings])
    reading.batches = _run(spark, job, stores, reading, (split_bytes, from_offset, to_offset), progress)
    return reading


def plan_in_tasks(
    spark: SparkSession, stores: list[Store], split_bytes: int, from_offset: int | None, to_offset: int | None
) -> SplitPlan:
    """The splits of some stores; the logs are read in tasks, not here."""
    last_bases = results(spark, last_with_data, [store.commit_log for store in stores])
    return SplitPlan(tuple(stores), tuple(last_bases), split_bytes, from_offset, to_offset)


def _run(
    spark: SparkSession,
    job: ScanJob,
    stores: list[Store],
    reading: Reading,
    bounds: tuple[int, int | None, int | None],
    progress: Progress | None,
) -> Iterator[pa.RecordBatch]:
    plan = plan_in_tasks(spark, stores, *bounds)
    tally = Tally(plan, reading)
    frame = in_tasks(spark, _SplitJob(job, plan), len(plan), _COLUMNS).persist()
    try:
        counted: set[int] = set()
        rows_bytes = 0
        with tracked(spark, plan.total_bytes, len(plan), progress):
            ends = frame.filter("not is_rows").select("split", "data").collect()
        for row in sorted(ends, key=lambda row: int(row["split"])):
            result, size = pickle.loads(row["data"])
            if tally.add(plan[row["split"]], result):
                counted.add(row["split"])
                rows_bytes += size
        if rows_bytes:
            for row in fetched(frame.filter("is_rows").select("split", "data"), rows_bytes, len(plan)):
                if row["split"] in counted:
                    yield from from_bytes(row["data"])
    finally:
        frame.unpersist()
    tasks = [(store, tally.carried[store.root]) for store in plan.stores]
    for result in results(spark, functools.partial(_of_store, job), tasks):
        reading.findings.extend(result.findings)
        yield from result.rows


class _SplitJob:
    """The job of one split: its rows as Arrow's bytes, then what else it said."""

    def __init__(self, job: ScanJob, plan: SplitPlan) -> None:
        self._job = job
        self._plan = plan

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        result = self._job.of_split(self._plan[number])
        size = 0
        if result.rows:
            data = to_bytes(result.rows)
            size = len(data)
            yield pa.RecordBatch.from_pydict({"split": [number], "is_rows": [True], "data": [data]}, _SCHEMA)
        end = pickle.dumps((replace(result, rows=[]), size))
        yield pa.RecordBatch.from_pydict({"split": [number], "is_rows": [False], "data": [end]}, _SCHEMA)


_SCHEMA = pa.schema([("split", pa.int32()), ("is_rows", pa.bool_()), ("data", pa.binary())])


def _of_store(job: ScanJob, task: tuple[Store, list[Any]]) -> SplitResult:
    return job.of_store(*task)
