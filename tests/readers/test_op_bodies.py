"""Op bodies read in one pass are those that a plain parser reads; one wrong byte is found by its CRC."""

from __future__ import annotations

import re
import zlib

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from rmqtx.readers.log.corrected_records import corrected_op_numbers
from rmqtx.readers.log.op_messages import parse_op_bodies

numbers = st.integers(0, 10**18 - 1)
lists = st.lists(numbers, max_size=6).map(lambda found: "".join(f"{number}," for number in found).encode())
singles = numbers.map(lambda number: str(number).encode())
strange = st.text("0123456789,x- \0", max_size=24).map(str.encode)
bodies = st.lists(st.tuples(lists | singles | strange, st.booleans()), max_size=8)


def parsed(body: bytes, is_intact: bool) -> tuple[list[int] | None, str]:
    if not is_intact or not re.fullmatch(rb"(?:[0-9]{0,18},)*[0-9]{0,18}", body) or not body:
        return None, "unreadable"
    return [int(part) for part in body.split(b",") if part], "list" if b"," in body else "single"


@given(bodies)
@example([(b"", True), (b"1", True), (b"", False), (b"2,", True)])
@example([(b"12", True), (b"34", True), (b",", True), (b",,1", True)])
@example([(b"9" * 19, True), (b"9" * 18, True)])
@example([(b"1x", True), (b"2", True)])
def test_bodies(found: list[tuple[bytes, bool]]) -> None:
    array = pa.array([body for body, _ in found], pa.binary())
    intact = np.array([is_intact for _, is_intact in found], np.bool_)
    values, forms = parse_op_bodies(array, intact)
    wanted = [parsed(*pair) for pair in found]
    assert values.to_pylist() == [value for value, _ in wanted]
    assert forms.to_pylist() == [form for _, form in wanted]


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 60)), min_size=1, max_size=40),
    st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(b",x0\0")), max_size=3), st.booleans(),
)
def test_lists_of_numbers_of_one_width(
    widths: list[tuple[int, int]], flips: list[tuple[int, int]], is_sorted: bool
) -> None:
    widths = sorted(widths) if is_sorted else widths
    text = bytearray(b"".join(b"7" * width + b"," for width, count in widths for _ in range(count)))
    for place, value in flips:
        text[place % len(text)] = value
    found, place = [], 0
    for width, count in widths:
        found.append(bytes(text[place : place + (width + 1) * count]))
        place += (width + 1) * count
    values, forms = parse_op_bodies(pa.array(found, pa.binary()), np.ones(len(found), np.bool_))
    wanted = [parsed(body, True) for body in found]
    assert list(zip(values.to_pylist(), forms.to_pylist(), strict=True)) == wanted


def test_each_digit_counts() -> None:
    numbers = list(range(1_234_000, 1_267_890, 7))
    body = "".join(f"{number}," for number in numbers).encode()
    values, _ = parse_op_bodies(pa.array([body] * 9, pa.binary()), np.ones(9, np.bool_))
    assert values.to_pylist() == [numbers] * 9


@given(bodies, st.integers(0, 3))
def test_a_slice_of_an_array(found: list[tuple[bytes, bool]], skipped: int) -> None:
    array = pa.array([b"7"] * skipped + [body for body, _ in found] + [b"8,"], pa.binary()).slice(skipped, len(found))
    values, _ = parse_op_bodies(array, np.array([is_intact for _, is_intact in found], np.bool_))
    assert values.to_pylist() == [parsed(*pair)[0] for pair in found]


@given(st.lists(numbers, min_size=1, max_size=40), st.data())
def test_one_wrong_byte_is_put_right(found: list[int], data: st.DataObject) -> None:
    body = "".join(f"{number}," for number in found).encode()
    stored = zlib.crc32(body) & 0x7FFFFFFF
    place = data.draw(st.integers(0, len(body) - 1))
    mask = data.draw(st.integers(1, 255))
    wrong = body[:place] + bytes([body[place] ^ mask]) + body[place + 1 :]
    assert corrected_op_numbers(wrong, stored) == found


@given(st.lists(numbers, min_size=1, max_size=10), st.integers(0, 3), st.integers(1, 255))
def test_one_wrong_byte_of_the_crc_is_no_matter(found: list[int], byte: int, mask: int) -> None:
    body = "".join(f"{number}," for number in found).encode()
    assert corrected_op_numbers(body, (zlib.crc32(body) & 0x7FFFFFFF) ^ mask << 8 * byte) == found


def test_what_cannot_be_put_right_is_not_guessed() -> None:
    assert corrected_op_numbers(b"", 0) is None
    assert corrected_op_numbers(b"words", zlib.crc32(b"words")) is None
    assert corrected_op_numbers(b"12,\xff\xff\xff", zlib.crc32(b"12,13,")) is None
