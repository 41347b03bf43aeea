"""Write the verdicts of an audit into a folder from the tasks that judge: no verdict passes through the driver."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from rmqtx.readers.jobs.workers import Progress
from rmqtx.readers.model.tables import TRANSACTIONS
from rmqtx.readers.store.store import Store
from rmqtx.spark_tasks.jobs.audit import SparkAudit
from rmqtx.spark_tasks.jobs.verdicts import without_unread
from rmqtx.spark_tasks.session.progress import Phase, described, tracked
from rmqtx.spark_tasks.session.tasks import working
from rmqtx.verdicts.evidence.store_facts import SettingsOf
from rmqtx.verdicts.export.verdict_folder import VerdictFolder, Written
from rmqtx.verdicts.model.reading import VerdictReading

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WRITTEN = pa.schema([("written", pa.binary())])
WRITTEN_COLUMNS = "written binary"


@dataclass(frozen=True, slots=True)
class IntoFolder:
    """The form of verdicts that are written where they are judged: a row has the files and findings of a task."""

    folder: VerdictFolder

    def __call__(self, partition: int, verdicts: pa.Table) -> Iterator[pa.RecordBatch]:
        """Write the verdicts of a partition; yield one row. Raises: UnwritableFile."""
        rows, unread = without_unread(verdicts)
        written = self.folder.write(partition, rows)
        yield pa.RecordBatch.from_pydict({"written": [pickle.dumps((written, unread))]}, _WRITTEN)


def audit_into(
    spark: SparkSession, folder: VerdictFolder, stores: list[Store], settings_of: SettingsOf, *,
    at_ms: int | None = None, split_bytes: int | None = None, progress: Progress | None = None,
) -> tuple[VerdictReading, list[Written]]:
    """Write the verdicts of an audit into a folder that has begun; return the reading, without rows, and the files.

    Units:  `progress` receives bytes.
    Damage: see `rmqtx.spark_tasks.jobs.audit.audit`.
    Raises: UnwritableFile.
    """
    reading = VerdictReading(TRANSACTIONS, [])
    task = SparkAudit(spark, stores, settings_of, reading, at_ms, split_bytes, progress)
    try:
        frame = task.judged(IntoFolder(folder), WRITTEN_COLUMNS)
        phase = Phase("judging and writing", task.partitions_count)
        with described(spark, "audit: judge the transactions and write them"), tracked(spark, phase, progress):
            rows = frame.collect()
    finally:
        task.release()
    written = [pickle.loads(row["written"]) for row in rows]
    reading.add_findings(finding for _, unread in written for finding in unread)
    return reading, [one for one, _ in written]


def write_into(spark: SparkSession, folder: VerdictFolder, verdicts: DataFrame) -> list[Written]:
    """Write a frame of verdicts, with all columns of TRANSACTIONS, into a folder that has begun."""
    with described(spark, "write the verdicts"):
        rows = verdicts.mapInArrow(_WriteRows(folder), WRITTEN_COLUMNS).collect()
    return [pickle.loads(row["written"])[0] for row in rows]


@dataclass(frozen=True, slots=True)
class _WriteRows:
    """Writes the rows of one task of a frame."""

    folder: VerdictFolder

    @property
    def __name__(self) -> str:  # Spark shows it
        return "write_verdicts"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with working():
            given = [batch for batch in batches if batch.num_rows]
            if given:
                verdicts = pa.Table.from_batches(given).cast(TRANSACTIONS)
                yield from IntoFolder(self.folder)(0, verdicts)
