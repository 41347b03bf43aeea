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


@pytest.mark.parametrize(("fault", "word"), [
    ("journal-after-request", "no receipt"),
    ("retry-of-decision", "was delivered by A and A"),
    pytest.param("no-second-look", "before it looked", marks=pytest.mark.slow),
    pytest.param("no-claim", "", marks=pytest.mark.slow),
])  # fmt: skip
def test_a_planted_fault_is_found(fault: str, word: str) -> None:
    """The seed of the first course that fails changes with each request that the product sends more or less."""
    with planted(fault):
        errors = next(found for seed in range(500) if word in " ".join(found := played(seed).errors) and found)
    assert errors
