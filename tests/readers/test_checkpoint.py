"""The checkpoint of real brokers, and of files that are none."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.store.checkpoint import (
    CHECKPOINT_FIELDS,
    SIZE_BYTES,
    checkpoint_values,
    flushed_time_ms,
    read_checkpoint,
)
from rmqtx.readers.store.store import Store, open_store
from tests.brokers import corpus
from tests.forge.stores import opened
from tests.representatives import each_store


def store_with(tmp_path: Path, data: bytes) -> Store:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "checkpoint").write_bytes(data)
    return open_store(tmp_path)


@pytest.mark.parametrize("name", each_store(corpus.corpus_names()))
def test_a_real_broker_flushed_up_to_the_time_of_a_record(name: str) -> None:
    store = opened(name)
    reading = read_checkpoint(store)
    rows = {row["field"]: row for row in reading.table().to_pylist()}
    assert reading.findings == []
    assert [(c.decoded_bytes, c.filler_bytes, c.unread_bytes) for c in reading.coverage] == [(48, 4048, 0)]
    assert list(rows) == list(CHECKPOINT_FIELDS.offsets)
    times = set(scan_records(store).table()["store_time_ms"].to_pylist())
    # brokers that were killed, or stopped while busy, may never have written one
    written = {row["time_ms"] for row in rows.values()} - {None}
    assert written <= times
    assert flushed_time_ms(store) == max(written, default=None)


def test_values_have_their_names_and_times_are_told_from_offsets(tmp_path: Path) -> None:
    values = dict(zip(CHECKPOINT_FIELDS.offsets, range(1_700_000_000_000, 1_700_000_000_006), strict=True))
    values["index_msg_time_ms"] = 0
    store = store_with(tmp_path, CHECKPOINT_FIELDS.pack(**values).ljust(SIZE_BYTES, b"\0"))
    rows = read_checkpoint(store).table().to_pylist()
    assert checkpoint_values(store) == values
    assert [row["time_ms"] for row in rows] == [1_700_000_000_000, 1_700_000_000_001, None, None, None, None]
    assert [(row["position_bytes"], row["since"]) for row in rows][3:] == [(24, "5.0.0"), (32, "5.1.1"), (40, "5.5.0")]
    assert flushed_time_ms(store) == 1_700_000_000_001


@pytest.mark.parametrize(("length", "fields"), [(0, 0), (7, 0), (8, 1), (47, 5), (48, 6), (4095, 6), (5000, 6)])
def test_another_length_is_damage_and_what_is_there_is_read(tmp_path: Path, length: int, fields: int) -> None:
    store = store_with(tmp_path, bytes(length))
    reading = read_checkpoint(store)
    assert reading.table().num_rows == fields
    assert [finding.code for finding in reading.findings] == ["checkpoint-damaged"]
    (coverage,) = reading.coverage
    assert coverage.decoded_bytes + coverage.filler_bytes + coverage.damaged_bytes == length
    assert len(checkpoint_values(store)) == fields
    assert flushed_time_ms(store) is None


def test_bytes_where_none_belong_are_damage(tmp_path: Path) -> None:
    reading = read_checkpoint(store_with(tmp_path, bytes(100) + b"\7" + bytes(SIZE_BYTES - 101)))
    assert reading.table().num_rows == 6
    (finding,) = reading.findings
    assert (finding.position_bytes, finding.length_bytes) == (48, 53)
    assert reading.coverage[0].damaged_bytes == 53


def test_no_checkpoint_is_no_row_and_a_directory_is_none(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    store = open_store(tmp_path)
    assert read_checkpoint(store).table().num_rows == 0
    (tmp_path / "checkpoint").mkdir()
    assert read_checkpoint(store).table().num_rows == 0
    assert flushed_time_ms(store) is None


def test_times_that_no_broker_wrote_are_none(tmp_path: Path) -> None:
    noise = random.Random(1).randbytes(SIZE_BYTES)
    store = store_with(tmp_path, b"\x7f" + noise[1:8] + b"\xff" + noise[9:])
    assert read_checkpoint(store).table().num_rows == 6
    assert flushed_time_ms(store) is None
