"""Ends of bounded worlds: what rmqtx reports of each store is what happened, and what its broker does next."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.model.auditing import chosen, judged, worlds
from tests.model.rules import RELEASES
from tests.model.worlds import ends, reached

_ALONE, _FROM_FILES = 100, 2


@pytest.mark.parametrize("name", ["small", "ages"])
@pytest.mark.parametrize("version", RELEASES)
def test_what_is_reported_of_the_ends_of_a_small_world_is_right(version: str, name: str) -> None:
    world = worlds(version)[name]
    world = replace(world, bounds=replace(world.bounds, kills=0))
    alone, files, _ = chosen(world, reached(world), _ALONE, _FROM_FILES, seed=0)
    without = judged(world, alone, from_files=False)
    assert without.violations == []
    assert (without.stores, without.undecided) == (_ALONE, {})
    written = judged(world, files, from_files=True)
    assert written.violations == []
    assert written.stores == _FROM_FILES


def test_every_kind_of_end_is_in_the_small_world() -> None:
    world = worlds("5.3.3")["small"]
    world = replace(world, bounds=replace(world.bounds, kills=0))
    hows = {end.how for end in ends(world, reached(world)).values()}
    assert {
        "stop", "stop, cursors lost", "kill, 0 lost, no new slots", "kill, 1 lost", "kill, 1 lost, old cursors"
    } <= hows  # fmt: skip
