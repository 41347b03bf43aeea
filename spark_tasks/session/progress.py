"""How far a Spark job has come, from Spark's own status tracker, told to whoever shows it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from readers.jobs.workers import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Often enough for an eye.
_INTERVAL_SECONDS = 0.3


@runtime_checkable
class CountsTasks(Protocol):
    """A progress that shows tasks beside bytes."""

    def count_tasks(self, done: int, total: int) -> None:
        """So many tasks are done, of so many."""


@contextmanager
def tracked(spark: SparkSession, total_bytes: int, tasks_count: int, progress: Progress | None) -> Iterator[None]:
    """Tells the progress, while the block runs, how many bytes are read: those of the tasks that are done.

    The block runs a job with a stage of so many tasks, which read about as many bytes each.
    With Spark Connect nothing is told: it has no status tracker.
    """
    context = None if progress is None or not tasks_count else _spark_context(spark)
    if progress is None or context is None:
        yield
        return
    ended = threading.Event()
    watcher = threading.Thread(
        target=_watch, args=(context, total_bytes, tasks_count, progress, ended), name="rmqtx-progress", daemon=True
    )
    _tell(progress, total_bytes, 0, tasks_count)
    watcher.start()
    try:
        yield
        _tell(progress, total_bytes, tasks_count, tasks_count)
    finally:
        ended.set()
        watcher.join()


def _watch(
    context: Any, total_bytes: int, tasks_count: int, progress: Progress, ended: threading.Event
) -> None:
    from py4j.protocol import Py4JError

    tracker = context.statusTracker()
    done_before = 0
    while not ended.wait(_INTERVAL_SECONDS):
        try:
            done = _done_count(tracker, tasks_count)
        except (Py4JError, OSError):
            return  # the JVM is gone: the block itself fails with that, and says so
        if done > done_before and not ended.is_set():
            _tell(progress, total_bytes, done, tasks_count)
            done_before = done


def _done_count(tracker: Any, tasks_count: int) -> int:
    """How many tasks are done of the running stage that has so many."""
    jobs = (tracker.getJobInfo(number) for number in tracker.getActiveJobsIds())
    stages = (tracker.getStageInfo(number) for job in jobs if job is not None for number in job.stageIds)
    return max(
        (stage.numCompletedTasks for stage in stages if stage is not None and stage.numTasks == tasks_count), default=0
    )


def _tell(progress: Progress, total_bytes: int, done_count: int, tasks_count: int) -> None:
    progress(total_bytes * done_count // tasks_count, total_bytes)
    given: object = progress
    if isinstance(given, CountsTasks):
        given.count_tasks(done_count, tasks_count)


def _spark_context(spark: SparkSession) -> Any:
    """The driver's context in this process; None with Spark Connect, where it is elsewhere."""
    from pyspark.errors import PySparkAttributeError

    try:
        return spark.sparkContext
    except PySparkAttributeError:
        return None
