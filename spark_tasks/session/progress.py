"""Describe Spark's jobs in its web UI, and report how far they are: from its status tracker, or from Spark Connect."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from py4j.protocol import Py4JError

from rmqtx.readers.jobs.workers import Progress, show_phase
from rmqtx.readers.log.segment_scan import Span
from rmqtx.spark_tasks.session.packages import is_connected

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import SparkSession

#: Interval of updates.
_INTERVAL_SECONDS = 0.3
_DESCRIPTION = "spark.job.description"


@contextmanager
def described(spark: SparkSession, text: str) -> Iterator[None]:
    """Give the jobs of the block a description, for the pages of Spark's web UI; not with Spark Connect."""
    if is_connected(spark):
        yield
        return
    context: Any = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, f"rmqtx {text}")
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)


@dataclass(frozen=True, slots=True)
class Phase:
    """What a block of Spark's jobs does; its main stage has `tasks_count` tasks.

    Shape: `total_bytes`: those that the stage reads, 0 if it reads no log. `counts`: what its tasks count; without
           them each task is taken to read the same number of bytes.
    """

    name: str
    tasks_count: int
    total_bytes: int = 0
    counts: ScanCounts | None = None

    def report(self, progress: Progress, done_count: int) -> None:
        """Report the tasks that have ended, and the bytes that they read."""
        found = ""
        done_bytes = self.total_bytes * done_count // self.tasks_count
        if self.counts is not None and done_count < self.tasks_count:
            done_bytes = min(self.counts.bytes_count, self.total_bytes)
            found = self.counts.words
        if self.total_bytes:
            progress(done_bytes, self.total_bytes)
        show_phase(progress, self.name, done_count, self.tasks_count, found)


@contextmanager
def tracked(spark: SparkSession, phase: Phase, progress: Progress | None) -> Iterator[None]:
    """Report to the progress, while the block runs, how many tasks of its main stage have ended."""
    if progress is None or not phase.tasks_count:
        yield
        return
    phase.report(progress, 0)
    with (_connected if is_connected(spark) else _watched)(spark, phase, progress):
        yield
    phase.report(progress, phase.tasks_count)


@contextmanager
def _connected(spark: SparkSession, phase: Phase, progress: Progress) -> Iterator[None]:
    def handler(stages: Iterable[Any] | None, **_: Any) -> None:
        counts = [one.num_completed_tasks for one in stages or () if one.num_tasks == phase.tasks_count]
        phase.report(progress, max(counts, default=0))

    spark.registerProgressHandler(handler)  # type: ignore[arg-type]  # a function has its parameters too
    try:
        yield
    finally:
        spark.removeProgressHandler(handler)  # type: ignore[arg-type]


@contextmanager
def _watched(spark: SparkSession, phase: Phase, progress: Progress) -> Iterator[None]:
    ended = threading.Event()
    watcher = threading.Thread(
        target=_watch, args=(spark.sparkContext, phase, progress, ended), name="rmqtx-progress", daemon=True
    )
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _watch(context: Any, phase: Phase, progress: Progress, ended: threading.Event) -> None:
    tracker = context.statusTracker()
    done_before = 0
    while not ended.wait(_INTERVAL_SECONDS):
        try:
            done = _done_count(tracker, phase.tasks_count)
        except (Py4JError, OSError):
            return  # the JVM has ended: the block fails with an error
        if done > done_before and not ended.is_set():
            phase.report(progress, done)
            done_before = done


def _done_count(tracker: Any, tasks_count: int) -> int:
    """Return the number of finished tasks of the running stage with `tasks_count` tasks."""
    jobs = (tracker.getJobInfo(number) for number in tracker.getActiveJobsIds())
    stages = (tracker.getStageInfo(number) for job in jobs if job is not None for number in job.stageIds)
    return max(
        (stage.numCompletedTasks for stage in stages if stage is not None and stage.numTasks == tasks_count), default=0
    )


@dataclass(frozen=True, slots=True)
class ScanCounts:
    """Counts for the progress bar: a task that Spark runs twice is counted twice. Results never depend on them."""

    _bytes: Accumulator[int]
    _records: Accumulator[int]
    _damaged_spans: Accumulator[int]

    @classmethod
    def of(cls, spark: SparkSession) -> Self | None:
        """Return counts that begin at 0; None with Spark Connect, which has none."""
        if is_connected(spark):
            return None
        return cls(*(spark.sparkContext.accumulator(0) for _ in range(3)))

    def add(self, bytes_count: int, spans: list[Span], records_count: int = 0) -> None:
        """Add what was read in a task; `records_count` is 0 if it was not counted."""
        self._bytes.add(bytes_count)
        self._records.add(records_count)
        self._damaged_spans.add(sum(span.kind == "damaged" for span in spans))

    @property
    def bytes_count(self) -> int:
        """The bytes that were read, in the driver."""
        return self._bytes.value

    @property
    def words(self) -> str:
        """The other counts in words."""
        counts = (self._records.value, "record"), (self._damaged_spans.value, "damaged span")
        return ", ".join(f"{count:,} {name}{'s' * (count > 1)}" for count, name in counts if count)
