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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rmqtx.readers.jobs.search import Search
from rmqtx.readers.jobs.search_conditions import SearchConditions
from rmqtx.readers.model.findings import findings_table
from rmqtx.readers.model.tables import ALL_TABLES, RECORDS, TRANSACTIONS
from rmqtx.readers.store.store import Store
from rmqtx.spark_tasks.data_source import RmqtxDataSource
from rmqtx.spark_tasks.jobs import reconcile as reconcile_job
from rmqtx.spark_tasks.jobs.audit import transactions, unread_in
from rmqtx.spark_tasks.jobs.scan import run_job, spark_reader
from rmqtx.spark_tasks.jobs.verdict_folder import write_into
from rmqtx.spark_tasks.session.errors import translated
from rmqtx.spark_tasks.session.packages import send_packages
from rmqtx.spark_tasks.session.schemas import spark_schema
from rmqtx.spark_tasks.session.tasks import results
from rmqtx.spark_tasks.session.workers import check_workers
from rmqtx.spark_tasks.source.read_options import ReadOptions, Settings, opened, parse_options
from rmqtx.verdicts.audit.provenance import EngineFacts, provenance, store_provenance
from rmqtx.verdicts.export.verdict_folder import verdict_folder
from rmqtx.verdicts.growing.grow import Grown
from rmqtx.verdicts.growing.tables import DELTA, grow_table, table_files, table_name
from rmqtx.verdicts.growing.verdict_rows import VERDICTS
from rmqtx.verdicts.ledger.join import Condition, LedgerTerms
from rmqtx.verdicts.ledger.matching import Match
from rmqtx.verdicts.model.reading import VerdictReading
from rmqtx.verdicts.verify.verify import DEFAULT, Verify

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Audit", "Grown", "audit", "audit_into", "reconcile", "search", "tables", "verdicts", "verify"]

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
    _release: Callable[[], None]

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
        self._release()

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
        judged = transactions(
            spark, stores, Settings(options), at_ms=options.at_ms, split_bytes=split_bytes, reading=reading
        )
        if any(one.traces is not None for one in reading.evidence.values()):
            reading.add_findings(unread_in(judged.frame))
    return Audit(
        judged.frame.select(TRANSACTIONS.names), findings_table(reading.findings), reading.coverage_table(),
        tuple(dict.fromkeys(note.text for note in reading.notes)), tuple(stores), judged.release,
    )


def audit_into(
    paths: Paths,
    table: str,
    *,
    checkpoint: str | PathLike[str] | None = None,
    broker_conf: str | None = None,
    broker_version: str | None = None,
    spark: SparkSession | None = None,
) -> Grown:
    """Bring a table of verdicts up to the present state of some stores; only what is new is read, by the executors.

    `table`: a folder or URI of Parquet, `delta:PLACE`, or `iceberg:CATALOG.NAMESPACE.TABLE`; read it with `verdicts`.
    `checkpoint`: a file of the driver that the next run has too; by default in the folder of the table, if that is a
    local one. The driver judges and writes.
    Damage: `findings`; a transaction that damage makes unknown is UNDECIDABLE.
    Raises: BadRequest, NotAStore, UnreadableFile; FileChanged if a log was cut or replaced; UnwritableFile;
            MissingLibrary; SparkUnavailable if Spark fails.
    """
    spark = _session(spark)
    name = table_name(table)
    options = _options(paths, "transactions", broker_conf=broker_conf, broker_version=broker_version)
    place = None if checkpoint is None else fspath(checkpoint)
    return grow_table(name, place, opened(options), Settings(options), make_reader=spark_reader(spark))


def verdicts(table: str, *, spark: SparkSession | None = None) -> DataFrame:
    """Return the present version of a table of verdicts: current rows, where `valid_to` is null, and closed ones.

    Spark reads the files of the table itself, without the libraries of Delta Lake and Iceberg for Spark.
    Raises: BadRequest if it is not a table of verdicts; MissingLibrary; UnreadableFile.
    """
    spark = _session(spark)
    name = table_name(table)
    files, schema = table_files(name), spark_schema(VERDICTS)
    if not files:
        return spark.createDataFrame([], schema)
    reader = spark.read.schema(schema)
    return (reader.option("basePath", name.place) if name.kind == DELTA else reader).parquet(*files)


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
            spark, opened(options), Settings(options),
            reconcile_job.FrameLedger(ledger, LedgerTerms(match, done, not_done, missing_is_not_done)),
            at_ms=options.at_ms,
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

    from rmqtx.readers.model.own_process import allow_pandas

    allow_pandas()
    spark = spark or SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    send_packages(spark)
    check_workers(spark)
    return spark


def _options(paths: Paths, table: str, **more: str | None) -> ReadOptions:
    return parse_options({
        "table": table, "paths": _json(paths), **{name: value for name, value in more.items() if value is not None}
    })


def _json(paths: Paths) -> str:
    given = [paths] if isinstance(paths, str | PathLike) else list(paths)
    return json.dumps([str(path) for path in given])
