"""The programming interface for Spark, and the folder of verdicts: rows of the local audit, whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from rmqtx import spark as api
from rmqtx.readers.jobs.search import SearchConditions
from rmqtx.readers.model.errors import BadRequest, UnwritableFile
from rmqtx.readers.model.tables import TRANSACTIONS
from rmqtx.readers.store.store import open_store
from rmqtx.spark_tasks.source.read_options import Settings, parse_options
from rmqtx.verdicts.audit import local_audit
from rmqtx.verdicts.export.verdict_folder import verdict_folder
from rmqtx_cli.options.engine import EngineOptions
from rmqtx_cli.sources.engines import LocalEngine
from tests.forge.stores import copy_of, opened, settings_of, unpacked
from tests.spark.frames import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ("common-5.3.3", "killed-5.3.3")
PARTITIONS = ("day", "state")
SETTINGS = Settings(parse_options({"path": "/"}))


def rows_in(folder: Path) -> pa.Table:
    """The transactions of a folder, with the columns of TRANSACTIONS."""
    found = ds.dataset(folder / "transactions", format="parquet", partitioning="hive").to_table()
    return found.select(TRANSACTIONS.names).cast(TRANSACTIONS)


@pytest.fixture
def wanted() -> list[str]:
    """The rows of the local audit."""
    stores = [open_store(unpacked(name)) for name in NAMES]
    return rows_of(local_audit.audit(stores, SETTINGS).table())


@pytest.mark.slow
def test_an_audit_as_a_frame_and_as_a_folder(spark: SparkSession, wanted: list[str], tmp_path: Path) -> None:
    place = tmp_path / "verdicts"
    before = len(spark.sparkContext._jsc.getPersistentRDDs())  # of other tests of the session
    with api.audit([unpacked(name) for name in NAMES], spark=spark) as found:
        assert rows_of(found.transactions.toArrow()) == wanted
        found.write(place, PARTITIONS)
        assert found.coverage.num_rows == sum(len(opened(name).commit_log) for name in NAMES)
        assert len(spark.sparkContext._jsc.getPersistentRDDs()) > before
    assert len(spark.sparkContext._jsc.getPersistentRDDs()) == before
    assert rows_of(rows_in(place)) == wanted
    assert sorted(path.name for path in place.iterdir()) == [
        "_SUCCESS", "coverage.parquet", "findings.parquet", "provenance.json", "transactions",
    ]
    assert json.loads((place / "_SUCCESS").read_text())["rows_count"] == len(wanted)
    assert len(json.loads((place / "provenance.json").read_text())["stores"]) == len(NAMES)
    assert pq.read_table(place / "findings.parquet").equals(found.findings)
    by_spark = spark.read.parquet(str(place / "transactions"))
    assert by_spark.where("state = 'COMMITTED'").count() == sum("'state': 'COMMITTED'" in row for row in wanted)
    with pytest.raises(BadRequest, match="is not empty"):
        found.write(place)


def test_the_local_engine_writes_the_same_folder(wanted: list[str], tmp_path: Path) -> None:
    folder = verdict_folder(tmp_path / "local", ("topic",))
    stores = [open_store(unpacked(name)) for name in NAMES]
    with folder.begun():
        reading, written = LocalEngine(EngineOptions()).audit_into(folder, stores, SETTINGS)
        folder.finish(written, pa.table({}), reading.coverage_table(), {})
    assert rows_of(rows_in(tmp_path / "local")) == wanted


def test_nothing_looks_complete_after_a_failure(tmp_path: Path) -> None:
    verdicts = local_audit.audit([opened(NAMES[0])], settings_of(NAMES[0])).table()
    failed = verdict_folder(tmp_path / "failed")

    def interrupted() -> None:
        with failed.begun():
            failed.write(0, verdicts)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not (tmp_path / "failed").exists()

    killed = verdict_folder(tmp_path / "killed")
    killed._make()
    killed.write(0, verdicts)  # no code runs after SIGKILL
    assert ds.dataset(tmp_path / "killed", format="parquet").files == []
    with pytest.raises(BadRequest, match="not finished"):
        killed._make()

    retried = verdict_folder(tmp_path / "retried")
    with retried.begun():
        retried.write(0, verdicts)
        retried.finish([retried.write(0, verdicts)], pa.table({}), pa.table({}), {})
    assert rows_in(tmp_path / "retried").num_rows == len(verdicts)

    lost = verdict_folder(tmp_path / "lost")
    lost._make()
    written = lost.write(0, verdicts)
    next((tmp_path / "lost").rglob("*.parquet")).unlink()
    with pytest.raises(UnwritableFile, match="is not here"):
        lost.finish([written], pa.table({}), pa.table({}), {})


@pytest.mark.slow
def test_verify_search_and_tables(spark: SparkSession) -> None:
    root = unpacked(NAMES[1])
    assert api.verify(root, spark=spark).num_rows > 0
    records = api.search(root, SearchConditions(topic="RMQ_SYS_TRANS_HALF_TOPIC"), spark=spark)
    frames = api.tables(root, spark=spark, timestamps=True)
    assert records.num_rows == frames["records"].where("topic = 'RMQ_SYS_TRANS_HALF_TOPIC'").count() > 0
    assert "half_store_time" in frames["transactions"].columns


@pytest.mark.slow
def test_the_example_of_the_page(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy_of("common-5.3.3", tmp_path / "evidence" / "broker-a")
    page = (Path(__file__).parents[2] / "docs" / "spark_api.md").read_text("utf-8")
    example = page.partition("```python\n")[2].partition("```")[0]
    exec(example.replace('"/evidence', f'"{tmp_path}/evidence').replace('"/verdicts', f'"{tmp_path}/verdicts'), {})
    assert "COMMITTED" in capsys.readouterr().out
    assert (tmp_path / "verdicts" / "2026-11-21" / "_SUCCESS").is_file()
