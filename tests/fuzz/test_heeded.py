"""`audit` has each finding of `verify --full` about transactions, or another status than 0."""

from __future__ import annotations

import pytest

from tests.fuzz.heeded import compare
from tests.fuzz.matrix import CELLS, OTHER_CELLS
from tests.representatives import rest_is_slow

PARTS = 8
#: Prime to the number of kinds, damages and places.
STRIDE = 11


@pytest.mark.parametrize("part", rest_is_slow(range(PARTS), quick=0, slow=2))
def test_audit_heeds_what_a_verification_finds(part: int) -> None:
    played = [compare(number) for number in range(part * STRIDE, len(CELLS), PARTS * STRIDE)]
    assert [(one.number, one.cell, one.done, one.silent) for one in played if one.silent] == []
    assert sum(one.is_compared for one in played) > len(played) / 2


@pytest.mark.deep
def test_audit_heeds_it_in_other_designs() -> None:
    played = [compare(number, cells=OTHER_CELLS) for number in range(0, len(OTHER_CELLS), 3)]
    assert [(one.number, one.cell, one.done, one.silent) for one in played if one.silent] == []
