"""A table of verdicts that grows has at every step the rows of an audit of everything, and keeps the states before."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from rmqtx.verdicts.evidence.store_facts import SettingsOf
from tests.forge import damage
from tests.forge.stores import settings_of, unpacked
from tests.representatives import one_of_each_design, rest_is_slow
from tests.spark.growing import Growing
from tests.verdicts.follow.test_follow import NAMES, OTHER_DESIGNS, by_default, rolling, set_cursors
from tests.verdicts.growing.grown import KINDS, GrownTable, named

Make = Callable[[str, Path, SettingsOf], GrownTable]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    def made(kind: str, root: Path, settings: SettingsOf) -> GrownTable:
        return GrownTable([root], named(kind, tmp_path, monkeypatch), tmp_path / "checkpoint", settings)

    return made


@pytest.mark.parametrize(
    ("kind", "name"),
    rest_is_slow(
        dict.fromkeys([("parquet", NAMES[0]), *zip(KINDS, NAMES[1:], strict=False), *product(KINDS, NAMES)]),
        quick=1, slow=len(KINDS),
    ),
)
def test_twenty_steps_of_a_real_store(kind: str, name: str, tmp_path: Path, make: Make) -> None:
    growing = Growing(unpacked(name), tmp_path / "copy")
    cursors = growing.root / "config" / "consumerOffset.json"
    final = cursors.read_bytes()
    grown = make(kind, growing.root, settings_of(name))
    chance = random.Random(name)
    moments = growing.moments(20, chance.randrange(100))
    for moment in moments:
        growing.write_to(moment)
        set_cursors(growing.root, chance.randrange(40) if moment != moments[0] else None, chance.randrange(10))
        if moment == moments[-1]:
            cursors.write_bytes(final)
        grown.step_and_compare()
    assert len(grown.rows()) > len(grown.history)  # some states changed
    done = grown.step_and_compare()
    assert (done.rows_count, done.bytes_read) == (0, 0)


@pytest.mark.parametrize("name", one_of_each_design(OTHER_DESIGNS))
def test_a_store_of_another_design(name: str, tmp_path: Path, make: Make) -> None:
    growing = Growing(unpacked(name), tmp_path / "copy")
    grown = make("parquet", growing.root, settings_of(name))
    for moment in growing.moments(5, 7):
        growing.write_to(moment)
        grown.step_and_compare()


@pytest.mark.parametrize(
    ("kind", "seed", "halves", "steps"),
    rest_is_slow(
        [("parquet", 0, 24, 5), *((kind, 0, 24, 5) for kind in KINDS[1:]), ("parquet", 0, 50, 14),
         *((kind, seed, 50, 14) for seed in range(1, 4) for kind in KINDS)],
        quick=1, slow=len(KINDS),
    ),
)
def test_files_that_expire(kind: str, seed: int, halves: int, steps: int, tmp_path: Path, make: Make) -> None:
    growing = Growing(rolling(tmp_path / "whole", seed, halves), tmp_path / "copy")
    grown = make(kind, growing.root, by_default)
    gone = 0
    for number, moment in enumerate(growing.moments(steps, seed)):
        growing.write_to(moment)
        set_cursors(growing.root, random.Random(number).choice([0, 10, 30, None]), number % 6)
        files = damage.log_files(growing.root)
        for file in files[: max(0, min(number * 7 // steps, len(files) - 1))]:
            file.unlink()
        gone += grown.step_and_compare().gone_count
    assert gone > 2
    assert any(row["closed_by"] == "gone" for row in grown.rows())
