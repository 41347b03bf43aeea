"""The accelerator's columns of texts are those of the reference path, also near the end of the buffer."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtx.readers.model.columns import SLACK_BYTES, coded, strings, views

texts = pytest.importorskip("rmqtx.readers.log.accelerator.texts", reason="numba (extra `fast`) is not installed")

WORDS = ["", "a", "b", "orders", "orderz", "Xrders", "12345678", "1234567", "123456789", "\x02" * 9, "twelve bytes",
         "thirteen byte", "a text of more than sixteen bytes", "a text of more than sixteen bytez", "ключ"]


LONG = "the last text, which ends where the buffer ends"


@given(st.lists(st.tuples(st.sampled_from(WORDS), st.booleans(), st.integers(0, 9)), max_size=30), st.booleans())
def test_views_and_codes_are_those_of_the_reference_path(found: list[tuple[str, bool, int]], has_slack: bool) -> None:
    raw, starts = b"begin", []
    for word, _, gap in (found := [*found, (LONG, True, 0)]):
        starts.append(len(raw))
        raw += word.encode() + b"\xff" * gap
    raw += bytes(SLACK_BYTES if has_slack else 0)
    lengths = np.array([len(word.encode()) for word, _, _ in found], np.int64)
    column = np.frombuffer(raw, np.uint8), pa.py_buffer(raw), np.array(starts, np.int64), lengths
    for present in (None, np.array([is_present for _, is_present, _ in found], np.bool_)):
        assert texts.text_views(*column, present).equals(views(*column, present))
        codes = texts.codes(*column, present)
        codes.validate(full=True)
        assert codes.equals(coded(*column, present))
        assert texts.texts(*column, present).equals(strings(views(*column, present)))


def test_many_different_texts() -> None:
    raw = b"".join(b"%06d" % number for number in range(5000)) + bytes(SLACK_BYTES)
    column = np.frombuffer(raw, np.uint8), pa.py_buffer(raw), np.arange(5000) * 6, np.full(5000, 6, np.int64)
    assert texts.codes(*column).equals(coded(*column))
