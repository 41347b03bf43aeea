"""Engines that read whole stores: processes of this machine, or Spark; one interface, and the choice between them.

A command uses an engine inside a `with` block and reads all rows before the block ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

from rmqtx.readers.jobs.job_runner import ScanJob, run_job
from rmqtx.readers.jobs.signals import interruptible
from rmqtx.readers.jobs.workers import Progress, Workers, workers_count
from rmqtx.readers.log.splits import SPLIT_BYTES, WorkDivision, plan_splits
from rmqtx.readers.model.tables import TRANSACTIONS
from rmqtx.spark_tasks.session.errors import SparkUnavailable
from rmqtx.spark_tasks.session.java import find_java
from rmqtx.spark_tasks.session.session import is_submitted, session
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.follow.split_reader import local_reader
from rmqtx_cli.options.engine import EngineName, EngineOptions
from rmqtx_cli.sources.database_table import jdbc_needs_spark
from rmqtx_cli.sources.engine_port import StoreComparison, StoreEngine
from rmqtx_cli.words.progress import shown
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rmqtx.readers.model.reading import Reading
    from rmqtx.readers.old_tables.transaction_table import TableAddress, TransactionTable
    from rmqtx.readers.store.store import Store
    from rmqtx.verdicts.evidence.store_facts import SettingsOf
    from rmqtx.verdicts.export.verdict_folder import VerdictFolder, Written
    from rmqtx.verdicts.follow.follower import MakeReader
    from rmqtx.verdicts.model.reading import VerdictReading

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

#: Commit-log bytes from which `auto` uses Spark; smaller logs are read faster than a cluster starts.
SPARK_BYTES_MIN = 64 << 30


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """Processes of this machine."""

    options: EngineOptions
    name: str = "local"

    def split_bytes_for(self, stores: Sequence[Store]) -> int:  # noqa: ARG002 -- memory does not grow with the stores
        """See `StoreEngine`."""
        return self.options.split_bytes or SPLIT_BYTES

    def audit(
        self, stores: list[Store], settings_of: SettingsOf, *, at_ms: int | None = None,
        progress: Progress | None = None, columns: Collection[str] | None = None,
    ) -> VerdictReading:
        """See `StoreEngine`."""
        return audit(
            stores, settings_of, at_ms=at_ms, processes=self.options.processes,
            work=WorkDivision(self.split_bytes_for(stores), self.options.temporary_directory), progress=progress,
            columns=TRANSACTIONS.names if columns is None else columns,
        )

    def audit_into(
        self, folder: VerdictFolder, stores: list[Store], settings_of: SettingsOf, *, at_ms: int | None = None,
        progress: Progress | None = None,
    ) -> tuple[VerdictReading, list[Written]]:
        """See `StoreEngine`."""
        reading = self.audit(stores, settings_of, at_ms=at_ms, progress=progress)
        return reading, folder.write_all(reading)

    def run_job(
        self, job: ScanJob, stores: list[Store], *, from_offset: int | None = None, to_offset: int | None = None,
        progress: Progress | None = None,
    ) -> Reading:
        """See `StoreEngine`."""
        plan = plan_splits(
            stores, split_bytes=self.split_bytes_for(stores), from_offset=from_offset, to_offset=to_offset
        )
        return run_job(job, plan, processes=self.options.processes, progress=progress)

    def compared(self, comparison: StoreComparison) -> Reading:
        """See `StoreEngine`."""
        return comparison.here(self)

    def transaction_table(self, address: TableAddress, root: str) -> TransactionTable:  # noqa: ARG002
        """See `StoreEngine`. Raises: BadRequest."""
        raise jdbc_needs_spark()

    @property
    def make_reader(self) -> MakeReader:
        """See `StoreEngine`."""
        return partial(local_reader, self.options.processes)

    def results(self, function: Callable[[_Task], _Result], tasks: Sequence[_Task], total_bytes: int) -> list[_Result]:
        """See `StoreEngine`."""
        with Workers(workers_count(total_bytes, self.options.processes)) as pool:
            return list(pool.run(function, tasks))


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
    with interruptible(), ExitStack() as stack:
        if name is EngineName.LOCAL:
            yield LocalEngine(options)
        else:
            with shown("starting Spark", voice):
                spark = stack.enter_context(spark_session(options))
            from rmqtx_cli.sources.spark_engine import SparkEngine  # PySpark, which exists if there is a session

            engine = SparkEngine(options, spark)
            stack.callback(engine.close)
            yield engine


@contextmanager
def spark_session(options: EngineOptions, *, is_checked: bool = True) -> Iterator[SparkSession]:
    """The session that the options ask for. `is_checked`: test first that its workers can run tasks.

    Raises: SparkUnavailable.
    """
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
    return "rmqtx runs under spark-submit" if is_submitted() else None


def _lacking() -> str | None:
    """Why Spark cannot be used here; None if it can."""
    if find_spec("pyspark") is None:
        return "pyspark is not installed"
    try:
        find_java()
    except SparkUnavailable as error:
        return error.message
    return None
