"""Engines that read whole stores: processes of this machine, or Spark; one interface, and the choice between them.

A command uses an engine inside a `with` block and reads all rows before the block ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol, TypeVar

from rmqtx_cli.options.engine import EngineName, EngineOptions
from rmqtx_cli.words.progress import shown
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import size

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from rmqtx.readers.jobs.job_runner import ScanJob
    from rmqtx.readers.jobs.workers import Progress
    from rmqtx.readers.model.reading import Reading
    from rmqtx.readers.store.store import Store
    from rmqtx.verdicts.evidence.store_facts import SettingsOf
    from rmqtx.verdicts.export.verdict_folder import VerdictFolder, Written
    from rmqtx.verdicts.follow.follower import MakeReader
    from rmqtx.verdicts.model.reading import VerdictReading

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

#: Commit-log bytes from which `auto` uses Spark; smaller logs are read faster than a cluster starts.
SPARK_BYTES_MIN = 64 << 30


class StoreEngine(Protocol):
    """Reads whole stores; `Reading.batches` must be read inside the engine's `with` block."""

    @property
    def name(self) -> str:
        """`local` or `spark`."""

    @property
    def options(self) -> EngineOptions:
        """The options of the engine."""

    def split_bytes_for(self, stores: Sequence[Store]) -> int:
        """Bytes that one task reads: the option, else a value that depends on the size of the stores."""

    def audit(
        self,
        stores: list[Store],
        settings_of: SettingsOf,
        *,
        at_ms: int | None = None,
        progress: Progress | None = None,
        columns: Collection[str] | None = None,
    ) -> VerdictReading:
        """The verdict on every transaction of the stores; see `rmqtx.verdicts.audit.local_audit.audit`.

        `columns`: those that the caller reads, None for all; the rows may have others.
        """

    def audit_into(
        self,
        folder: VerdictFolder,
        stores: list[Store],
        settings_of: SettingsOf,
        *,
        at_ms: int | None = None,
        progress: Progress | None = None,
    ) -> tuple[VerdictReading, list[Written]]:
        """Write the verdicts on every transaction into a folder; the reading has no rows."""

    def run_job(
        self,
        job: ScanJob,
        stores: list[Store],
        *,
        from_offset: int | None = None,
        to_offset: int | None = None,
        progress: Progress | None = None,
    ) -> Reading:
        """The rows of a job over every split of the stores; the bounds are commit-log offsets, the upper excluded."""

    @property
    def make_reader(self) -> MakeReader:
        """What makes a reader of the new part of growing logs."""

    def results(self, function: Callable[[_Task], _Result], tasks: Sequence[_Task], total_bytes: int) -> list[_Result]:
        """The function's result for each task. `total_bytes`: bytes that all tasks read together."""


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """Processes of this machine."""

    options: EngineOptions
    name: str = "local"

    def split_bytes_for(self, stores: Sequence[Store]) -> int:  # noqa: ARG002 -- memory does not grow with the stores
        """See `StoreEngine`."""
        from rmqtx.readers.log.splits import SPLIT_BYTES

        return self.options.split_bytes or SPLIT_BYTES

    def audit(
        self,
        stores: list[Store],
        settings_of: SettingsOf,
        *,
        at_ms: int | None = None,
        progress: Progress | None = None,
        columns: Collection[str] | None = None,
    ) -> VerdictReading:
        """See `StoreEngine`."""
        from rmqtx.readers.model.tables import TRANSACTIONS
        from rmqtx.verdicts.audit.local_audit import audit

        return audit(
            stores, settings_of, at_ms=at_ms, processes=self.options.processes,
            split_bytes=self.split_bytes_for(stores), temporary_directory=self.options.temporary_directory,
            progress=progress, columns=TRANSACTIONS.names if columns is None else columns,
        )

    def audit_into(
        self,
        folder: VerdictFolder,
        stores: list[Store],
        settings_of: SettingsOf,
        *,
        at_ms: int | None = None,
        progress: Progress | None = None,
    ) -> tuple[VerdictReading, list[Written]]:
        """See `StoreEngine`."""
        reading = self.audit(stores, settings_of, at_ms=at_ms, progress=progress)
        return reading, folder.write_all(reading)

    def run_job(
        self,
        job: ScanJob,
        stores: list[Store],
        *,
        from_offset: int | None = None,
        to_offset: int | None = None,
        progress: Progress | None = None,
    ) -> Reading:
        """See `StoreEngine`."""
        from rmqtx.readers.jobs.job_runner import run_job
        from rmqtx.readers.log.splits import plan_splits

        plan = plan_splits(
            stores, split_bytes=self.split_bytes_for(stores), from_offset=from_offset, to_offset=to_offset
        )
        return run_job(job, plan, processes=self.options.processes, progress=progress)

    @property
    def make_reader(self) -> MakeReader:
        """See `StoreEngine`."""
        from functools import partial

        from rmqtx.verdicts.follow.split_reader import local_reader

        return partial(local_reader, self.options.processes)

    def results(self, function: Callable[[_Task], _Result], tasks: Sequence[_Task], total_bytes: int) -> list[_Result]:
        """See `StoreEngine`."""
        from rmqtx.readers.jobs.workers import Workers, workers_count

        with Workers(workers_count(total_bytes, self.options.processes)) as pool:
            return list(pool.run(function, tasks))


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Tasks of Spark."""

    options: EngineOptions
    spark: SparkSession
    name: str = "spark"
    _given: list[Generator[pa.RecordBatch, None, None]] = field(default_factory=list)

    def watched(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches, with errors of tasks translated; `close` ends them before the session."""
        given = _translated_batches(batches)
        self._given.append(given)
        return given

    def close(self) -> None:
        """Close the batches that were not read to the end, while the session exists."""
        for given in self._given:
            given.close()

    def split_bytes_for(self, stores: Sequence[Store]) -> int:
        """See `StoreEngine`."""
        from rmqtx.spark_tasks.session.tasks import sizes_for

        return self.options.split_bytes or sizes_for(sum(s.size_bytes for store in stores for s in store.commit_log))[0]

    def audit(
        self,
        stores: list[Store],
        settings_of: SettingsOf,
        *,
        at_ms: int | None = None,
        progress: Progress | None = None,
        columns: Collection[str] | None = None,
    ) -> VerdictReading:
        """See `StoreEngine`. The rows have all columns of TRANSACTIONS."""
        from rmqtx.spark_tasks.jobs.audit import audit
        from rmqtx.spark_tasks.session.errors import translated
        from rmqtx.verdicts.transactions.measures import MEASURES

        with translated():
            reading = audit(
                self.spark, stores, settings_of, at_ms=at_ms, split_bytes=self.split_bytes_for(stores),
                temporary_directory=self.options.temporary_directory, progress=progress,
                measures=[name for name in MEASURES.names if name in (columns or ())],
            )
        reading.batches = self.watched(reading.batches)
        return reading

    def audit_into(
        self,
        folder: VerdictFolder,
        stores: list[Store],
        settings_of: SettingsOf,
        *,
        at_ms: int | None = None,
        progress: Progress | None = None,
    ) -> tuple[VerdictReading, list[Written]]:
        """See `StoreEngine`. The tasks write."""
        from rmqtx.spark_tasks.jobs.verdict_folder import audit_into
        from rmqtx.spark_tasks.session.errors import translated

        with translated():
            return audit_into(
                self.spark, folder, stores, settings_of, at_ms=at_ms, split_bytes=self.split_bytes_for(stores),
                progress=progress,
            )

    def run_job(
        self,
        job: ScanJob,
        stores: list[Store],
        *,
        from_offset: int | None = None,
        to_offset: int | None = None,
        progress: Progress | None = None,
    ) -> Reading:
        """See `StoreEngine`."""
        from rmqtx.spark_tasks.jobs.scan import run_job
        from rmqtx.spark_tasks.session.errors import translated

        with translated():
            reading = run_job(
                self.spark, job, stores, split_bytes=self.split_bytes_for(stores), from_offset=from_offset,
                to_offset=to_offset, progress=progress,
            )
        reading.batches = self.watched(reading.batches)
        return reading

    @property
    def make_reader(self) -> MakeReader:
        """See `StoreEngine`."""
        from rmqtx.spark_tasks.jobs.scan import spark_reader

        return spark_reader(self.spark)

    def results(
        self, function: Callable[[_Task], _Result], tasks: Sequence[_Task], total_bytes: int  # noqa: ARG002
    ) -> list[_Result]:
        """See `StoreEngine`."""
        from rmqtx.spark_tasks.session.errors import translated
        from rmqtx.spark_tasks.session.tasks import results

        with translated():
            return results(self.spark, function, tasks)


