"""Bodies as producers compress them; what is no whole stream, or claims to be larger than any message, is no body."""

from __future__ import annotations

import tracemalloc
import zlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtx.readers.log import compression
from rmqtx.readers.log.compression import COMPRESSED, inflate, is_stream

LZ4, ZSTD, ZLIB, OLD = COMPRESSED | 0x100, COMPRESSED | 0x200, COMPRESSED | 0x300, COMPRESSED


def compressed(body: bytes, flag: int) -> bytes:
    if flag in (ZLIB, OLD):
        return zlib.compress(body)
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "lz4" if flag == LZ4 else "zstd") as stream:
        stream.write(body)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("flag", [LZ4, ZSTD, ZLIB, OLD])
@pytest.mark.parametrize("body", [b"", b"x", b"body" * 5000, bytes(3 << 20)], ids=len)
def test_what_was_compressed_comes_back(flag: int, body: bytes) -> None:
    stream = compressed(body, flag)
    assert is_stream(stream[:4], flag)
    assert inflate(stream, flag) == body
    assert inflate(stream, 0) == stream


@given(st.binary(max_size=60), st.sampled_from([LZ4, ZSTD, ZLIB, OLD]))
def test_other_bytes_are_no_stream_and_no_error(body: bytes, flag: int) -> None:
    assert inflate(body, flag) is None or is_stream(body[:4], flag) or not body


@pytest.mark.parametrize("flag", [LZ4, ZSTD, ZLIB, OLD])
def test_a_stream_that_was_cut_is_none(flag: int) -> None:
    stream = compressed(bytes(range(256)) * 40, flag)
    for length in range(4, len(stream) - 4, 7):
        assert inflate(stream[:length], flag) is None, length


@pytest.mark.parametrize("flag", [LZ4, ZSTD, ZLIB])
def test_a_bomb_is_no_body(flag: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "INFLATED_BYTES_MAX", 2 << 20)
    assert inflate(compressed(bytes(8 << 20), flag), flag) is None


@pytest.mark.parametrize("flag", [LZ4, ZSTD])
def test_a_small_body_takes_little_memory(flag: int) -> None:
    """Found by fuzzing: each body once took what the largest may have."""
    stream = compressed(b"small", flag)
    tracemalloc.start()
    inflate(stream, flag)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20
