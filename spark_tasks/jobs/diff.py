"""Compare two audits on Spark: both are narrowed by Spark, then compared bucket by bucket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Observation
from pyspark.sql import functions as sql

from rmqtx.readers.model.reading import Reading
from rmqtx.readers.store.store import Store
from rmqtx.spark_tasks.jobs.audit import Judged, transactions, unread_in
from rmqtx.spark_tasks.jobs.verdicts import UNREAD
from rmqtx.spark_tasks.session.progress import described
from rmqtx.spark_tasks.session.schemas import spark_schema
from rmqtx.spark_tasks.session.tasks import shuffles_of, working
from rmqtx.verdicts.evidence.store_facts import SettingsOf
from rmqtx.verdicts.model.reading import VerdictReading
from rmqtx.verdicts.model.verdict_words import EVIDENCE
from rmqtx.verdicts.transactions.diff import DIFFERENCES, NARROW, different

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession

#: One call of the comparison holds one bucket of both sides in memory: the transactions that one task judges, or less.
BUCKETS_MIN = 64
_BUCKET = "bucket"


def differences(
    spark: SparkSession, before: tuple[list[Store], int | None], after: tuple[list[Store], int | None],
    settings_of: SettingsOf, *, split_bytes: int | None = None, sizes: list[int] | None = None,
) -> Reading:
    """Return the rows of `rmqtx.verdicts.transactions.diff.differences` for two audits, each of stores at some time.

    Order: none. `sizes`: receives the number of transactions of each side, before the first row.
    """
    reading = VerdictReading(DIFFERENCES, [])
    with ExitStack() as kept:
        sides: list[Judged] = []
        for stores, at_ms in (before, after):
            sides.append(
                transactions(spark, stores, settings_of, at_ms=at_ms, split_bytes=split_bytes, reading=reading)
            )
            kept.callback(sides[-1].release)
        tasks_count = max(side.tasks_count for side in sides)
        observed = [Observation(), Observation()]
        measures = sql.count("*").alias("rows"), sql.count(UNREAD.name).alias("unread")
        counted = [side.frame.observe(one, *measures) for side, one in zip(sides, observed, strict=True)]
        grouped = [narrowed(side, max(BUCKETS_MIN, tasks_count)).groupBy(_BUCKET) for side in counted]
        found = grouped[0].cogroup(grouped[1]).applyInArrow(_different, spark_schema(DIFFERENCES))
        reading.batches = _rows(found, sides, [] if sizes is None else sizes, observed, kept.pop_all(), reading)
    return reading


def narrowed(verdicts: DataFrame, buckets_count: int) -> DataFrame:
    """Return verdicts without the columns that are not compared, with their bucket."""
    counts = [sql.size(name).cast("long").alias(f"{name}_count") for name in EVIDENCE]
    plain = [name for name in NARROW.names if not name.endswith("_count")]
    bucket = sql.pmod(sql.xxhash64("transaction_id"), sql.lit(buckets_count)).alias(_BUCKET)
    return verdicts.select(*plain, *counts, bucket)


def _different(before: pa.Table, after: pa.Table) -> pa.Table:
    with working():
        return different(*(side.select(NARROW.names).cast(NARROW) for side in (before, after)))


def _rows(
    frame: DataFrame, sides: list[Judged], sizes: list[int], observed: list[Observation], kept: ExitStack,
    reading: VerdictReading,
) -> Iterator[pa.RecordBatch]:
    spark = frame.sparkSession
    tasks_count = max(side.tasks_count for side in sides)
    with kept, shuffles_of(spark, tasks_count), described(spark, "diff: compare the audits"):
        table = frame.toArrow().select(DIFFERENCES.names).cast(DIFFERENCES)
        for side, one in zip(sides, observed, strict=True):
            if one.get["unread"]:  # rare: the transactions are judged again
                reading.add_findings(unread_in(side.frame))
    sizes[:] = [int(one.get["rows"]) for one in observed]
    yield from table.to_batches()
