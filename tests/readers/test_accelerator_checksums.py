"""The accelerator's CRCs of bodies are those of zlib, for any length."""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtx.readers.model.columns import crcs

checksums = pytest.importorskip(
    "rmqtx.readers.log.accelerator.loops", reason="numba (extra `fast`) is not installed"
)


@given(st.binary(max_size=700), st.lists(st.tuples(st.integers(0, 700), st.integers(0, 700)), max_size=20))
def test_crcs_are_those_of_zlib(raw: bytes, ends: list[tuple[int, int]]) -> None:
    parts = [sorted(min(end, len(raw)) for end in pair) for pair in ends]
    data = np.frombuffer(raw, np.uint8)
    starts = np.array([begin for begin, _ in parts], np.int64)
    lengths = np.array([end - begin for begin, end in parts], np.int64)
    expected = [zlib.crc32(raw[begin:end]) for begin, end in parts]
    assert checksums.checksums(data, starts, lengths).tolist() == expected
    assert crcs(data.data, starts, lengths).tolist() == expected


@pytest.mark.parametrize("lengths", [np.arange(900), np.arange(600, 900)], ids=["by the loop", "by zlib"])
def test_each_length_around_the_steps_of_the_loop(lengths: npt.NDArray[np.int64]) -> None:
    raw = bytes(range(256)) * 4
    data = np.frombuffer(raw, np.uint8)
    for begin in (0, 1, 7):
        found = checksums.checksums(data, np.full(len(lengths), begin), lengths)
        assert found.tolist() == [zlib.crc32(raw[begin : begin + length]) for length in lengths.tolist()]


def test_parts_that_end_outside_the_data_are_those_of_the_reference_path() -> None:
    data, starts = np.frombuffer(b"abcdefgh" * 4, np.uint8), np.array([30, 40, 8, 3])
    for lengths in ([2, 0, 8, 3], [9, 1, 8, 3], [2, 0, -4, 3], [1 << 40, 0, 8, 3]):
        parts = starts, np.array(lengths)
        assert checksums.checksums(data, *parts).tolist() == crcs(data.data, *parts).tolist()
