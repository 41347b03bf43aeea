"""docs/tables.md is what the declarations say."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from rmqtx.spark_tasks.source.read_options import SOURCE_TABLES
from tests.pages.schema_page import ROWS, page


def test_the_page_is_current() -> None:
    written = Path(__file__).parent.parent.parent / "docs" / "tables.md"
    assert written.read_text(encoding="utf-8") == page(), "make man"


def test_every_table_says_what_a_row_is() -> None:
    assert set(ROWS) == set(SOURCE_TABLES)
