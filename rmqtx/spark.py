"""Audits of whole stores with Spark, for notebooks and jobs: paths in, DataFrames out.

    from rmqtx.spark import audit

    with audit("s3://evidence/*/store") as found:
        found.transactions.where("state = 'LOST'").select("store", "transaction_id").show()
        found.write("s3://evidence/verdicts/2026-01-31", partition_by=["day", "state"])

`rmqtx.spark.open` takes and gives the words of `rmqtx.open`; its rows have a DataFrame:

    with rmqtx.spark.open("s3://evidence/*/store") as stores:
        causes = stores.diagnose()
        stores.audit().frame().where("state = 'LOST'").show()

The functions use the session of the process, or start one as `SparkSession.builder.getOrCreate()` does, and send rmqtx
to the workers of a cluster. Their rows are those of the commands with the same names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from os import PathLike, fspath
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from pyspark.sql import SparkSession

from rmqtx.api.opening import StoreSettings, given_settings
from rmqtx.api.results import Rows
from rmqtx.api.rows import Diagnosis, Finding, Half, Op, Record, SimulatedCheck, TraceLine
from rmqtx.api.stores import Stores
from rmqtx.readers.jobs.job_runner import ScanJob
from rmqtx.readers.jobs.search import Search, SearchConditions
from rmqtx.readers.model import clock
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.own_process import allow_pandas
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.model.tables import ALL_TABLES, RECORDS, TRANSACTIONS, findings_table
from rmqtx.readers.model.units import parse_time_ms
from rmqtx.readers.store.store import Store
from rmqtx.spark_tasks.data_source import RmqtxDataSource
from rmqtx.spark_tasks.jobs import reconcile as reconcile_job
from rmqtx.spark_tasks.jobs.audit import audit as audit_on_spark
from rmqtx.spark_tasks.jobs.audit import transactions, unread_in
from rmqtx.spark_tasks.jobs.scan import run_job, spark_reader
from rmqtx.spark_tasks.jobs.verdict_folder import write_into
from rmqtx.spark_tasks.session.errors import translated, translated_batches
from rmqtx.spark_tasks.session.packages import send_packages
from rmqtx.spark_tasks.session.schemas import spark_schema
from rmqtx.spark_tasks.session.tasks import results
from rmqtx.spark_tasks.session.workers import check_workers
from rmqtx.spark_tasks.source.read_options import ReadOptions, Settings, opened, parse_options
from rmqtx.verdicts.audit.provenance import EngineFacts, provenance, store_provenance
from rmqtx.verdicts.export.verdict_folder import verdict_folder
from rmqtx.verdicts.growing.grow import Grown
from rmqtx.verdicts.growing.table_step import VERDICTS
from rmqtx.verdicts.growing.tables import DELTA, grow_table, table_files, table_name
from rmqtx.verdicts.ledger.join import Condition, LedgerTerms, Match
from rmqtx.verdicts.model.reading import VerdictReading
from rmqtx.verdicts.model.transaction import Transaction
from rmqtx.verdicts.transactions.measures import MEASURES
from rmqtx.verdicts.verify.verify import DEFAULT, Verify

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "Audit", "Frames", "Grown", "SparkStores", "audit", "audit_into", "open", "reconcile", "search", "tables",
    "verdicts", "verify",
]

_Row = TypeVar("_Row")
_Reading = TypeVar("_Reading", bound=Reading)

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
                made_time_ms=clock.now_ms(),
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


class Frames(Rows[_Row]):
    """The rows of one question, as `rmqtx.Rows`, and as a DataFrame."""

    @classmethod
    def of(cls, rows: Rows[_Row], spark: SparkSession, frame: Callable[[], DataFrame] | None = None) -> Self:
        """Return rows with their DataFrame; without `frame` the rows pass through the driver."""
        made = cls(rows._kind, rows.schema, rows._begin)
        made._spark, made._frame = spark, frame
        return made

    _spark: SparkSession
    _frame: Callable[[], DataFrame] | None

    def frame(self) -> DataFrame:
        """Return a DataFrame with the columns of the table.

        Executors read audits, records, halves, ops and traces; what else is asked passes through the driver.
        """
        if self._frame is not None:
            return self._frame()
        return self._spark.createDataFrame(self.to_arrow(), spark_schema(self.schema))


class SparkStores(Stores):
    """Stores as those of `rmqtx.open`; executors read whole logs. Made by `rmqtx.spark.open`.

    Use it in a `with` block, which releases what Spark keeps for frames of audits. Iterating, `to_arrow`, `findings`
    and `status` bring the rows to the driver, `frame` does not. The driver itself looks up single transactions, and
    iterates `records`, `halves`, `ops` and `trace`.
    """

    def __init__(self, spark: SparkSession, paths: Sequence[str | PathLike[str]], settings: StoreSettings) -> None:
        self._spark, self._kept = spark, ExitStack()
        super().__init__(paths, settings)

    def pending(self, *, at: str | None = None, scan: bool = False) -> Frames[Transaction]:
        """See `rmqtx.Stores`."""
        return Frames.of(super().pending(at=at, scan=scan), self._spark)

    def audit(
        self, *, at: str | None = None, processes: int | None = None, columns: Sequence[str] | None = None
    ) -> Frames[Transaction]:
        """See `rmqtx.Stores`. `processes`: without effect. `frame` scans the logs when it is called."""
        rows = super().audit(at=at, processes=processes, columns=columns)

        def frame() -> DataFrame:
            with translated():
                judged = transactions(
                    self._spark, *self._open(), at_ms=None if at is None else parse_time_ms(at)
                )
            self._kept.callback(judged.release)
            return judged.frame.select(*rows.schema.names)

        return Frames.of(rows, self._spark, frame)

    def show(self, identity: str, *, at: str | None = None, scan: bool = False) -> Frames[Transaction]:
        """See `rmqtx.Stores`."""
        return Frames.of(super().show(identity, at=at, scan=scan), self._spark)

    def lookup(self, ids: Iterable[str]) -> Frames[Transaction]:
        """See `rmqtx.Stores`."""
        return Frames.of(super().lookup(ids), self._spark)

    def records(
        self, *, body: bool = False, from_offset: int | None = None, to_offset: int | None = None,
        columns: Sequence[str] | None = None,
    ) -> Frames[Record]:
        """See `rmqtx.Stores`."""
        rows = super().records(body=body, from_offset=from_offset, to_offset=to_offset, columns=columns)
        bounds = {"from": from_offset, "to": to_offset}
        given = {name: str(value) for name, value in bounds.items() if value is not None}
        return self._of_source("records", rows, body="raw" if body else "none", **given)

    def halves(self) -> Frames[Half]:
        """See `rmqtx.Stores`."""
        return self._of_source("halves", super().halves())

    def ops(self) -> Frames[Op]:
        """See `rmqtx.Stores`."""
        return self._of_source("ops", super().ops())

    def trace(self) -> Frames[TraceLine]:
        """See `rmqtx.Stores`."""
        topic = self._settings.trace_topic
        return self._of_source("traces", super().trace(), **({} if topic is None else {"trace_topic": topic}))

    def verify(self, *, level: str = DEFAULT) -> Frames[Finding]:
        """See `rmqtx.Stores`."""
        return Frames.of(super().verify(level=level), self._spark)

    def diagnose(self) -> Frames[Diagnosis]:
        """See `rmqtx.Stores`."""
        return Frames.of(super().diagnose(), self._spark)

    def simulate(
        self, table: str = "checks", *, rounds: int | None = None, at: str | None = None,
        changes: Mapping[str, str] | None = None,
    ) -> Frames[SimulatedCheck]:
        """See `rmqtx.Stores`."""
        return Frames.of(super().simulate(table, rounds=rounds, at=at, changes=changes), self._spark)

    def release(self) -> None:
        """Release what Spark keeps; frames of audits cannot be read afterwards."""
        self._kept.close()

    def _judged(
        self, columns: Collection[str], *, at_ms: int | None = None, processes: int | None = None  # noqa: ARG002
    ) -> VerdictReading:
        measures = [name for name in MEASURES.names if name in columns]
        return self._read(audit_on_spark(self._spark, *self._open(), at_ms=at_ms, measures=measures))

    def _run_job(self, job: ScanJob, stores: list[Store]) -> Reading:
        return self._read(run_job(self._spark, job, stores))

    def _read(self, reading: _Reading) -> _Reading:
        """The same reading, with translated errors; `release` ends it, if it was not read to its end."""
        reading.batches = given = translated_batches(reading.batches)
        self._kept.callback(given.close)
        return reading

    def _of_source(self, table: str, rows: Rows[_Row], **options: str) -> Frames[_Row]:
        """Rows with a frame of the data source."""
        logs = ",".join(self._settings.commit_log)
        given = {"paths": _json(self._paths), **options, **({"commitlog": logs} if logs else {})}

        def frame() -> DataFrame:
            self._spark.dataSource.register(RmqtxDataSource)
            found = self._spark.read.format("rmqtx").options(table=table, **given).load()
            return found.select(*rows.schema.names)

        return Frames.of(rows, self._spark, frame)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def open(  # noqa: A001 -- rmqtx.spark.open, as rmqtx.open
    *paths: str | PathLike[str], broker_conf: str | PathLike[str] | None = None, broker_version: str | None = None,
    commit_log: Sequence[str | PathLike[str]] = (), trace_topic: str | None = None, spark: SparkSession | None = None,
) -> SparkStores:
    """Open stores as `rmqtx.open` does, for the executors of a session.

    Raises: NotAStore, UnreadableFile, BadRequest; SparkUnavailable if Spark fails.
    """
    if not paths:
        raise BadRequest("a store is missing", advice="rmqtx.spark.open('/path/of/store')")
    return SparkStores(_session(spark), paths, given_settings(broker_conf, broker_version, commit_log, trace_topic))


def _session(spark: SparkSession | None) -> SparkSession:
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
