"""reconcile, diff and export on Spark: the rows that the local engine gives; what matters most also over JDBC."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from rmqtx.readers.ledger.ledger import open_ledger
from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.model.errors import UnreadableFile
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.store.store import open_store
from rmqtx.spark_tasks.jobs import diff as spark_diff
from rmqtx.spark_tasks.jobs import reconcile as spark_reconcile
from rmqtx.spark_tasks.jobs.ledger import arrow_schema, read_ledger
from rmqtx.spark_tasks.jobs.scan import run_job
from rmqtx.spark_tasks.session.tasks import results
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.provenance import store_provenance
from rmqtx.verdicts.export.export import ExportJob
from rmqtx.verdicts.export.export_manifest import opened_directory
from rmqtx.verdicts.export.partition_files import ParquetForm
from rmqtx.verdicts.ledger.join import LedgerFit, LedgerTerms, Match, Term, reconcile
from rmqtx.verdicts.ledger.reconcile import RECONCILED
from rmqtx.verdicts.transactions.diff import differences
from rmqtx_cli.options.filters import parse_filter
from tests import ledgers
from tests.brokers import corpus
from tests.forge.stores import copy_of, opened, settings_of
from tests.representatives import rest_is_slow
from tests.spark.jars import SQLITE, jar
from tests.verdicts.causes.test_traces import torn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]
MATCH = Match((Term("keys", "order_id"),))
SPLIT = 64 << 10


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["transaction_id"], str(row)))


@functools.cache
def local_rows(location: str) -> list[Row]:
    ledger = open_ledger(location, None, ("order_id",))
    is_done, is_not_done = (parse_filter(text, ledger.schema).mask for text in (ledgers.DONE, ledgers.NOT_DONE))
    verdicts = audit([opened(ledgers.NAME)], settings_of(ledgers.NAME))
    rows = reconcile(verdicts, ledger, LedgerTerms(MATCH, is_done, is_not_done), ["order_id", "status"])
    return in_order(pa.Table.from_batches(list(rows), RECONCILED).to_pylist())


def spark_rows(spark: SparkSession, location: str, table: str | None = None) -> list[Row]:
    ledger = read_ledger(spark, location, table, ("order_id",)).select("order_id", "status")
    schema = arrow_schema(ledger)
    is_done, is_not_done = (parse_filter(text, schema).mask for text in (ledgers.DONE, ledgers.NOT_DONE))
    fit = LedgerFit()
    reading = spark_reconcile.reconcile(
        spark, [opened(ledgers.NAME)], settings_of(ledgers.NAME),
        spark_reconcile.FrameLedger(ledger, LedgerTerms(MATCH, is_done, is_not_done)), split_bytes=SPLIT, fit=fit,
    )
    assert reading.schema.equals(RECONCILED)
    rows = in_order(reading.table().to_pylist())
    assert (fit.rows_count, fit.unmatched_count) == (19, 1)
    assert "somebody-else" in fit.unmatched[0]
    assert not fit.fits_nothing
    return rows


# `make test` reads Parquet in the test after this one, and CSV in the last; it and JDBC take the two ways of joins.
@pytest.mark.parametrize("kind", rest_is_slow(["parquet", "csv", "sqlite"], quick=0))
def test_reconcile_gives_the_local_rows(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    location = ledgers.written(kind, tmp_path)
    assert spark_rows(spark, location) == local_rows(location)


def test_joins_have_tasks_by_size_without_adaptive_execution(spark: SparkSession, tmp_path: Path) -> None:
    location = ledgers.written("parquet", tmp_path)
    before = {name: spark.conf.get(name) for name in ("spark.sql.adaptive.enabled", "spark.sql.shuffle.partitions")}
    context = spark.sparkContext
    persisted = len(context._jsc.getPersistentRDDs())
    context.setJobGroup("joins", "reconcile")
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    spark.conf.set("spark.sql.shuffle.partitions", "200")
    try:
        assert spark_rows(spark, location) == local_rows(location)
        assert spark.conf.get("spark.sql.shuffle.partitions") == "200"
    finally:
        context.setJobGroup("", "")
        for name, value in before.items():
            spark.conf.set(name, str(value))
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup("joins")]
    stages = [tracker.getStageInfo(number) for job in jobs if job is not None for number in job.stageIds]
    assert max(stage.numTasks for stage in stages if stage is not None) < 20
    assert len(context._jsc.getPersistentRDDs()) == persisted, "all that was kept is released"


def test_reconcile_over_jdbc(spark: SparkSession, tmp_path: Path) -> None:
    location = ledgers.written("sqlite", tmp_path)
    spark.sql(f"ADD JAR '{jar(SQLITE)}'")
    rows = spark_rows(spark, f"jdbc:sqlite:{location.removeprefix('sqlite:///')}", "orders")
    assert rows == local_rows(location)
    cases = {truth["transaction_id"]: truth["case"] for truth in corpus.expected(ledgers.NAME)}
    found = {cases[row["transaction_id"]]: (row["ledger_word"], row["outcome"], row["advice"]) for row in rows}
    for case, wanted in ledgers.CASES.items():
        assert found[case] == (wanted.word, wanted.outcome, wanted.advice), case


def test_a_database_that_is_not_there_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(f"ADD JAR '{jar(SQLITE)}'")
    with pytest.raises(UnreadableFile) as error:
        read_ledger(spark, f"jdbc:sqlite:{tmp_path / 'none' / 'x.db'}", "orders", ())
    assert "cannot read the ledger jdbc:sqlite:" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_driver_that_is_not_there_is_said(spark: SparkSession) -> None:
    with pytest.raises(UnreadableFile, match="--ledger-driver-jar"):
        read_ledger(spark, "jdbc:oracle:thin:@db:1521:x", "orders", ())


def test_a_file_that_is_not_there_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("none.parquet", "none.csv"):
        with pytest.raises(UnreadableFile, match="cannot read the ledger") as error:
            read_ledger(spark, str(tmp_path / name), None, ())
        assert "\n" not in str(error.value)


def test_a_word_in_every_transaction_is_one_key(spark: SparkSession, tmp_path: Path) -> None:
    """A word that all keys begin with matches them all to one ledger row: nothing is decided, and nothing explodes."""
    file = tmp_path / "ledger.csv"
    file.write_text("order_id,status\nK,PAID\n")
    match = Match((Term("keys", "order_id", "^(K)-"),))
    ledger = read_ledger(spark, str(file), None, ("order_id",))
    done = parse_filter(ledgers.DONE, arrow_schema(ledger)).mask
    reading = spark_reconcile.reconcile(
        spark, [opened(ledgers.NAME)], settings_of(ledgers.NAME),
        spark_reconcile.FrameLedger(ledger, LedgerTerms(match, done, done)), split_bytes=SPLIT,
    )
    rows = reading.table().to_pylist()
    sharing = sum((row["keys"] or "").startswith("K-") for row in rows)
    assert sharing > 50
    for row in rows:
        if (row["keys"] or "").startswith("K-"):
            assert (row["ledger_word"], row["transactions_count"]) == ("several", sharing)


def test_diff_gives_the_local_rows(spark: SparkSession, tmp_path: Path) -> None:
    store, settings = opened(ledgers.NAME), settings_of(ledgers.NAME)
    sides = ([store], ledgers.middle_ms()), ([store, torn(tmp_path / "torn")[0]], None)
    sizes = [0, 0]
    reading = spark_diff.differences(spark, *sides, settings, split_bytes=SPLIT, sizes=sizes)
    found = reading.table().to_pylist()
    audits = [audit(stores, settings, at_ms=at_ms) for stores, at_ms in sides]
    wanted = [row for batch in differences(*audits) for row in batch.to_pylist()]
    assert sizes == [audit(stores, settings, at_ms=at_ms).table().num_rows for stores, at_ms in sides]
    assert len(wanted) > 10
    assert in_order(found) == in_order(wanted)
    assert {*reading.findings} == {finding for one in audits for finding in one.findings}
    assert "trace-unreadable" in {finding.code for finding in reading.findings}


def test_export_writes_every_record_once(spark: SparkSession, tmp_path: Path) -> None:
    store = opened("busystop-5.3.3")
    columns = ("commit_log_offset", "topic", "body")

    def run(split_bytes: int) -> Reading:
        with opened_directory(tmp_path / "to", {"table": "records"}, [store]) as done:
            job = ExportJob("records", columns, str(tmp_path / "to"), ParquetForm(), done)
            reading = run_job(spark, job, [store], split_bytes=split_bytes)
            reading.batches = list(reading)
        return reading

    first = run(20_000)
    wanted = scan_records(store, with_body=True).table().select(columns)
    found = ds.dataset(tmp_path / "to").to_table().select(columns).sort_by("commit_log_offset")
    assert found.cast(wanted.schema).equals(wanted)
    assert sum(first.table()["rows_count"].to_pylist()) == len(wanted)
    assert run(50_000).table().num_rows == 0


def test_custody_is_taken_in_tasks(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(ledgers.NAME)
    wanted = store_provenance(store, hash_all=True)
    monkeypatch.setattr("rmqtx.readers.storage.open_file.OpenFile.read", None)  # this process can read nothing any more
    assert results(spark, functools.partial(store_provenance, hash_all=True), [store]) == [wanted]


def test_damage_is_told_as_locally(spark: SparkSession, tmp_path: Path) -> None:
    """A damaged half copy makes verdicts unknowable: the comparison must say so, whichever engine read the store."""
    root = copy_of(ledgers.NAME, tmp_path)
    with (root / "commitlog" / f"{0:020d}").open("r+b") as log:
        log.seek(next(row for row in corpus.expected(ledgers.NAME))["half_commit_log_offset"] + 4)
        log.write(b"\xff" * 40)
    store, settings = open_store(root), settings_of(ledgers.NAME)
    stores = [store, torn(tmp_path / "torn")[0]]
    local = audit(stores, settings)
    list(local)
    assert {"trace-unreadable"} < {finding.code for finding in local.findings}
    ledger = read_ledger(spark, ledgers.written("csv", tmp_path), None, ("order_id",))
    done = parse_filter(ledgers.DONE, arrow_schema(ledger)).mask
    reading = spark_reconcile.reconcile(
        spark, stores, settings, spark_reconcile.FrameLedger(ledger, LedgerTerms(MATCH, done, done)), split_bytes=SPLIT
    )
    list(reading)
    answers, wanted = (sorted(finding.line() for finding in one.findings) for one in (reading, local))
    assert answers == wanted
