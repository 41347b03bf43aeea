"""A few kills (`make test-kills` makes hundreds): in place, and on the way to a copy."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.brokers import corpus
from tests.kills import rounds
from tests.kills.acts import Ground


@pytest.mark.parametrize(("act", "is_copy"), [("commit", False), ("rollback", True)])
def test_what_a_kill_leaves_is_mended(tmp_path: Path, act: str, is_copy: bool) -> None:
    pristine = corpus.unpack("statetable-3.1.4", tmp_path / "unpacked").rename(tmp_path / "pristine")
    ground = Ground(tmp_path / "ground", "statetable-3.1.4", act, is_copy=is_copy)
    case = rounds.prepare(ground, pristine, "state table")
    assert case is not None
    assert case.calls > 20, "calls that change files are watched"
    left = rounds.killed(case, pristine, "at a call", random.Random(7))
    assert left.found == ("half" if is_copy else "old"), "the same call each time"

