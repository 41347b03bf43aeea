"""Tables of verdicts that grow, from Spark: executors read what is new, Spark reads the table, its SQL answers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from rmqtx import spark as api
from rmqtx.spark_tasks.source.read_options import Settings, parse_options
from tests.forge.stores import unpacked
from tests.spark.growing import Growing
from tests.verdicts.growing.dashboards import assert_right, queries
from tests.verdicts.growing.grown import KINDS, GrownTable, named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "failover-5.3.3"
SETTINGS = Settings(parse_options({"path": "/"}))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_step_is_the_audit_and_spark_reads_it(
    kind: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    growing = Growing(unpacked(NAME), tmp_path / "copy")
    grown = GrownTable([growing.root], named(kind, tmp_path, monkeypatch), tmp_path / "checkpoint", SETTINGS)
    read_bytes = 0
    for moment in growing.moments(4, 1):
        growing.write_to(moment)
        done = api.audit_into(growing.root, str(grown.table), checkpoint=grown.checkpoint, spark=spark)
        rows = grown.assert_current()
        read_bytes += done.bytes_read
    assert 0 < read_bytes < 1.5 * growing.end
    frame = api.verdicts(str(grown.table), spark=spark)
    table = frame.toArrow().select(list(rows[0]))
    assert sorted(map(repr, table.to_pylist())) == sorted(map(repr, rows))
    frame.createOrReplaceTempView("verdicts")
    answers = [[row.asDict() for row in spark.sql(query).collect()] for query in queries()]
    assert_right(answers, rows, tolerance_s=0.001)
    spark.catalog.dropTempView("verdicts")
