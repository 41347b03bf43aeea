"""CSV: values as they are for programs, and a word about what a spreadsheet would run."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from rmqtx_cli.output.delimited import CsvPort, is_formula
from rmqtx_cli.output.views import View
from tests.cli.conftest import Run
from tests.forge.logs import Forge

FORMULA = '=HYPERLINK("http://evil","x")'


@pytest.mark.parametrize("value", [FORMULA, "+cmd|' /C calc'!A0", "@SUM(1)", "-2+3", "\tx", "=", "-", "+1+1"])
def test_a_formula_is_known(value: str) -> None:
    assert is_formula(value)


@pytest.mark.parametrize("value", ["-5", "+5", "-1.5e3", "", "a=b", "'=x", "7F00=", "-1,5", " "])
def test_what_is_none_is_left_alone(value: str) -> None:
    assert not is_formula(value)


def written(is_safe: bool) -> tuple[list[list[str]], int]:
    stream = io.BytesIO()
    batch = pa.RecordBatch.from_pydict({"keys": [FORMULA, "a", None, "-5"], "n": [-1, 2, 3, 4]})
    port = CsvPort(stream, batch.schema, View(()), is_safe=is_safe)
    port.write(batch)
    return list(csv.reader(io.StringIO(stream.getvalue().decode())))[1:], port.formulas_count


def test_cells_are_neutralised_where_that_is_asked() -> None:
    assert written(is_safe=False) == ([[FORMULA, "-1"], ["a", "2"], ["", "3"], ["-5", "4"]], 1)
    assert written(is_safe=True) == ([["'" + FORMULA, "-1"], ["a", "2"], ["", "3"], ["-5", "4"]], 0)


@pytest.fixture
def forged(tmp_path: Path) -> Path:
    forge = Forge(tmp_path / "store")
    forge.half(FORMULA)
    return forge.write()


def test_one_note_names_the_option(rmqtx: Run, forged: Path, tmp_path: Path) -> None:
    plain = rmqtx("pending", forged, "--format", "csv", "--fields", "transaction_id")
    assert FORMULA.replace('"', '""') in plain.out
    assert plain.err.count("--csv-safe writes them as text") == 1
    safe = rmqtx("pending", forged, "--format", "csv", "--fields", "transaction_id", "--csv-safe")
    assert "'=HYPERLINK" in safe.out
    assert "--csv-safe" not in safe.err
    for more, wanted in (([], '"=HYPERLINK'), (["--csv-safe"], "\"'=HYPERLINK")):
        target = tmp_path / f"out{len(more)}"
        assert rmqtx("export", "records", forged, "--to", target, "--format", "csv", *more).status == 0
        (part,) = target.rglob("part-*.csv")
        assert wanted in part.read_text()
        assert part.stat().st_mode & 0o777 == 0o600


def test_results_are_their_owner_s_alone(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    assert rmqtx("pending", common, "-o", file).status == 0
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o644)
    rmqtx("pending", common, "-o", file)
    assert file.stat().st_mode & 0o777 == 0o644, "who opened it keeps it open"


def test_every_command_with_rows_has_the_option(rmqtx: Run) -> None:
    wanted: Callable[..., bool] = lambda *words: "--csv-safe" in rmqtx(*words, "--help").out  # noqa: E731
    for words in (["pending"], ["audit"], ["show"], ["verify"], ["search"], ["export"], ["stores"], ["decode", "half"],
                  ["receipts"], ["diff"], ["undo"]):
        assert wanted(*words), words
