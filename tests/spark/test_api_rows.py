"""Spark reads the rows of the library, and `rmqtx.spark` gives the same ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import rmqtx
import rmqtx.spark
from rmqtx.spark import audit
from tests.conftest import READ_AT_MS
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


def listed(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def test_the_words_of_the_library_on_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    here = rmqtx.open(unpacked("common-5.3.3"))
    with rmqtx.spark.open(unpacked("common-5.3.3"), spark=spark) as there:
        stores, settings_of = there._open()
        as_here = [replace(one, taken_time_ms=min(one.taken_time_ms, READ_AT_MS)) for one in stores]  # in workers too
        monkeypatch.setattr(there, "_open", lambda: (as_here, settings_of))
        for name in ("verify", "diagnose"):
            expected, rows = getattr(here, name)(), getattr(there, name)()
            assert listed(rows.to_arrow()) == listed(expected.to_arrow()), name
            assert (rows.status, rows.is_complete) == (expected.status, expected.is_complete)
        for name in ("audit", "ops", "pending"):
            expected, frame = getattr(here, name)(), getattr(there, name)().frame()
            assert frame.columns == expected.schema.names
            assert listed(frame.toArrow().cast(expected.schema)) == listed(expected.to_arrow()), name
        pending = there.pending()
        assert {one.transaction_id for one in pending} == {one.transaction_id for one in here.pending()}
