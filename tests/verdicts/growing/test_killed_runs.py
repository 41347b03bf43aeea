"""Runs that are killed: the next one completes or repeats what they did; no row is there twice, none is missing."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.representatives import rest_is_slow
from tests.spark.growing import Growing
from tests.verdicts.follow.test_follow import rolling, set_cursors
from tests.verdicts.growing import killed_run
from tests.verdicts.growing.grown import KINDS, GrownTable, key_of, named

_Row = dict[str, Any]


def states_of(rows: list[_Row]) -> list[tuple[Any, ...]]:
    """Every row without its times, which differ between two runs."""
    return sorted((*map(repr, key_of(row)), row["state"], str(row["closed_by"])) for row in rows)


class Step:
    """A table after one step, its store before the next one, and what that step makes of it when nothing stops it."""

    def __init__(self, grown: GrownTable, growing: Growing, tmp_path: Path) -> None:
        self.grown, self.places = grown, [grown.checkpoint, *(tmp_path / name for name in ("table", "warehouse"))]
        self.places += [tmp_path / "catalog.sqlite"]
        growing.write_to((growing.begin + growing.end) // 2)
        grown.step_and_compare()
        self.before = states_of(grown.rows())
        growing.write_to(growing.end)
        set_cursors(growing.root, 10, 3)
        self.saved = tmp_path / "saved"
        self.saved.mkdir()
        for place in self.places:
            self._copy(place, self.saved / place.name)
        self.stores = grown.stores()  # taken once: verdicts depend on the time
        grown.step(self.stores)
        self.after = states_of(grown.assert_current(self.stores))
        assert self.before != self.after

    @staticmethod
    def _copy(place: Path, to: Path) -> None:
        if place.is_dir():
            shutil.copytree(place, to)
        elif place.exists():
            shutil.copy(place, to)

    def restore(self) -> None:
        for place in self.places:
            if place.is_dir():
                shutil.rmtree(place)
            for file in place.parent.glob(f"{place.name}*"):  # the log of a database too
                file.unlink()
            self._copy(self.saved / place.name, place)

    def killed_at(self, number: int) -> bool:
        """Whether a run was killed at a moment; then what readers see, and what the next run leaves, is right."""
        self.restore()
        was_killed = killed_run.run(number, Path(self.grown.roots[0]), self.grown.table, self.grown.checkpoint)
        assert states_of(self.grown.rows()) in (self.before, self.after)
        done = self.grown.step(self.stores)
        assert states_of(self.grown.assert_current(self.stores)) == self.after
        if not was_killed:
            assert (done.rows_count, done.was_completed) == (0, False)
        return was_killed


@pytest.fixture
def step(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Step:
    growing = Growing(rolling(tmp_path / "whole", 1, halves=30), tmp_path / "copy")
    table = named(request.param, tmp_path, monkeypatch)
    grown = GrownTable([growing.root], table, tmp_path / "checkpoint", killed_run.by_version)
    return Step(grown, growing, tmp_path)


@pytest.mark.parametrize("step", ["parquet"], indirect=True)
def test_a_moment_before_and_one_after_the_commit(step: Step) -> None:
    for number in (16, 20):
        assert step.killed_at(number)


@pytest.mark.slow
@pytest.mark.parametrize("step", KINDS, indirect=True)
def test_some_moments(step: Step) -> None:
    assert all(step.killed_at(number) for number in (1, 6, 11, 15, 18))
    assert not step.killed_at(999)


@pytest.mark.deep
@pytest.mark.parametrize("step", KINDS, indirect=True)
def test_every_moment(step: Step) -> None:
    number = 0
    while step.killed_at(number):
        number += 1
    assert number > 12


@pytest.mark.parametrize(
    ("kind", "seed"), rest_is_slow([(kind, seed) for seed in range(2) for kind in KINDS], quick=0, slow=2)
)
def test_twenty_steps_with_a_kill_in_each(
    kind: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    growing = Growing(rolling(tmp_path / "whole", seed), tmp_path / "copy")
    table = named(kind, tmp_path, monkeypatch)
    grown = GrownTable([growing.root], table, tmp_path / "checkpoint", killed_run.by_version)
    chance, kills = random.Random(seed), 0
    for moment in growing.moments(20, seed):
        growing.write_to(moment)
        set_cursors(growing.root, chance.choice([0, 10, 30, None]), chance.randrange(6))
        for _ in range(chance.choice([1, 1, 2])):
            kills += killed_run.run(chance.randrange(25), growing.root, grown.table, grown.checkpoint)
        stores = grown.stores()
        grown.step(stores)
        grown.assert_current(stores)
    assert kills > 10
