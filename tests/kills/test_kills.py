"""Two kills (`make test-kills` makes hundreds): in place, and while a copy is made."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.forge.stores import copy_of
from tests.kills import rounds
from tests.kills.acts import Workplace


@pytest.mark.parametrize(("act", "is_copy"), [("commit", False), ("rollback", True)])
def test_a_killed_act_can_be_repaired(tmp_path: Path, act: str, is_copy: bool) -> None:
    pristine = copy_of("statetable-3.1.4", tmp_path / "unpacked").rename(tmp_path / "pristine")
    workplace = Workplace(tmp_path / "workplace", "statetable-3.1.4", act, is_copy=is_copy)
    case = rounds.prepare(workplace, pristine, "state table")
    assert case is not None
    assert case.calls > 20, "calls that change files are watched"
    left = rounds.killed(case, pristine, "at a call", random.Random(7))
    assert left.found == "half", "the same call each time"

