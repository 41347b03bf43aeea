"""The tables of the pipeline: records, halves and changed verdicts as streams, and the history of the verdicts."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
STORE = spark.conf.get("spark.rmqtx.store")
CHECKPOINT = spark.conf.get("spark.rmqtx.checkpoint")


def stream(table: str, **options: str) -> DataFrame:
    """Return a table of the store as a stream."""
    return spark.readStream.format("rmqtx").options(table=table, timestamps="true", **options).load(STORE)


@dp.table
def records() -> DataFrame:
    """Return the records of the commit log, without their bodies."""
    return stream("records").drop("body", "body_crc_matches")


@dp.table
def halves() -> DataFrame:
    """Return the half copies."""
    return stream("halves")


@dp.table
def verdict_changes() -> DataFrame:
    """Return each verdict that was new or changed."""
    return stream("verdict_changes", checkpoint=CHECKPOINT)
