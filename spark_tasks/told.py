"""The audit's DataFrame together with what was said about reading the stores: findings, coverage, notes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from readers.reading import Reading
from readers.store import Store
from readers.store_view import SettingsOf
from readers.tables import TRANSACTIONS
from spark_tasks.audit import _Audit
from spark_tasks.schemas import spark_schema
from spark_tasks.verdicts import as_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def transactions_told(
    spark: SparkSession,
    stores: list[Store],
    settings_of: SettingsOf,
    reading: Reading,
    *,
    at_ms: int | None = None,
    split_bytes: int,
) -> DataFrame:
    """As `spark_tasks.audit.transactions`; what is wrong with the stores is added to `reading`.

    The logs are scanned now, once; the scan's witnesses stay persisted as long as the session.
    """
    task = _Audit(spark, stores, settings_of, at_ms, split_bytes, None)
    frame = task.judged(as_rows, spark_schema(TRANSACTIONS))
    reading.coverage.extend(task.coverage)
    reading.findings.extend(task.findings)
    reading.notes.extend(task.notes)
    return frame
