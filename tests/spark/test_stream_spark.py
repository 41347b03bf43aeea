"""The stream in Spark: a query that is stopped and started from its checkpoint gives each record once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.model.errors import FileChanged
from rmqtx.readers.store.store import HALF_TOPIC, open_store
from rmqtx.spark_tasks.session.errors import translated
from tests.forge.stores import unpacked
from tests.spark.growing import Growing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def follow(spark: SparkSession, root: Path, tmp_path: Path, max_bytes: str) -> int:
    """Run the query until nothing new is there; gives how many batches it took."""
    frame = (
        spark.readStream.format("rmqtx")
        .options(table="halves", columns="commit_log_offset,transaction_id", split_size="16KiB")
        .option("max_bytes_per_batch", max_bytes)
        .load(str(root))
    )
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "rows"))
    )
    query.awaitTermination()
    return len([progress for progress in query.recentProgress if progress.numInputRows])


def test_a_query_started_again_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    growing = Growing(unpacked("killed-5.3.3"), tmp_path / "copy")
    batches = 0
    for moment in growing.moments(3, 1):
        growing.write_to(moment)
        batches += follow(spark, growing.root, tmp_path, "40KiB")
    assert batches > 3
    rows = spark.read.parquet(str(tmp_path / "rows")).collect()
    halves = scan_records(open_store(growing.whole), topic=HALF_TOPIC).table()
    assert sorted(row.commit_log_offset for row in rows) == halves["commit_log_offset"].to_pylist()


def test_a_store_that_lost_its_unread_begin_stops_the_query(spark: SparkSession, tmp_path: Path) -> None:
    growing = Growing(unpacked("killed-5.3.3"), tmp_path / "copy")
    growing.write_to(20_000)
    follow(spark, growing.root, tmp_path, "1MiB")
    growing.write_to(growing.end)
    for segment in open_store(growing.root).commit_log[:2]:
        Path(segment.file).unlink()
    with pytest.raises(FileChanged, match="no longer exist, and the stream has not read them"), translated():
        follow(spark, growing.root, tmp_path, "1MiB")
