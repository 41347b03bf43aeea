"""Spark reads the rows of the library, and `rmqtx.spark` gives the same ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

import rmqtx
from rmqtx.spark import audit
from tests.forge.stores import unpacked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_gets_the_rows_of_the_library(spark: SparkSession) -> None:
    rows = rmqtx.open(unpacked("common-5.3.3")).audit()
    columns = ["transaction_id", "state", "checks_count", "flags"]
    expected = sorted(
        (one.transaction_id, str(one.state), one.checks_count, list(one.flags)) for one in rows
    )
    frame = spark.createDataFrame(pa.table(rows)).select(columns)
    assert sorted(tuple(one) for one in frame.collect()) == expected
    with audit(unpacked("common-5.3.3")) as found:
        assert sorted(tuple(one) for one in found.transactions.select(columns).collect()) == expected
