"""Histories that the brokers' own classes wrote, and what they did next: compared without Java."""

from __future__ import annotations

from pathlib import Path

from tests.histories.comparing import ROUNDS, compare
from tests.histories.futures import Recorded
from tests.histories.recording import RECORDED, recorded


def test_recorded_histories_have_the_state_and_the_future_that_their_brokers_gave_them(tmp_path: Path) -> None:
    differences: list[str] = []
    histories = rounds = 0
    for root, truth in recorded(tmp_path):
        found = compare(root, truth, Recorded(truth.refusal, truth.rounds))
        differences += [f"{root.parent.name}: {line}" for line in found.differences]
        histories += 1
        rounds += found.counts["round"]
    assert not differences
    assert histories >= RECORDED
    assert rounds >= RECORDED * ROUNDS * 9 // 10
