"""The stream of changed verdicts in Spark, as docs/verdict_changes.md uses it: the page's code runs from its text."""

from __future__ import annotations

import datetime
import json
import random
import re
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions

from rmqtx.readers.model.errors import FileChanged
from rmqtx.readers.model.moments import timestamp_schema
from rmqtx.readers.model.tables import VERDICT_CHANGES
from rmqtx.readers.store.store import open_store
from rmqtx.spark_tasks.session.errors import translated
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.growing.table_step import VERDICTS
from rmqtx.verdicts.growing.tables import TableName
from tests.forge import damage
from tests.forge.logs import Forge
from tests.forge.stores import copy_of, unpacked
from tests.spark.change_queries import SETTINGS, ChangeQuery, assert_sum
from tests.spark.growing import Growing
from tests.verdicts.follow.test_follow import rolling, set_cursors
from tests.verdicts.growing.grown import GrownTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("at_the_real_moment")]  # Spark reads the real clock
_PAGE = Path(__file__).parents[2] / "docs" / "verdict_changes.md"
_EXAMPLE = Path(__file__).parents[2] / "examples" / "orders-5.3.3.tar.xz"
#: When each of the two steps was made, and what contains the check cursor: a new reason alone is not in the stream.
_DIFFERENT = ("valid_from", "valid_to", "reason", "reason_code")
Row = dict[str, Any]


