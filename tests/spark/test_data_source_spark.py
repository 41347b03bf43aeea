"""The data source in Spark: found by itself, read in tasks, narrowed by conditions; errors keep their place."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from rmqtx.readers.model.errors import BadRequest, FileChanged, NotAStore
from rmqtx.readers.model.tables import ALL_TABLES
from rmqtx.readers.store.store import HALF_TOPIC, open_store
from rmqtx.spark_tasks.session.errors import translated
from tests.forge import damage
from tests.forge.stores import copy_of, unpacked
from tests.spark.frames import locally, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_REPOSITORY = Path(__file__).parent.parent.parent
_PLAIN = """
import json, sys
from pyspark.sql import SparkSession
root = sys.argv[1]
spark = SparkSession.builder.getOrCreate()
states = spark.read.format("rmqtx").option("table", "transactions").load(root).groupBy("state").count().collect()
spark.sql(f"CREATE TEMPORARY VIEW halves USING rmqtx OPTIONS (table 'halves', path '{root}', split_size '64KiB')")
halves = spark.sql("SELECT count(*) AS n FROM halves WHERE commit_log_offset >= 1000").collect()
print(json.dumps({"states": {row["state"]: row["count"] for row in states}, "halves": halves[0]["n"]}))
spark.stop()
"""


def read(spark: SparkSession, path: str | list[str], **options: str) -> DataFrame:
    return spark.read.format("rmqtx").options(**options).load(path)


@pytest.mark.slow
def test_a_plain_session_finds_it_by_itself(tmp_path: Path) -> None:
    root = str(unpacked("common-5.3.3"))
    environment = {
        **os.environ, "PYTHONPATH": str(_REPOSITORY), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
    }
    result = subprocess.run(
        [sys.executable, "-c", _PLAIN, root],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    found = json.loads(result.stdout.strip().splitlines()[-1])
    states = locally("transactions", root)["state"].value_counts().to_pylist()
    assert found["states"] == {row["values"]: row["counts"] for row in states}
    halves = locally("halves", root)["commit_log_offset"].to_pylist()
    assert found["halves"] == sum(offset >= 1000 for offset in halves)


@pytest.mark.usefixtures("at_the_real_moment")  # at which the workers of Spark read
def test_every_table_goes_through_spark_unchanged(spark: SparkSession) -> None:
    root = str(unpacked("killed-5.3.3"))
    moving = ("discard_at_ms", "next_event_at_ms")
    for table in ALL_TABLES:
        frame = read(spark, root, table=table, split_size="64KiB")
        before, found, after = (
            rows_of(rows.drop_columns([name for name in moving if name in rows.column_names]))
            for rows in (locally(table, root), frame.toArrow(), locally(table, root))
        )
        # Verdicts depend on when they are read: a file may reach fileReservedTime in between.
        assert found in (before, after), table
        comments = [field.metadata["comment"] for field in frame.schema]
        assert comments == [field.metadata[b"meaning"].decode() for field in ALL_TABLES[table]]
        if table in ("records", "halves", "ops"):
            total_bytes = sum(segment.size_bytes for segment in open_store(root).commit_log)
            assert frame.rdd.getNumPartitions() >= total_bytes / (64 << 10)


def test_several_stores_are_one_frame(spark: SparkSession) -> None:
    roots = [str(unpacked(name)) for name in ("poison-4.3.0", "poison-4.4.0")]
    frame = read(spark, roots, table="transactions", columns="store,state")
    assert frame.columns == ["store", "state"]
    assert {row.store for row in frame.distinct().collect()} == set(roots)


def test_conditions_are_pushed_down_where_that_is_asked_for(spark: SparkSession) -> None:
    root = str(unpacked("common-5.3.3"))
    frame = read(spark, root, split_size="16KiB", push_filters="true")
    narrow = frame.where(f"topic = '{HALF_TOPIC}' AND commit_log_offset < 16000 AND checks IS NULL")
    plan = narrow._jdf.queryExecution().executedPlan().toString()
    assert "Filter isnull(checks" in plan  # what the scan takes is not asked again
    assert narrow.rdd.getNumPartitions() == 1
    wanted = [
        row["commit_log_offset"]
        for row in locally("records", root).to_pylist()
        if row["topic"] == HALF_TOPIC and row["commit_log_offset"] < 16_000 and row["checks"] is None
    ]
    assert [row.commit_log_offset for row in narrow.collect()] == wanted != []


def test_a_view_may_be_asked_again_and_twice_in_one_query(spark: SparkSession) -> None:
    """With filter pushdown enabled, Spark 4.3.0 answers the second query with the first one's conditions."""
    root = str(unpacked("common-5.3.3"))
    options = f"path '{root}', columns 'commit_log_offset'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW again USING rmqtx OPTIONS ({options})")
    offsets = locally("records", root)["commit_log_offset"].to_pylist()
    low = sum(offset < 16_000 for offset in offsets)
    counts = [
        spark.sql(f"SELECT count(*) AS n FROM {source}").collect()[0].n
        for source in (
            "again WHERE commit_log_offset < 16000",
            "again",
            "(SELECT * FROM again WHERE commit_log_offset < 16000 UNION ALL SELECT * FROM again)",
        )
    ]
    assert counts == [low, len(offsets), low + len(offsets)]


@pytest.mark.usefixtures("spark")  # the session that the page's code gets
def test_the_pages_reproduction_shows_that_the_fault_is_still_there(capsys: pytest.CaptureFixture[str]) -> None:
    """If this fails with a new Spark, its fault is mended, and conditions can be pushed by default."""
    page = (_REPOSITORY / "docs" / "data_source.md").read_text("utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len([line for line in code.splitlines() if line]) <= 25
    exec(code, {"__name__": "reproduction"})
    assert capsys.readouterr().out.split() == ["3", "3", "6"]


def test_an_error_of_a_task_reaches_the_driver_with_file_and_place(spark: SparkSession, tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path / "s")
    frame = read(spark, str(root), table="halves", split_size="64KiB").select("keys")
    assert frame.rdd.getNumPartitions() > 1  # planned: lengths are known
    file = damage.log_files(root)[0]
    damage.truncate(file, 100_000)
    with pytest.raises(FileChanged) as caught, translated():
        frame.collect()
    assert caught.value.file == str(file)
    assert caught.value.position_bytes in (100_000, 2 * 65_536)  # whichever task came first


def test_a_wrong_option_reaches_the_driver(spark: SparkSession) -> None:
    with pytest.raises(BadRequest, match="no option 'tabel'"), translated():
        read(spark, "/s", tabel="records")
    with pytest.raises(NotAStore, match="/nowhere"), translated():
        read(spark, "/nowhere").collect()
