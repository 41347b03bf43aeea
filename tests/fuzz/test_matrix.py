"""Some hundred cases of the damage matrix; `make fuzz` plays ten thousand."""

from __future__ import annotations

import pytest

from tests.fuzz.matrix import CELLS, FOUND, OTHER_CELLS, play
from tests.representatives import rest_is_slow

#: Prime to the number of kinds, damages and places, so that all of them come together in time.
STRIDE = 7
PARTS = 8


@pytest.mark.parametrize("part", rest_is_slow(range(PARTS), quick=0, slow=1))
def test_damage_is_found_or_cannot_be(part: int) -> None:
    played = [play(number) for number in range(part * STRIDE, len(CELLS), PARTS * STRIDE)]
    assert [(one.number, one.cell, one.done, one.wrong) for one in played if one.wrong] == []
    assert sum(one.outcome == FOUND for one in played) > len(played) / 2


@pytest.mark.slow
def test_so_it_is_in_other_designs() -> None:
    played = [play(number, cells=OTHER_CELLS) for number in range(0, len(OTHER_CELLS), 5)]
    assert [(one.number, one.cell, one.done, one.wrong) for one in played if one.wrong] == []
    assert sum(one.outcome == FOUND for one in played) > 3 * len(played) / 4
