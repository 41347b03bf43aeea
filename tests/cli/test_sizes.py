"""Sizes as people write them."""

from __future__ import annotations

import pytest

from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.units import parse_size_bytes


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("64KiB", 65_536), ("128MiB", 134_217_728), ("1GiB", 1 << 30), ("1.5 KiB", 1_536), ("4096", 4_096), ("7b", 7),
     (" 2 tib ", 2 << 40)],
)
def test_sizes(text: str, size_bytes: int) -> None:
    assert parse_size_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "KiB", "3kb", "3 MB", "-1", "0", "0.1b", "1e3", "1KiB2", "one"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="64KiB"):
        parse_size_bytes(text)
