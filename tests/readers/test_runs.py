"""Reads that are merged give the bytes of each place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtx.readers.model.errors import FileChanged
from rmqtx.readers.storage.open_file import Limits, OpenFile, portions

_PLACES = st.lists(st.tuples(st.integers(0, 900), st.integers(1, 100)), max_size=40)


@given(_PLACES, st.booleans(), st.integers(0, 64), st.integers(1, 300), st.integers(1, 9))
def test_each_place_has_its_bytes(
    places: list[tuple[int, int]], is_sorted: bool, near_bytes: int, portion_bytes: int, places_max: int
) -> None:
    data = bytes(number * 7 % 251 for number in range(1000))
    places = sorted(places) if is_sorted else places
    begins, lengths = (np.array([place[part] for place in places], np.int64) for part in (0, 1))
    found: list[bytes] = []
    for portion in portions(begins, begins + lengths, Limits(near_bytes, portion_bytes, places_max)):
        assert portion.first == len(found)
        assert portion.last - portion.first <= places_max
        read = b"".join(data[begin:end] for begin, end in zip(portion.begins, portion.ends, strict=True))
        assert (portion.ends > portion.begins).all()
        rows = slice(portion.first, portion.last)
        found += [
            read[start : start + length] for start, length in zip(portion.starts, lengths[rows], strict=True)
        ]
    assert found == [data[begin : begin + length] for begin, length in places]


def test_runs_of_a_file_that_became_shorter(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(200)))
    with OpenFile(str(path), 200) as file:
        view = bytearray(30)
        file.read_runs([(5, 15), (100, 120)], memoryview(view))
        assert view == bytes([*range(5, 15), *range(100, 120)])
        path.write_bytes(bytes(50))
        with pytest.raises(FileChanged):
            file.read_runs([(5, 15), (100, 120)], memoryview(view))
