"""Reads the new part of growing logs in Spark tasks, for the checkpoint of the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from rmqtx.readers.jobs.workers import Progress
from rmqtx.spark_tasks.session.errors import translated
from rmqtx.spark_tasks.session.progress import described
from rmqtx.spark_tasks.session.tasks import cores_count, results
from rmqtx.verdicts.follow.follower import MakeReader
from rmqtx.verdicts.follow.split_reader import SplitReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


class SparkPool:
    """Runs tasks on the executors of a session. See `rmqtx.verdicts.follow.split_reader.Pool`."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __enter__(self) -> SparkPool:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, function: Callable[[_Task], _Result], tasks: Iterable[_Task]) -> Iterator[_Result]:
        """Return the results, in the tasks' order.

        Raises: the error of a task; SparkUnavailable if Spark failed.
        """
        with translated(), described(self._spark, "audit: read what is new"):
            return iter(results(self._spark, function, list(tasks)))


def spark_reader(spark: SparkSession) -> MakeReader:
    """Return what makes a reader in tasks; the results of some splits for each core pass through the driver."""
    return partial(_reader, spark)


def _reader(spark: SparkSession, total_bytes: int, progress: Progress | None) -> SplitReader:
    return SplitReader(SparkPool(spark), cores_count(spark), progress=progress, total_bytes=total_bytes)
