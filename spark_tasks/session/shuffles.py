"""The number of tasks of Spark's own shuffles, by the size of what they move."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PARTITIONS = "spark.sql.shuffle.partitions"
_ADAPTIVE = "spark.sql.adaptive.enabled"


@contextmanager
def shuffles_of(spark: SparkSession, tasks_count: int) -> Iterator[None]:
    """Give joins and groups of the block at least `tasks_count` tasks, where Spark would not choose this number.

    Adaptive execution merges small tasks, and never makes more of them than the setting. Without adaptive execution
    the block has exactly `tasks_count`. The setting of the session is restored at the end.
    """
    given = str(spark.conf.get(_PARTITIONS))
    is_adaptive = str(spark.conf.get(_ADAPTIVE)).lower() == "true"
    spark.conf.set(_PARTITIONS, str(max(int(given), tasks_count) if is_adaptive else tasks_count))
    try:
        yield
    finally:
        spark.conf.set(_PARTITIONS, given)
