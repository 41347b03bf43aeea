"""Whether look-ups in object storage are cheaper than one reading of the log, by counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rmqtx.verdicts.evidence.lookup_costs import Counts, about_offset, why_dear

GIB, MIB = 1 << 30, 1 << 20

ENTRIES = 20_000_000


@pytest.mark.parametrize(
    ("counts", "is_dear"),
    [
        (Counts(older=80, keys=160, entries=ENTRIES, ops=7_500, span_bytes=7 * GIB, log_bytes=7 * GIB), False),
        (Counts(older=80, keys=160, entries=ENTRIES, ops=7, span_bytes=7 * MIB, log_bytes=7 * GIB), False),
        (Counts(older=19_000, keys=38_000, entries=ENTRIES, ops=7_500, span_bytes=7 * GIB, log_bytes=7 * GIB), True),
        (Counts(older=19_000, keys=38_000, entries=ENTRIES, ops=50, span_bytes=50 * MIB, log_bytes=7 * GIB), False),
        (Counts(older=0, keys=0, entries=0, ops=0, span_bytes=0, log_bytes=4 * MIB), False),
    ],
)
def test_many_old_ones_all_over_the_log_are_dear_and_new_ones_are_not(counts: Counts, is_dear: bool) -> None:
    why = why_dear(counts)
    assert (why is not None) == is_dear
    assert why is None or "and the log takes 896 for 7168 MiB" in why


def test_the_place_of_a_time_lies_between_the_heads_of_the_index() -> None:
    files: list[Any] = [
        SimpleNamespace(begin_offset=0, end_offset=1000, header={"begin_time_ms": 100, "end_time_ms": 200}),
        SimpleNamespace(begin_offset=1000, end_offset=3000, header={"begin_time_ms": 300, "end_time_ms": 400}),
    ]
    times = {50: 0, 100: 0, 150: 500, 250: 1000, 350: 2000, 999: 3000}
    assert {time: about_offset(files, time) for time in times} == times
