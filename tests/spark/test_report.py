"""`rmqtx report` reads with Spark too: the page has the same tables and drawings."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cli.program import RMQTX
from tests.cli.report_pages import Page, read_page
from tests.forge.stores import unpacked

pytestmark = pytest.mark.slow


def page(store: Path, engine: str, file: Path) -> Page:
    """The page of a store, read with an engine by a process of its own."""
    words = [*RMQTX, "report", str(store), "--engine", engine, "-o", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return read_page(file)


def test_the_page_of_both_engines(tmp_path: Path) -> None:
    store = unpacked("common-5.3.3")
    local, spark = (page(store, engine, tmp_path / f"{engine}.html") for engine in ("local", "spark"))
    assert without_examples(spark) == without_examples(local)
    assert [figure.marks for figure in spark.figures] == [figure.marks for figure in local.figures]
    assert "engine = spark" in spark.text


def without_examples(of: Page) -> list[tuple[str, list[list[str]]]]:
    """The tables; the examples of flags are those that come first, in an order that Spark does not have."""
    return [
        (caption, [[cell for cell, head in zip(row, rows[0], strict=True) if head != "example"] for row in rows])
        for _, caption, rows in of.tables
    ]
