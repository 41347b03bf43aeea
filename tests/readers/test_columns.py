"""Columns out of positions in a buffer: against the plain Python that says the same about one value."""

from __future__ import annotations

import ipaddress

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtx.readers.model.columns import (
    SLACK_BYTES,
    IntegerSet,
    hexadecimal,
    hosts,
    integers,
    integers_at,
    lists_of,
    message_ids,
    nulls,
    scatter,
    strings,
    views,
)


def padded(data: bytes) -> tuple[np.ndarray[tuple[int], np.dtype[np.uint8]], pa.Buffer]:
    whole = data + bytes(SLACK_BYTES)
    return np.frombuffer(whole, np.uint8), pa.py_buffer(whole)


@given(
    st.lists(st.integers(0, 50) | st.integers(-(1 << 62), 1 << 62), max_size=8),
    st.lists(st.integers(-5, 55) | st.integers(-(1 << 62), 1 << 62), max_size=8),
)
def test_which_integers_are_in_a_set(chosen: list[int], asked: list[int]) -> None:
    found = IntegerSet(np.array(chosen, np.int64)).has(np.array([*asked, *chosen], np.int64))
    assert found.tolist() == [value in chosen for value in (*asked, *chosen)]


@given(st.binary(min_size=8, max_size=64), st.data())
def test_integers_at_any_place(data: bytes, draw: st.DataObject) -> None:
    for code, width in ((">i2", 2), (">i4", 4), (">i8", 8)):
        places = draw.draw(st.lists(st.integers(0, len(data) - width), max_size=5))
        found = integers_at(np.frombuffer(data, np.uint8), np.array(places, np.int64), code)
        assert found.tolist() == [int.from_bytes(data[p : p + width], "big", signed=True) for p in places]
        assert found.dtype.isnative


def test_integers_behind_the_end_are_refused() -> None:
    with pytest.raises(IndexError):
        integers_at(np.zeros(8, np.uint8), np.array([5]), ">i4")


@given(st.binary(max_size=80), st.data())
def test_views(data: bytes, draw: st.DataObject) -> None:
    place = st.integers(0, len(data))
    pairs = [tuple(sorted(pair)) for pair in draw.draw(st.lists(st.tuples(place, place), max_size=6))]
    valid = np.array(draw.draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs))), np.bool_)
    starts = np.array([begin for begin, _ in pairs], np.int64)
    lengths = np.array([end - begin for begin, end in pairs], np.int64)
    bytes_, buffer = padded(data)
    column = views(bytes_, buffer, starts, lengths, valid)
    column.validate(full=True)
    wanted = [data[begin:end] if keep else None for (begin, end), keep in zip(pairs, valid, strict=True)]
    assert column.cast(pa.binary()).to_pylist() == wanted


def test_text_that_is_none_is_escaped_and_not_lost() -> None:
    column = pa.array([b"abc", None, b"\xff\x00z", "ключ".encode(), b"\xc3"], pa.binary())
    assert strings(column).to_pylist() == ["abc", None, "\\xff\x00z", "ключ", "\\xc3"]


def test_numbers_that_are_none_are_null() -> None:
    words = ["0", "-7", "007", "999999999", "1000000000", "1.5", "", " 1", "1\n", "x", None, "+1"]
    texts = pa.array(words, pa.string())
    assert integers(texts, pa.int32()).to_pylist() == [
        0, -7, 7, 999_999_999, None, None, None, None, None, None, None, None
    ]
    assert integers(pa.array(["9" * 18, "9" * 19]), pa.int64()).to_pylist() == [10**18 - 1, None]


@given(st.lists(st.booleans(), max_size=8), st.data())
def test_hosts_and_message_ids(wide: list[bool], draw: st.DataObject) -> None:
    fields, starts, data = [], [], b"\0" * 3
    for is_v6 in wide:
        width = 16 if is_v6 else 4
        raw = draw.draw(st.binary(min_size=width, max_size=width)) + draw.draw(st.integers(0, 65535)).to_bytes(4, "big")
        starts.append(len(data))
        fields.append(raw)
        data += raw
    offsets = [draw.draw(st.integers(0, 2**62)) for _ in wide]
    bytes_, _ = padded(data)
    places, is_v6s = np.array(starts, np.int64), np.array(wide, np.bool_)
    texts = []
    for raw in fields:
        address = ipaddress.ip_address(raw[:-4])
        port = int.from_bytes(raw[-4:], "big")
        texts.append(f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}")
    assert hosts(bytes_, places, is_v6s).to_pylist() == texts
    ids = [(raw + offset.to_bytes(8, "big")).hex().upper() for raw, offset in zip(fields, offsets, strict=True)]
    assert message_ids(bytes_, places, is_v6s, np.array(offsets, np.int64)).to_pylist() == ids


def test_hexadecimal_and_nulls() -> None:
    assert hexadecimal(np.array([[0, 255], [16, 1]], np.uint8)).to_pylist() == ["00FF", "1001"]
    assert nulls(2, pa.int64()).to_pylist() == [None, None]


def test_rows_that_no_part_covers_are_null() -> None:
    def make(rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
        return pa.array([str(row) for row in rows.tolist()], pa.string())

    masks = [np.array([True, False, False, True]), np.array([False, True, False, False])]
    assert scatter(4, [(mask, make) for mask in masks]).to_pylist() == ["0", "1", None, "3"]
    assert scatter(0, []).to_pylist() == []


@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=3, max_size=3))
def test_lists_have_the_names_of_their_masks(masks: list[list[bool]]) -> None:
    names = ("one", "two", "three")
    found = lists_of(names, [np.array(mask) for mask in masks], 4, pa.list_(pa.string()))
    expected = [[name for name, mask in zip(names, masks, strict=True) if mask[row]] for row in range(4)]
    assert found.to_pylist() == expected