def blocks(directory: Path) -> list[str]:
    """The page's Python code, with all paths below a directory."""
    found = re.findall(r"^```python\n(.*?)^```", _PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(found) == 2
    return [re.sub(r'"(/(?:var|data)/)', rf'"{directory}\1', text) for text in found]


def written(directory: Path) -> list[Row]:
    return [json.loads(line) for file in sorted(directory.glob("*.json")) for line in file.read_text().splitlines()]


def audited(root: Path) -> list[Row]:
    rows: list[Row] = audit([open_store(root)], SETTINGS).table().to_pylist()
    return rows


def test_the_pages_alert_and_join(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "data" / "rocketmq" / "store"
    for directory in (root.parent, tmp_path / "var" / "lib" / "rmqtx", tmp_path / "data" / "ledger"):
        directory.mkdir(parents=True)
    with tarfile.open(_EXAMPLE) as archive:
        archive.extractall(root.parent, filter="data")
    alert, join = blocks(tmp_path)
    names = {"spark": spark, "F": functions}
    cursors, rows = (root / "config" / "consumerOffset.json"), audited(root)
    booked = {key: iso(row) for row in rows for key in row["keys"].split() if key.startswith("order-")}
    status = {key: ("failed", "done")[number % 2] for number, key in enumerate(booked)}
    assert not [row for row in rows if row["keys"] in status]  # an order is one of several words
    orders = [{"order_key": key, "status": status[key], "booked_at": booked[key]} for key in booked]
    (tmp_path / "data" / "ledger" / "1.json").write_text("\n".join(map(json.dumps, orders)))
    wanted: set[tuple[str, str]] = set()
    contradicting: list[set[tuple[str, str]]] = []

    # The check cursor is after all half copies, so the open ones are LOST; then it is back, and they are PENDING.
    right = cursors.read_bytes()
    set_cursors(root, 1 + max(copy["queue_offset"] for row in rows for copy in row["half_copies"]), 10)
    for again in (None, right):
        if again:
            cursors.write_bytes(again)
        exec(alert, names)
        exec(join, names)
        rows = audited(root)
        wanted |= {(row["transaction_id"], row["state"]) for row in rows if row["state"] in ("LOST", "DISCARDED")}
        contradicting.append({
            (key, row["transaction_id"]) for row in rows for key in row["keys"].split() if key in status
            and row["state"] != "PENDING" and (status[key] == "done") != (row["state"] == "COMMITTED")
        })
        last: Any = names["last"]
        found = [(row.order_key, row.transaction_id) for row in last.where("contradicts").collect()]
        assert sorted(found) == sorted(contradicting[-1])
    assert contradicting[0] > contradicting[1] > set(), "no contradiction has ended"
    alerts = written(tmp_path / "data" / "alerts")
    assert sorted((row["transaction_id"], row["state"]) for row in alerts) == sorted(wanted)
    assert {state for _, state in wanted} == {"LOST", "DISCARDED"}


def iso(row: Row) -> str:
    time_s = row["half_store_time_ms"] / 1000
    return datetime.datetime.fromtimestamp(time_s, datetime.UTC).isoformat(timespec="milliseconds")


@pytest.mark.started
def test_a_store_and_then_that_of_another_broker(spark: SparkSession, tmp_path: Path) -> None:
    root = copy_of("poison-4.3.0", tmp_path / "s")
    run(spark, root, tmp_path)
    assert_sink_is_audit(spark, root, tmp_path)
    size = damage.log_files(root)[0].stat().st_size
    for file in damage.log_files(root):
        file.unlink()
    other = Forge(root, segment_bytes=size)
    other.half("another")
    other.write()
    both = r"a record of 127.* was at offset .* in a log of 10\.0\.0\.1:10911"
    with pytest.raises(FileChanged, match=both), translated():
        run(spark, root, tmp_path)


def assert_sink_is_audit(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    found = spark.read.parquet(str(tmp_path / "sink")).orderBy("sequence").toArrow()
    assert_sum(found.to_pylist(), audit([open_store(root)], SETTINGS).table())


def run(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    """The query of `killed_change_query` with the trigger AvailableNow."""
    (
        spark.readStream.format("rmqtx")
        .options(table="verdict_changes", checkpoint=str(tmp_path / "changes.sqlite"), max_rows_per_batch="9")
        .load(str(root))
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "offsets"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "sink"))
        .awaitTermination()
    )


@pytest.mark.parametrize("kills", [pytest.param(3, id="3"), pytest.param(50, id="50", marks=pytest.mark.deep)])
@pytest.mark.timeout(0)
def test_a_query_that_is_killed_repeats_and_loses_nothing(kills: int, spark: SparkSession, tmp_path: Path) -> None:
    growing, chance = Growing(unpacked("killed-5.3.3"), tmp_path / "copy"), random.Random(kills)
    places = [growing.root, *(tmp_path / name for name in ("changes.sqlite", "sink", "offsets"))]
    batches = 0
    for number, moment in enumerate(growing.moments(kills, 4)):
        growing.write_to(moment)
        # Without a batch before it, the kill hits the start and the first reading.
        killed_at = [number % 3, chance.uniform(0, 1.5 if number % 3 else 15)]
        child = subprocess.run(
            [sys.executable, "-m", "tests.spark.killed_change_query", *map(str, [*killed_at, *places])],
            cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False,
            start_new_session=True,
        )
        assert child.returncode == -signal.SIGKILL
        batches += child.stdout.count("batch")
    assert batches
    run(spark, growing.root, tmp_path)
    assert_sink_is_audit(spark, growing.root, tmp_path)


def test_the_pages_history_is_that_of_a_growing_table(spark: SparkSession, tmp_path: Path) -> None:
    (history,) = re.findall(r"^```sql\n(.*?);\n```", _PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    growing = Growing(rolling(tmp_path / "whole", 1, halves=20), tmp_path / "copy")
    query = ChangeQuery([growing.root], tmp_path / "changes.sqlite", {"timestamps": "true"})
    grown = GrownTable([growing.root], TableName("parquet", str(tmp_path / "table")), tmp_path / "checkpoint", SETTINGS)
    for number, moment in enumerate(growing.moments(6, 5)):
        growing.write_to(moment)
        set_cursors(growing.root, moment // 700, moment // 2000)
        for file in damage.log_files(growing.root)[: number // 2]:
            file.unlink()
        query.run()
        grown.step()
    changes = pa.Table.from_pylist(query.rows(), timestamp_schema(VERDICT_CHANGES))
    spark.createDataFrame(changes).createOrReplaceTempView("verdict_changes")
    found = spark.sql(history).toArrow()
    spark.catalog.dropTempView("verdict_changes")
    rows = grown.rows()
    assert {row["closed_by"] for row in rows} == {None, "state", "gone"}
    assert found.column_names == VERDICTS.names
    assert comparable(found.to_pylist()) == comparable(rows)


def comparable(rows: list[Row]) -> list[str]:
    same = [{name: value for name, value in row.items() if name not in _DIFFERENT} for row in rows]
    return sorted(repr((one, row["valid_to"] is None)) for one, row in zip(same, rows, strict=True))
