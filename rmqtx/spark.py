"""Audits of whole stores with Spark, for notebooks and jobs: paths in, DataFrames out.

    from rmqtx.spark import audit

    with audit("s3://evidence/*/store") as found:
        found.transactions.where("state = 'LOST'").select("store", "transaction_id").show()
        found.write("s3://evidence/verdicts/2026-01-31", partition_by=["day", "state"])

The functions use the session of the process, or start one as `SparkSession.builder.getOrCreate()` does, and send rmqtx
to the workers of a cluster. Their rows are those of the commands with the same names.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Self

from readers.jobs.search import Search
from readers.jobs.search_conditions import SearchConditions
from readers.model.findings import findings_table
from readers.model.tables import ALL_TABLES, RECORDS, TRANSACTIONS
from readers.store.store import Store
from spark_tasks.data_source import RmqtxDataSource
from spark_tasks.jobs import reconcile as reconcile_job
from spark_tasks.jobs.audit import SparkAudit
from spark_tasks.jobs.scan import run_job
from spark_tasks.jobs.verdict_folder import write_into
from spark_tasks.jobs.verdicts import as_rows
from spark_tasks.session.errors import translated
from spark_tasks.session.packages import send_packages
from spark_tasks.session.schemas import spark_schema
from spark_tasks.session.tasks import results
from spark_tasks.source.opening import Settings, opened
from spark_tasks.source.read_options import ReadOptions, parse_options
from verdicts.audit.provenance import EngineFacts, provenance, store_provenance
from verdicts.export.verdict_folder import verdict_folder
from verdicts.ledger.join import Condition
from verdicts.ledger.matching import Match
from verdicts.model.reading import VerdictReading
from verdicts.verify.verify import DEFAULT, Verify

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Audit", "audit", "reconcile", "search", "tables", "verify"]

Paths = str | PathLike[str] | Iterable[str | PathLike[str]]


@dataclass(frozen=True, slots=True)
class Audit:
    """One audit of some stores. Use it in a `with` block, which releases what Spark keeps for it.

    `transactions`: a DataFrame with the columns of the table `transactions`; each action judges again, from the scan
    that is kept. `findings`, `coverage`: tables of these names. `notes`: sentences about how the stores were read.
    """

    transactions: DataFrame
    findings: pa.Table
    coverage: pa.Table
    notes: tuple[str, ...]
    stores: tuple[Store, ...]
    _task: SparkAudit

    def write(
        self, place: str | PathLike[str], partition_by: Sequence[str] = (), *, timestamps: bool = False
    ) -> None:
        """Write a new folder by the executors: transactions as Parquet, findings, coverage, provenance, `_SUCCESS`.

        `partition_by`: some of day, state, topic, producer_group, store.
        Raises: BadRequest if the folder has files, UnwritableFile.
        """
        spark = self.transactions.sparkSession
        folder = verdict_folder(place, partition_by, has_timestamps=timestamps)
        with folder.begun(), translated():
            written = write_into(spark, folder, self.transactions)
            facts = provenance(
                results(spark, store_provenance, self.stores), command="audit",
                options={"partition_by": list(folder.partition_by)}, engine=EngineFacts("spark"),
                made_time_ms=time.time_ns() // 1_000_000,
            )
            folder.finish(written, self.findings, self.coverage, facts)

    def release(self) -> None:
        """Release what Spark keeps; `transactions` cannot be read afterwards."""
        self._task.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def audit(
    paths: Paths,
    *,
    at: str | None = None,
    broker_conf: str | None = None,
    broker_version: str | None = None,
    split_bytes: int | None = None,
    spark: SparkSession | None = None,
) -> Audit:
    """Return the verdicts on all transactions of some stores, which are one audit. The logs are scanned now, once.

    `at`: judge as of this time, ISO 8601 with a zone or epoch milliseconds. `broker_conf`, `broker_version`: as the
    options of the command. `split_bytes`: bytes that one task reads; the rows do not depend on it.
    Damage: findings; a transaction that damage makes unknown is UNDECIDABLE.
    Raises: BadRequest, NotAStore, UnreadableFile; SparkUnavailable if Spark fails.
    """
    spark = _session(spark)
    options = _options(paths, "transactions", at=at, broker_conf=broker_conf, broker_version=broker_version)
    reading = VerdictReading(TRANSACTIONS, [])
    with translated():
        stores = opened(options)
        task = SparkAudit(spark, stores, Settings(options), options.at_ms, split_bytes, None)
        try:
            frame = task.judged(as_rows, spark_schema(TRANSACTIONS))
        except BaseException:
            task.release()
            raise
        task.report(reading)
    return Audit(
        frame, findings_table(reading.findings), reading.coverage_table(),
        tuple(dict.fromkeys(note.text for note in reading.notes)), tuple(stores), task,
    )


def verify(
    paths: Paths, *, level: str = DEFAULT, broker_version: str | None = None, spark: SparkSession | None = None
) -> pa.Table:
    """Return the damage and contradictions in some stores, as rows of the table `findings`.

    `level`: `quick`, `default` or `full`, as the options of the command.
    Raises: BadRequest, NotAStore, UnreadableFile; SparkUnavailable if Spark fails.
    """
    spark = _session(spark)
    with translated():
        return run_job(spark, Verify(level, broker_version), opened(_options(paths, "findings"))).table()


def search(
    paths: Paths, conditions: SearchConditions, *, columns: Sequence[str] = (), spark: SparkSession | None = None
) -> pa.Table:
    """Return the records of the commit logs that meet the conditions, as rows of the table `records`.

    `columns`: those to decode, the others are null; all without bodies if none is given.
    Raises: BadRequest, NotAStore, UnreadableFile; SparkUnavailable if Spark fails.
    """
    spark = _session(spark)
    wanted = tuple(columns) or tuple(name for name in RECORDS.names if name != "body")
    with translated():
        return run_job(spark, Search(conditions, wanted), opened(_options(paths, "records"))).table()


def reconcile(
    paths: Paths,
    ledger: DataFrame,
    match: Match,
    done: Condition,
    not_done: Condition,
    *,
    at: str | None = None,
    missing_is_not_done: bool = False,
    spark: SparkSession | None = None,
) -> pa.Table:
    """Return the transactions of some stores beside the rows of a ledger that decide them, with what follows.

    `done`, `not_done`: from a batch of ledger rows, whether each shows that its transaction was done, or was not.
    Raises: BadRequest, NotAStore, UnreadableFile; SparkUnavailable if Spark fails.
    """
    spark = _session(spark)
    options = _options(paths, "transactions", at=at)
    with translated():
        return reconcile_job.reconcile(
            spark, opened(options), Settings(options), ledger, match, done, not_done, at_ms=options.at_ms,
            missing_is_not_done=missing_is_not_done,
        ).table()


def tables(
    paths: Paths, *, timestamps: bool = False, spark: SparkSession | None = None, **options: str
) -> Mapping[str, DataFrame]:
    """Return every table of some stores as a DataFrame, by name; nothing is read until a frame is.

    `options`: further options of the data source that apply to all tables, like `split_size`.
    """
    spark = _session(spark)
    spark.dataSource.register(RmqtxDataSource)
    given = {"paths": _json(paths), "timestamps": str(timestamps).lower(), **options}
    return {name: spark.read.format("rmqtx").options(table=name, **given).load() for name in ALL_TABLES}


def _session(spark: SparkSession | None) -> SparkSession:
    from pyspark.sql import SparkSession

    from readers.model.pandas_import import allow_pandas

    allow_pandas()
    spark = spark or SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    send_packages(spark)
    return spark


def _options(paths: Paths, table: str, **more: str | None) -> ReadOptions:
    return parse_options({
        "table": table, "paths": _json(paths), **{name: value for name, value in more.items() if value is not None}
    })


def _json(paths: Paths) -> str:
    given = [paths] if isinstance(paths, str | PathLike) else list(paths)
    return json.dumps([str(path) for path in given])
