"""The dashboards of the page, in DuckDB."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtx.verdicts.growing.tables import TableName
from tests.forge.stores import settings_of, unpacked
from tests.spark.growing import Growing
from tests.verdicts.growing.dashboards import PAGE, assert_right, queries
from tests.verdicts.growing.grown import GrownTable

duckdb = pytest.importorskip("duckdb")
NAME = "failover-5.3.3"


def test_the_dashboards_in_duckdb(tmp_path: Path) -> None:
    growing = Growing(unpacked(NAME), tmp_path / "copy")
    name = TableName("parquet", str(tmp_path / "table"))
    grown = GrownTable([growing.root], name, tmp_path / "checkpoint", settings_of(NAME))
    for moment in growing.moments(4, 1):
        growing.write_to(moment)
        grown.step()
    recipe = PAGE.read_text("utf-8").partition("In DuckDB:\n\n```\n")[2].partition("```")[0]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for statement in recipe.replace("'/verdicts/", f"'{tmp_path}/table/").split(";"):
            if statement.strip():
                connection.execute(statement)
        answers = []
        for query in queries():
            found = connection.execute(query)
            names = [column[0] for column in found.description]
            answers.append([dict(zip(names, row, strict=True)) for row in found.fetchall()])
    assert_right(answers, grown.rows(), tolerance_s=1)
