"""The whole-segment damages of `whole_segments`, compared as in the file campaign: `verify`, `audit` and `pending`."""

from __future__ import annotations

import random

from tests.fuzz import asking
from tests.fuzz.any_file import compared_case, design_of
from tests.fuzz.heeded import heeded, undamaged
from tests.fuzz.outcomes import UNCHANGED, Case, Played
from tests.fuzz.whole_segments import cases_of, damage_of, put

__all__ = ["cases_of", "play"]


def play(case: Case) -> Played:
    """Damage the segments, compare the three commands, and restore the segments."""
    root = asking.root_of(case.store)
    base = undamaged(root, case.store)
    before, after = damage_of(case, random.Random(str(case) + str(case.seed)))
    group = design_of(case.store)
    if after == before:
        return Played(str(case), case.store, group, UNCHANGED)
    try:
        put(after)
        found = heeded(root, case.store, base)
    finally:
        put(before)
    return compared_case(case, str(case), group, case.damage, found)
