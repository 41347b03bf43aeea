"""The accelerator's CRCs of bodies are those of zlib, for any length, and on processors without the instruction too."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtx.readers.model.columns import crcs

checksums = pytest.importorskip(
    "rmqtx.readers.log.accelerator.checksums", reason="numba (extra `fast`) is not installed"
)

#: What a processor without the instruction computes, and whether the loop was compiled for it.
ELSEWHERE = """
import numpy as np
from rmqtx.readers.log.accelerator import checksums
data = np.frombuffer(b"0123456789" * 10, np.uint8)
print(checksums.is_supported(), checksums.checksums(data, np.array([0, 5]), np.array([100, 0])).tolist())
"""


@given(st.binary(max_size=700), st.lists(st.tuples(st.integers(0, 700), st.integers(0, 700)), max_size=20))
def test_crcs_are_those_of_zlib(raw: bytes, ends: list[tuple[int, int]]) -> None:
    parts = [sorted(min(end, len(raw)) for end in pair) for pair in ends]
    data = np.frombuffer(raw, np.uint8)
    starts = np.array([begin for begin, _ in parts], np.int64)
    lengths = np.array([end - begin for begin, end in parts], np.int64)
    expected = [zlib.crc32(raw[begin:end]) for begin, end in parts]
    assert checksums.checksums(data, starts, lengths).tolist() == expected
    assert crcs(data, starts, lengths).tolist() == expected


def test_each_length_around_the_steps_of_the_loop() -> None:
    raw = bytes(range(256)) * 2
    data, lengths = np.frombuffer(raw, np.uint8), np.arange(300)
    for begin in (0, 1, 7):
        found = checksums.checksums(data, np.full(300, begin), lengths)
        assert found.tolist() == [zlib.crc32(raw[begin : begin + length]) for length in range(300)]


def test_a_processor_without_the_instruction_uses_the_reference_path() -> None:
    environment = {**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    ended = subprocess.run(
        [sys.executable, "-c", ELSEWHERE], env=environment, capture_output=True, text=True, check=True
    )
    assert ended.stdout.split(maxsplit=1) == ["False", f"[{zlib.crc32(b'0123456789' * 10)}, 0]\n"]
