"""Properties of thousands of records at once are those that a plain parser finds in each."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmqtx.readers.log.properties import KNOWN, PropertyAreas, properties_of
from rmqtx.readers.model.columns import SLACK_BYTES

pytestmark = pytest.mark.usefixtures("engine")
NAMES = [*KNOWN, "A", "UNIQ", "UNIQ_KEYS", "XUNIQ_KEY", "KEY", "__transactionId", "IMMUNITY_AND_MORE_THAN_EIGHT", "é"]
WORDS = [*NAMES, "1", "", "wert", "\x01", "\x02", "\x01\x02", "\0", "a b", "ключ"]
areas = st.lists(st.sampled_from(["\x01", "\x02", *WORDS]), max_size=12).map(lambda words: "".join(words).encode())
well_formed = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(WORDS)), max_size=6).map(
    lambda pairs: "".join(f"{name}\x01{value}\x02" for name, value in pairs).encode()
)
any_bytes = st.binary(max_size=40)
batches = st.lists(areas | well_formed | any_bytes, max_size=8)


def parsed(area: bytes) -> list[tuple[bytes, bytes]]:
    """The rule in its plainest form (MessageDecoder.string2messageProperties)."""
    pairs = []
    for piece in area.split(b"\x02"):
        name, mark, value = piece.partition(b"\x01")
        if mark and name and value:
            pairs.append((name, value))
    return pairs


def gathered(found: list[bytes], gap: bytes = b"UNIQ_KEY\x01not in an area\x02") -> PropertyAreas:
    """Areas as they lie in a window: other bytes between them."""
    data, starts = gap, []
    for area in found:
        starts.append(len(data))
        data += area + gap
    data += bytes(SLACK_BYTES)
    lengths = [len(area) for area in found]
    return properties_of(
        np.frombuffer(data, np.uint8), pa.py_buffer(data), np.array(starts, np.int64), np.array(lengths, np.int64)
    )


@given(batches)
@example([b"UNIQ_KEY\x01a\x02UNIQ_KEY\x01b\x02"])
@example([b"", b"UNIQ_KEY\x01last of its area"])
@example([b"UNIQ_KEY\x01", b"a\x02UNIQ_KEY\x01\x02"])
@example([b"\x02\x02\x01\x02", b"\x01"])
def test_a_property_is_the_last_of_its_name(found: list[bytes]) -> None:
    properties = gathered(found)
    plain = [dict(parsed(area)) for area in found]
    for name in NAMES:
        wanted = [pairs.get(name.encode()) for pairs in plain]
        assert properties.value(name).cast(pa.binary()).to_pylist() == wanted
        texts = [None if value is None else value.decode("utf-8", "backslashreplace") for value in wanted]
        assert properties.text(name).to_pylist() == texts
        assert properties.locate(name)[2].tolist() == [value is not None for value in wanted]


@given(batches)
def test_maps_hold_every_property_in_stored_order(found: list[bytes]) -> None:
    wanted = [
        [(name.decode("utf-8", "backslashreplace"), value.decode("utf-8", "backslashreplace")) for name, value in pairs]
        for pairs in map(parsed, found)
    ]
    assert gathered(found).maps().to_pylist() == wanted


def test_none_at_all() -> None:
    properties = gathered([])
    assert properties.value("UNIQ_KEY").to_pylist() == []
    assert properties.maps().to_pylist() == []


def test_a_window_that_holds_nothing_but_the_areas() -> None:
    properties = gathered([b"A\x01b", b"A\x01c\x02"], gap=b"")
    assert properties.text("A").to_pylist() == ["b", "c"]


def test_long_values_and_many_records() -> None:
    found = [f"UNIQ_KEY\x01{'F' * 32}{number:08X}\x02KEYS\x01{'k' * number}\x02".encode() for number in range(2000)]
    properties = gathered(found)
    assert properties.text("UNIQ_KEY").to_pylist() == [f"{'F' * 32}{number:08X}" for number in range(2000)]
    assert [len(text or "") for text in properties.text("KEYS").to_pylist()] == list(range(2000))


@pytest.mark.parametrize(
    ("area", "is_malformed"),
    [
        (b"A\x01x\x02B\x01y\x02", False), (b"A\x01x", False), (b"A\x01x\x02\x02B\x01y", False), (b"A\x01\x02", True),
        (b"A\x01", True), (b"\x01x\x02", True), (b"A\x02", True), (b"A\x01x\x01y\x02", True), (b"", False),
    ],
)
def test_a_piece_without_a_name_or_a_value_is_malformed_alone_and_among_others(area: bytes, is_malformed: bool) -> None:
    """Else `verify` reports no damage where a byte of the properties was lost."""
    assert gathered([area]).malformed().tolist() == [is_malformed]
    sound = b"A\x01x\x02"
    assert gathered([sound, area, sound]).malformed().tolist() == [False, is_malformed, False]
