"""The mark of fillers is found wherever it begins."""

from __future__ import annotations

import pytest

from rmqtx.readers.log.record_layout import FILLER_MARK
from rmqtx.readers.log.segment_scan import holds_mark


@pytest.mark.parametrize("before", [*range(9), (1 << 18) - 14, (1 << 18) - 6, 1 << 18])
def test_a_mark_is_found_at_any_place(before: int) -> None:
    for after in (0, 1, 2, 3, 500):
        assert holds_mark(b"R" * before + FILLER_MARK + b"x" * after)
        assert not holds_mark(b"R" * before + FILLER_MARK[:-1] + b"x" * after)


def test_too_little_for_a_mark() -> None:
    assert not holds_mark(b"")
    assert not holds_mark(FILLER_MARK[1:])
