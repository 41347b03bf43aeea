"""The declared pipeline deploy/spark/pipeline: its queries are those of the pages, which other tests run."""

from __future__ import annotations

import re
from pathlib import Path

from tests.verdicts.growing.dashboards import queries

ROOT = Path(__file__).parents[2]
PIPELINE = ROOT / "deploy" / "spark" / "pipeline"


def select_of(name: str) -> str:
    """The query of a materialized view."""
    text = (PIPELINE / "transformations" / f"{name}.sql").read_text("utf-8")
    created, query = re.split(rf"CREATE MATERIALIZED VIEW {name} AS\n", text)
    assert all(line.startswith("--") for line in created.splitlines())
    return query.strip().rstrip(";")


def test_the_views_are_those_of_the_pages() -> None:
    hanging, _, decided, twice = queries()
    page = (ROOT / "docs" / "verdict_changes.md").read_text("utf-8")
    (history,) = re.findall(r"^```sql\n(.*?);\n```", page, re.MULTILINE | re.DOTALL)
    assert [select_of(name) for name in ("verdicts", "hanging", "time_to_decision", "duplicates")] == [
        history, hanging, decided, twice,
    ]


def test_the_page_names_each_table_of_the_pipeline() -> None:
    page = (ROOT / "docs" / "verdict_changes.md").read_text("utf-8")
    made = re.findall(r"^@dp.table\ndef (\w+)", (PIPELINE / "transformations" / "tables.py").read_text("utf-8"), re.M)
    views = [file.stem for file in (PIPELINE / "transformations").glob("*.sql")]
    assert len(made) == 3
    assert not [name for name in [*made, *views] if f"`{name}`" not in page]
