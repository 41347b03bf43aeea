"""Progress of a Spark job: bytes and tasks, from the status tracker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from spark_tasks.session import progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Watcher:
    """A progress that remembers what it was told."""

    def __init__(self) -> None:
        self.bytes: list[tuple[int, int]] = []
        self.tasks: list[tuple[int, int]] = []

    def __call__(self, done: int, total: int) -> None:
        self.bytes.append((done, total))

    def count_tasks(self, done: int, total: int) -> None:
        self.tasks.append((done, total))


def _slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        time.sleep(0.4)
        yield batch


def test_bytes_and_tasks_rise_to_all(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_INTERVAL_SECONDS", 0.05)
    watcher = Watcher()
    with progress.tracked(spark, 7_000, 7, watcher):
        assert spark.range(0, 7, 1, 7).mapInArrow(_slow, "id long").count() == 7
    assert watcher.bytes == sorted(watcher.bytes)
    assert watcher.bytes[-1] == (7_000, 7_000)
    assert watcher.tasks[-1] == (7, 7)
    assert len({done for done, _ in watcher.tasks} - {0, 7}) >= 2  # it was told on the way, not only at the end


def test_a_job_that_fails_is_not_said_to_be_done(spark: SparkSession) -> None:
    watcher = Watcher()
    with pytest.raises(ZeroDivisionError), progress.tracked(spark, 7_000, 7, watcher):
        raise ZeroDivisionError
    assert watcher.bytes == [(0, 7_000)]


def test_nobody_watches(spark: SparkSession) -> None:
    with progress.tracked(spark, 7, 7, None):
        assert spark.range(3).count() == 3