def _translated_batches(batches: Iterable[pa.RecordBatch]) -> Generator[pa.RecordBatch, None, None]:
    from rmqtx.spark_tasks.session.errors import translated

    with translated():
        yield from batches


@contextmanager
def chosen_engine(options: EngineOptions, stores: Sequence[Store], voice: Voice) -> Iterator[StoreEngine]:
    """The engine for the options and the size of the stores; printed if `auto` chose Spark, or could have.

    Raises: SparkUnavailable if Spark was asked for and cannot start.
    """
    size_bytes = sum(segment.size_bytes for store in stores for segment in store.commit_log)
    name, reason = _choice(options, size_bytes)
    if options.engine is EngineName.AUTO and (name is EngineName.SPARK or size_bytes >= SPARK_BYTES_MIN):
        voice.note(f"engine {name.value}: {reason}")
    else:
        voice.detail(f"engine {name.value}: {reason}")
    from rmqtx.spark_tasks.session.signals import interruptible

    with interruptible(), ExitStack() as stack:
        if name is EngineName.LOCAL:
            yield LocalEngine(options)
        else:
            with shown("starting Spark", voice):
                spark = stack.enter_context(spark_session(options))
            engine = SparkEngine(options, spark)
            stack.callback(engine.close)
            yield engine


@contextmanager
def spark_session(options: EngineOptions, *, is_checked: bool = True) -> Iterator[SparkSession]:
    """The session that the options ask for. `is_checked`: test first that its workers can run tasks.

    Raises: SparkUnavailable.
    """
    from rmqtx.spark_tasks.session.session import session

    with session(
        options.master, options.remote, options.settings, temporary_directory=options.temporary_directory,
        is_checked=is_checked,
    ) as spark:
        yield spark


