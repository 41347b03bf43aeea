"""Rows set aside by partition: whole transactions, every row once, the same from memory and from files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtx.readers.jobs.spool import Spool
from rmqtx.readers.model.identities import identity_hashes, partition_of

MASK = (1 << 64) - 1


def partition(text: bytes, count: int) -> int:
    """The number of one identity, step by step: words of eight bytes from its end, of a long one the last 64 bytes."""
    mixed, text = 0, text[-64:]
    while text:
        text, word = text[:-8], int.from_bytes(text[-8:], "little")
        mixed = ((mixed ^ word) * 0x9E3779B97F4A7C15) & MASK
        mixed ^= mixed >> 29
    return mixed % count


@given(st.lists(st.text(max_size=80), max_size=10), st.sampled_from([1, 2, 3, 64]))
def test_the_same_text_goes_to_the_same_partition(texts: list[str], count: int) -> None:
    found = partition_of(identity_hashes(pa.array(texts, pa.string())), count)
    assert found.tolist() == [partition(text.encode(), count) for text in texts]


@given(st.lists(st.text(max_size=24), min_size=2, max_size=10), st.data())
def test_a_slice_has_the_numbers_of_its_rows(texts: list[str], draw: st.DataObject) -> None:
    first = draw.draw(st.integers(0, len(texts)))
    array = pa.array(texts, pa.string())
    assert identity_hashes(array.slice(first)).tolist() == identity_hashes(array).tolist()[first:]


def test_partitions_are_even() -> None:
    ids = pa.array([f"FD0000000000000000000000000000027FE04E0E2F2A6834DE{n:06X}" for n in range(64_000)])
    counts = np.bincount(partition_of(identity_hashes(ids), 64), minlength=64)
    assert counts.min() > 800
    assert counts.max() < 1200


@pytest.mark.parametrize("is_in_memory", [True, False])
def test_every_row_comes_back_once(tmp_path: Path, is_in_memory: bool) -> None:
    spool = Spool(4, None if is_in_memory else tmp_path)
    other = Spool(4, None if is_in_memory else tmp_path)
    rows = [pa.record_batch({"n": list(range(first, first + 10))}) for first in (0, 10, 20)]
    numbers = np.arange(30) % 3  # partition 3 stays empty
    spool.add("halves", rows, numbers.astype(np.int64), "one")
    other.add("halves", rows[:1], numbers[:10].astype(np.int64), "two")
    spool.merge(other)
    if is_in_memory:  # one partition holds all
        assert sum(len(batch) for batch in spool.part("halves", 0)) == 40
        return
    tables = [pa.Table.from_batches(spool.part("halves", number), rows[0].schema) for number in range(4)]
    parts = [table["n"].to_pylist() for table in tables]
    assert parts[3] == []
    assert sorted(n for part in parts for n in part) == sorted([*range(30), *range(10)])
    for number in range(3):
        assert list(parts[number][:10]) == list(range(number, 30, 3))
    assert spool.part("nothing", 0) == []


def test_constant_columns_come_back(tmp_path: Path) -> None:
    schema = pa.schema([("store", pa.string()), ("n", pa.int64()), ("none", pa.int32()), ("flag", pa.bool_())])
    spool = Spool(3, tmp_path)
    for stem, store, numbers in (("a", "one", [1, 2, 3, 4]), ("b", "one", [7]), ("c", "two", [5, 6]), ("d", "two", [])):
        rows = [{"store": store, "n": number, "none": None, "flag": number < 3} for number in numbers]
        batch = pa.RecordBatch.from_pylist(rows, schema)
        spool.add("halves", [batch], np.array(numbers, np.int64) % 3, stem)
    found = [pa.Table.from_batches(spool.part("halves", number), schema) for number in range(3)]
    assert [table["n"].to_pylist() for table in found] == [[3, 6], [1, 4, 7], [2, 5]]
    for table in found:
        for row in table.to_pylist():
            assert row == {
                "store": "two" if row["n"] in (5, 6) else "one", "n": row["n"], "none": None, "flag": row["n"] < 3,
            }
