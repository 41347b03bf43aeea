"""The interface of the engines that read whole stores, and of comparisons of whole stores."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rmqtx.readers.jobs.job_runner import ScanJob
    from rmqtx.readers.jobs.workers import Progress
    from rmqtx.readers.model.reading import Reading
    from rmqtx.readers.old_tables.transaction_table import TableAddress, TransactionTable
    from rmqtx.readers.store.store import Store
    from rmqtx.verdicts.evidence.store_facts import SettingsOf
    from rmqtx.verdicts.export.verdict_folder import VerdictFolder, Written
    from rmqtx.verdicts.follow.follower import MakeReader
    from rmqtx.verdicts.model.reading import VerdictReading
    from rmqtx_cli.options.engine import EngineOptions

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


class StoreComparison(Protocol):
    """Whole stores compared with each other or with a ledger, by either engine."""

    def here(self, engine: StoreEngine) -> Reading:
        """Return the rows, compared on this machine from the verdicts of the engine."""

    def by_spark(self, engine: StoreEngine, spark: SparkSession) -> Reading:
        """Return the rows, compared by tasks of Spark."""


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
        self, stores: list[Store], settings_of: SettingsOf, *, at_ms: int | None = None,
        progress: Progress | None = None, columns: Collection[str] | None = None,
    ) -> VerdictReading:
        """The verdict on every transaction of the stores; see `rmqtx.verdicts.audit.local_audit.audit`.

        `columns`: those that the caller reads, None for all; the rows may have others.
        """

    def audit_into(
        self, folder: VerdictFolder, stores: list[Store], settings_of: SettingsOf, *, at_ms: int | None = None,
        progress: Progress | None = None,
    ) -> tuple[VerdictReading, list[Written]]:
        """Write the verdicts on every transaction into a folder; the reading has no rows."""

    def run_job(
        self, job: ScanJob, stores: list[Store], *, from_offset: int | None = None, to_offset: int | None = None,
        progress: Progress | None = None,
    ) -> Reading:
        """The rows of a job over every split of the stores; the bounds are commit-log offsets, the upper excluded."""

    def compared(self, comparison: StoreComparison) -> Reading:
        """The rows of a comparison, with the findings and notes of its stores."""

    def transaction_table(self, address: TableAddress, root: str) -> TransactionTable:
        """The database table of a store's transactions, at an address that only Spark can read."""

    @property
    def make_reader(self) -> MakeReader:
        """What makes a reader of the new part of growing logs."""

    def results(self, function: Callable[[_Task], _Result], tasks: Sequence[_Task], total_bytes: int) -> list[_Result]:
        """The function's result for each task. `total_bytes`: bytes that all tasks read together."""
