"""Epoch files of replicas under a controller."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from rmqtx.readers.store.epoch_file import FILE_NAME, read_epochs
from rmqtx.readers.store.store import Store, open_store
from tests.brokers import corpus
from tests.forge.stores import opened
from tests.verdicts.truth import require_judged_as_any_store

NAMES = corpus.corpus_names("controller")
LINES = "1-0\n2-4096\n5-70000\n"


def store_with(text: str, tmp_path: Path) -> Store:
    (tmp_path / "config").mkdir()
    (tmp_path / FILE_NAME).write_text(text)
    return open_store(tmp_path)


def whole(lines: str) -> str:
    return f"{lines.count(chr(10))}\n{zlib.crc32(lines.encode()) & 0x7FFFFFFF}\n{lines}"


@pytest.mark.parametrize("name", NAMES)
def test_a_broker_s_file_is_sound(name: str) -> None:
    reading = read_epochs(opened(name))
    rows = reading.table().to_pylist()
    assert [(row["begin_offset"], row["end_offset"]) for row in rows] == [(0, None)]
    assert reading.findings == []


@pytest.mark.parametrize("name", NAMES)
def test_transactions_are_judged_as_in_any_store(name: str) -> None:
    require_judged_as_any_store(name)


def test_epochs_follow_one_another(tmp_path: Path) -> None:
    reading = read_epochs(store_with(whole(LINES), tmp_path))
    rows = reading.table().to_pylist()
    fields = ("epoch", "begin_offset", "end_offset")
    assert [tuple(row[field] for field in fields) for row in rows] == [(1, 0, 4096), (2, 4096, 70000), (5, 70000, None)]
    assert reading.findings == []


@pytest.mark.parametrize(
    ("text", "rows_count"),
    [
        (whole(LINES).replace("4096", "4097"), 3),
        (whole(LINES).replace("3\n", "4\n", 1), 3),
        (whole(LINES).replace("2-4096", "two"), 2),
        ("", 0),
        ("3\n", 0),
        ("\x00" * 50, 0),
    ],
)
def test_a_file_that_contradicts_itself(text: str, rows_count: int, tmp_path: Path) -> None:
    reading = read_epochs(store_with(text, tmp_path))
    assert reading.table().num_rows == rows_count
    assert {finding.code for finding in reading.findings} == {"epochs-damaged"}


def test_no_file_is_no_finding(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    reading = read_epochs(open_store(tmp_path))
    assert list(reading) == []
    assert reading.findings == []
    assert "no controller" in reading.notes[0].text
