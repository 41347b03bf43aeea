"""Histories that the brokers' own classes wrote, and what they did next: compared without Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.histories import found
from tests.histories.comparing import ROUNDS, compare
from tests.histories.futures import Recorded
from tests.histories.machine import RELEASES
from tests.histories.recording import QUICK_OF_RELEASE, RECORDED, recorded, recorded_names

PARTS = ["some of them", pytest.param("the rest", marks=pytest.mark.slow)]


@pytest.mark.parametrize("part", PARTS)
def test_recorded_histories_have_the_state_and_the_future_that_their_brokers_gave_them(
    part: str, tmp_path: Path
) -> None:
    differences: list[str] = []
    histories = rounds = 0
    names = recorded_names()[part == "the rest"]
    for root, truth in recorded(tmp_path, frozenset(names)):
        compared = compare(root, truth, Recorded(truth.refusal, truth.rounds))
        differences += [f"{root.parent.name}: {line}" for line in compared.differences]
        histories += 1
        rounds += compared.counts["round"]
    assert not differences
    assert histories == len(names)
    assert rounds >= QUICK_OF_RELEASE * len(RELEASES) * ROUNDS


def test_each_history_is_played_and_some_of_each_kind_by_every_run() -> None:
    quick, rest = recorded_names()
    assert not set(quick) & set(rest)
    assert len(quick) + len(rest) >= RECORDED
    for version in RELEASES:
        assert sum(name.partition("-")[0].isdigit() for name in quick if name.endswith(f"-{version}")) >= 5
    titles = {name.rpartition("-")[0] for name in (*quick, *rest) if not name.partition("-")[0].isdigit()}
    assert titles == {name.rpartition("-")[0] for name in quick if not name.partition("-")[0].isdigit()}
    for version in found.RELEASES:
        assert sum(name.endswith(f"-{version}") for name in quick) >= 15