def _choice(options: EngineOptions, size_bytes: int) -> tuple[EngineName, str]:
    """The name of the engine, and the reason."""
    if options.engine is not EngineName.AUTO:
        return options.engine, "--engine is given"
    asked = asked_for_spark(options)
    if asked:
        return EngineName.SPARK, asked
    logs = f"{size(size_bytes)} of commit logs"
    if size_bytes < SPARK_BYTES_MIN:
        return EngineName.LOCAL, logs
    lacking = _lacking()
    if lacking is not None:
        return EngineName.LOCAL, f"{logs} would be read faster by Spark, but {lacking}"
    return EngineName.SPARK, logs


def asked_for_spark(options: EngineOptions) -> str | None:
    """Why `auto` uses Spark for any size; None if nothing asks for Spark."""
    if options.master or options.remote:
        return f"{'--master' if options.master else '--remote'} is given"
    if options.conf:
        return "--conf is given"
    if "SPARK_REMOTE" in os.environ:
        return "SPARK_REMOTE is set"
    from rmqtx.spark_tasks.session.session import is_submitted

    return "rmqtx runs under spark-submit" if is_submitted() else None


def _lacking() -> str | None:
    """Why Spark cannot be used here; None if it can."""
    from rmqtx.spark_tasks.session.errors import SparkUnavailable
    from rmqtx.spark_tasks.session.java import find_java

    if find_spec("pyspark") is None:
        return "pyspark is not installed"
    try:
        find_java()
    except SparkUnavailable as error:
        return error.message
    return None
