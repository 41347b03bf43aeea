"""Every block of docs/sql_examples.md is run, in order, on copies of two stores of which one is damaged."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from tests.forge import damage
from tests.forge.stores import copy_of
from tests.spark.frames import locally

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow
_PAGE = Path(__file__).parent.parent.parent / "docs" / "sql_examples.md"
_BLOCK = re.compile(r"^```(sql|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
Row = dict[str, Any]


def blocks() -> list[tuple[str, str]]:
    return _BLOCK.findall(_PAGE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the page calls /evidence and /data."""
    directory = tmp_path_factory.mktemp("examples")
    copy_of("common-5.3.3", directory / "evidence" / "broker-a")
    root = copy_of("killed-5.3.3", directory / "evidence" / "broker-b")
    damage.write_bytes(damage.log_files(root)[3], 4000, b"\xff" * 3000)
    return directory


@pytest.fixture(scope="module")
def answers(spark: SparkSession, evidence: Path) -> list[tuple[str, list[Row]]]:
    """Each query of the page with its rows."""
    _write_ledger(spark, evidence)
    found = []
    for language, text in blocks():
        text = text.replace("'/", f"'{evidence}/").replace('"/', f'"{evidence}/').replace("`/", f"`{evidence}/")
        if language == "python":
            exec(text, {"spark": spark})
            continue
        for statement in filter(None, (part.strip() for part in text.split(";"))):
            rows = [row.asDict(recursive=True) for row in spark.sql(statement).collect()]
            if statement.startswith(("SELECT", "WITH")):
                found.append((statement, rows))
    return found


def _write_ledger(spark: SparkSession, evidence: Path) -> None:
    rows = locally("transactions", str(evidence / "evidence" / "broker-a" / "store")).to_pylist()
    keys = sorted({row["keys"].split(" ")[0] for row in rows if row["keys"]})
    ledger = [(key, ("done", "cancelled", "done")[number % 3]) for number, key in enumerate(keys)]
    frame = spark.createDataFrame(ledger, "order_key string, status string")
    frame.write.parquet(str(evidence / "data" / "ledger.parquet"))


def test_every_query_gives_rows(answers: list[tuple[str, list[Row]]]) -> None:
    assert len(answers) > 18
    empty = [statement for statement, rows in answers if not rows]
    assert empty == []


def _answer(answers: list[tuple[str, list[Row]]], words: str) -> list[Row]:
    return next(rows for statement, rows in answers if words in statement)


def test_they_say_what_is_so(answers: list[tuple[str, list[Row]]], evidence: Path) -> None:
    intact = locally("transactions", str(evidence / "evidence/broker-a/store")).to_pylist()
    pending = sum(row["state"] == "PENDING" for row in intact)
    assert sum(row["hanging"] for row in _answer(answers, "AS hanging")) >= pending > 0
    same = _answer(answers, "with_the_same_state")[0]
    assert same["transactions"] == same["with_the_same_state"]
    gone = _answer(answers, "records_gone")
    assert {Path(row["store"]).parent.name for row in gone} == {"broker-b"}
    assert {row["code"] for row in _answer(answers, "any_value(meaning)")} >= {"record-damaged"}
    twice = {row["transaction_id"] for row in _answer(answers, "AS delivered")}
    assert twice >= {row["transaction_id"] for row in intact if len(row["final_records"]) > 1}
    timeline = _answer(answers, "WITH one AS")
    assert timeline[0]["event"] == "half"
    assert [row["commit_log_offset"] for row in timeline] == sorted(row["commit_log_offset"] for row in timeline)
    archive = sum(row["transactions"] for row in _answer(answers, "FROM verdict_archive"))
    counts = _answer(answers, "ROLLUP")
    assert archive == max(row["transactions"] for row in counts)
    streamed = _answer(answers, "AS half_copies")[0]["half_copies"]
    roots = [evidence / "evidence" / name / "store" for name in ("broker-a", "broker-b")]
    assert streamed == sum(locally("halves", str(root)).num_rows for root in roots)
    assert all(row["body_bytes"] > 0 for row in _answer(answers, "base64"))
