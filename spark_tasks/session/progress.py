"""Report the progress of a Spark job from Spark's status tracker, and describe jobs in Spark's web UI."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from readers.jobs.workers import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Interval of updates.
_INTERVAL_SECONDS = 0.3
_DESCRIPTION = "spark.job.description"


@runtime_checkable
class CountsTasks(Protocol):
    """A progress that shows tasks beside bytes."""

    def count_tasks(self, done: int, total: int) -> None:
        """Receive the number of finished tasks and the total."""


@contextmanager
def described(spark: SparkSession, text: str) -> Iterator[None]:
    """Give the jobs of the block a description, for the pages of Spark's web UI; not with Spark Connect."""
    context = _spark_context(spark)
    if context is None:
        yield
        return
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, f"rmqtx {text}")
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)


@contextmanager
def tracked(spark: SparkSession, total_bytes: int, tasks_count: int, progress: Progress | None) -> Iterator[None]:
    """Report to the progress, while the block runs, the bytes that finished tasks have read.

    The block runs a job with a stage of `tasks_count` tasks, which read about the same number of bytes each.
    With Spark Connect nothing is reported: it has no status tracker.
    """
    context = None if progress is None or not tasks_count else _spark_context(spark)
    if progress is None or context is None:
        yield
        return
    ended = threading.Event()
    watcher = threading.Thread(
        target=_watch, args=(context, total_bytes, tasks_count, progress, ended), name="rmqtx-progress", daemon=True
    )
    _report(progress, total_bytes, 0, tasks_count)
    watcher.start()
    try:
        yield
        _report(progress, total_bytes, tasks_count, tasks_count)
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
            return  # the JVM has ended: the block fails with an error
        if done > done_before and not ended.is_set():
            _report(progress, total_bytes, done, tasks_count)
            done_before = done


def _done_count(tracker: Any, tasks_count: int) -> int:
    """Return the number of finished tasks of the running stage with `tasks_count` tasks."""
    jobs = (tracker.getJobInfo(number) for number in tracker.getActiveJobsIds())
    stages = (tracker.getStageInfo(number) for job in jobs if job is not None for number in job.stageIds)
    return max(
        (stage.numCompletedTasks for stage in stages if stage is not None and stage.numTasks == tasks_count), default=0
    )


def _report(progress: Progress, total_bytes: int, done_count: int, tasks_count: int) -> None:
    progress(total_bytes * done_count // tasks_count, total_bytes)
    given: object = progress
    if isinstance(given, CountsTasks):
        given.count_tasks(done_count, tasks_count)


def _spark_context(spark: SparkSession) -> Any:
    """Return the driver's context in this process; None with Spark Connect."""
    from pyspark.errors import PySparkAttributeError

    try:
        return spark.sparkContext
    except PySparkAttributeError:
        return None
