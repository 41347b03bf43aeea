"""Run a scan job over the splits of some stores in Spark tasks: the same rows as `rmqtx.readers.jobs.job_runner`."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from rmqtx.readers.jobs.job_runner import ScanJob, Tally, of_store
from rmqtx.readers.jobs.workers import Progress
from rmqtx.readers.log.commit_log import WrittenEnd
from rmqtx.readers.log.splits import SPLIT_BYTES, SplitPlan
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.store.store import Store
from rmqtx.spark_tasks.session.errors import translated
from rmqtx.spark_tasks.session.handover import HANDED, HANDED_COLUMNS, Handover, handover
from rmqtx.spark_tasks.session.progress import Phase, ScanCounts, described, tracked
from rmqtx.spark_tasks.session.tasks import Shared, cores_count, in_tasks, packed, results
from rmqtx.verdicts.follow.follower import MakeReader
from rmqtx.verdicts.follow.split_reader import SplitReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


def run_job(
    spark: SparkSession, job: ScanJob, stores: list[Store], *, split_bytes: int = SPLIT_BYTES,
    from_offset: int | None = None, to_offset: int | None = None, progress: Progress | None = None,
) -> Reading:
    """Return the rows of a job over every split of some stores, then over every store.

    Units: bytes of the commit log. `progress` receives bytes.
    Order: none, between splits; rows that need a whole store come last.
    """
    reading = Reading(job.schema, [], [finding for store in stores for finding in store.findings])
    reading.batches = _run(spark, job, stores, reading, (split_bytes, from_offset, to_offset), progress)
    return reading


def plan_in_tasks(
    spark: SparkSession, stores: list[Store], split_bytes: int, from_offset: int | None, to_offset: int | None
) -> SplitPlan:
    """Return the splits of some stores; the logs are read in tasks, not in the driver."""
    ends = results(spark, WrittenEnd.of, [store.commit_log for store in stores])
    return SplitPlan(tuple(stores), tuple(ends), split_bytes, from_offset, to_offset)


def _run(
    spark: SparkSession, job: ScanJob, stores: list[Store], reading: Reading,
    bounds: tuple[int, int | None, int | None], progress: Progress | None,
) -> Iterator[pa.RecordBatch]:
    plan = plan_in_tasks(spark, stores, *bounds)
    tally = Tally(plan, reading)
    with handover(spark) as way:
        packs = packed(spark, plan.sizes_bytes)
        counts = None if progress is None else ScanCounts.of(spark)
        task = _SplitJob(job, Shared.of(plan), way, counts)
        phase = Phase("reading", len(packs), plan.total_bytes, counts)
        frame = way.keeps(in_tasks(spark, task, packs, f"{HANDED_COLUMNS}, summary binary"))
        try:
            with described(spark, "scan the logs"), tracked(spark, phase, progress):
                ends = frame.filter(frame["summary"].isNotNull()).select("number", "summary").collect()
            sizes_bytes = {}
            for row in sorted(ends, key=lambda row: int(row["number"])):
                result, size_bytes = pickle.loads(row["summary"])
                if tally.add(plan[row["number"]], result) and size_bytes:
                    sizes_bytes[row["number"]] = size_bytes
            yield from way.taken(frame, sizes_bytes)
        finally:
            frame.unpersist()
    tasks = [(store, tally.carried[store.root]) for store in plan.stores]
    for result in results(spark, functools.partial(of_store, job), tasks):
        reading.findings.extend(result.findings)
        yield from result.rows


@dataclass(frozen=True, slots=True)
class _SplitJob:
    """The job of one split: its rows are handed over, then its other results."""

    job: ScanJob
    plan: Shared[SplitPlan]
    way: Handover
    counts: ScanCounts | None

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        result = self.job.of_split(self.plan.value[number])
        if self.counts is not None:
            self.counts.add(result.decoded_bytes, result.spans)
        size_bytes = 0
        for batch in self.way.give(number, result.rows):
            size_bytes += batch["size_bytes"][0].as_py()
            yield batch.append_column(_SUMMARY, pa.nulls(batch.num_rows, _SUMMARY.type))
        summary = pickle.dumps((replace(result, rows=[]), size_bytes))
        yield pa.RecordBatch.from_pylist([{"number": number, "summary": summary}], pa.schema([*HANDED, _SUMMARY]))


_SUMMARY = pa.field("summary", pa.binary())


class SparkPool:
    """Runs tasks on the executors of a session. See `rmqtx.verdicts.follow.split_reader.Pool`."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __enter__(self) -> SparkPool:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, function: Callable[[_Task], _Result], tasks: Iterable[_Task]) -> Iterator[_Result]:
        """Return the results, in the tasks' order. Raises: the error of a task; SparkUnavailable if Spark failed."""
        with translated(), described(self._spark, "audit: read what is new"):
            return iter(results(self._spark, function, list(tasks)))


def spark_reader(spark: SparkSession) -> MakeReader:
    """Return what makes a reader in tasks; the results of some splits for each core pass through the driver."""
    return partial(_reader, spark)


def _reader(spark: SparkSession, total_bytes: int, progress: Progress | None) -> SplitReader:
    return SplitReader(SparkPool(spark), cores_count(spark), progress=progress, total_bytes=total_bytes)
