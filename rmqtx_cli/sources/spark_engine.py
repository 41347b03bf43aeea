"""Spark as an engine that reads whole stores."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from rmqtx.readers.log.splits import WorkDivision
from rmqtx.readers.old_tables.transaction_table import TableAddress, TransactionTable
from rmqtx.spark_tasks.jobs.audit import audit
from rmqtx.spark_tasks.jobs.ledger import read_transaction_table
from rmqtx.spark_tasks.jobs.scan import run_job, spark_reader
from rmqtx.spark_tasks.jobs.verdict_folder import audit_into
from rmqtx.spark_tasks.session.errors import translated, translated_batches
from rmqtx.spark_tasks.session.tasks import results, sizes_for
from rmqtx.verdicts.transactions.measures import MEASURES
from rmqtx_cli.options.engine import EngineOptions
from rmqtx_cli.options.ledger_options import login

if TYPE_CHECKING:
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
    from rmqtx_cli.sources.engine_port import StoreComparison

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Tasks of Spark."""

    options: EngineOptions
    spark: SparkSession
    name: str = "spark"
    _given: list[Generator[pa.RecordBatch, None, None]] = field(default_factory=list)

    def watched(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches, with errors of tasks translated; `close` ends them before the session."""
        given = translated_batches(batches)
        self._given.append(given)
        return given

    def close(self) -> None:
        """Close the batches that were not read to the end, while the session exists."""
        for given in self._given:
            given.close()

    def split_bytes_for(self, stores: Sequence[Store]) -> int:
        """See `StoreEngine`."""
        return self.options.split_bytes or sizes_for(sum(s.size_bytes for store in stores for s in store.commit_log))[0]

    def audit(
        self, stores: list[Store], settings_of: SettingsOf, *, at_ms: int | None = None,
        progress: Progress | None = None, columns: Collection[str] | None = None,
    ) -> VerdictReading:
        """See `StoreEngine`. The rows have all columns of TRANSACTIONS."""
        with translated():
            reading = audit(
                self.spark, stores, settings_of, at_ms=at_ms, progress=progress,
                work=WorkDivision(self.split_bytes_for(stores), self.options.temporary_directory),
                measures=[name for name in MEASURES.names if name in (columns or ())],
            )
        reading.batches = self.watched(reading.batches)
        return reading

    def audit_into(
        self, folder: VerdictFolder, stores: list[Store], settings_of: SettingsOf, *, at_ms: int | None = None,
        progress: Progress | None = None,
    ) -> tuple[VerdictReading, list[Written]]:
        """See `StoreEngine`. The tasks write."""
        with translated():
            return audit_into(
                self.spark, folder, stores, settings_of, at_ms=at_ms, split_bytes=self.split_bytes_for(stores),
                progress=progress,
            )

    def run_job(
        self, job: ScanJob, stores: list[Store], *, from_offset: int | None = None, to_offset: int | None = None,
        progress: Progress | None = None,
    ) -> Reading:
        """See `StoreEngine`."""
        with translated():
            reading = run_job(
                self.spark, job, stores, split_bytes=self.split_bytes_for(stores), from_offset=from_offset,
                to_offset=to_offset, progress=progress,
            )
        reading.batches = self.watched(reading.batches)
        return reading

    def compared(self, comparison: StoreComparison) -> Reading:
        """See `StoreEngine`."""
        with translated():
            reading = comparison.by_spark(self, self.spark)
        reading.batches = self.watched(reading.batches)
        return reading

    def transaction_table(self, address: TableAddress, root: str) -> TransactionTable:
        """See `StoreEngine`."""
        with translated():
            return read_transaction_table(self.spark, address, root, login=login())

    @property
    def make_reader(self) -> MakeReader:
        """See `StoreEngine`."""
        return spark_reader(self.spark)

    def results(
        self, function: Callable[[_Task], _Result], tasks: Sequence[_Task], total_bytes: int  # noqa: ARG002
    ) -> list[_Result]:
        """See `StoreEngine`."""
        with translated():
            return results(self.spark, function, tasks)
