"""Some courses on the simulated wire; `make wire` plays more of them (docs/wire.md)."""

from __future__ import annotations

import pytest

from tests.wire.course import ACTS, played
from tests.wire.planted import planted


@pytest.mark.parametrize("act", ACTS)
def test_nothing_is_delivered_twice_or_done_without_a_receipt(act: str) -> None:
    for seed in range(3):
        assert played(seed, act).errors == [], f"python -m tests.wire --act {act} --seeds 1 --seed {seed}"


def test_the_same_seed_gives_the_same_course() -> None:
    assert played(7).world.steps == played(7).world.steps


@pytest.mark.parametrize(("fault", "seed", "word"), [
    ("journal-after-request", 1, "no receipt"),
    ("no-second-look", 36, "before it looked"),
    ("retry-of-decision", 10, "was delivered by A and A"),
])  # fmt: skip
def test_a_planted_fault_is_found(fault: str, seed: int, word: str) -> None:
    assert not played(seed).errors
    with planted(fault):
        assert word in " ".join(played(seed).errors)
