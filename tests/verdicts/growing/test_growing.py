"""A table of verdicts that grows has at every step the rows of an audit of everything, and keeps the states before."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.forge import damage
from tests.forge.stores import settings_of, unpacked
from tests.representatives import one_of_each_design, rest_is_slow
from tests.spark.growing import Growing
from tests.verdicts.follow.test_follow import NAMES, OTHER_DESIGNS, by_default, rolling, set_cursors
from tests.verdicts.growing.grown import GrownTable, parquet


@pytest.mark.parametrize("name", rest_is_slow(NAMES, quick=2))
def test_twenty_steps_of_a_real_store(name: str, tmp_path: Path) -> None:
    growing = Growing(unpacked(name), tmp_path / "copy")
    cursors = growing.root / "config" / "consumerOffset.json"
    final = cursors.read_bytes()
    grown = GrownTable([growing.root], parquet(tmp_path / "table"), tmp_path / "checkpoint", settings_of(name))
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
def test_a_store_of_another_design(name: str, tmp_path: Path) -> None:
    growing = Growing(unpacked(name), tmp_path / "copy")
    grown = GrownTable([growing.root], parquet(tmp_path / "table"), tmp_path / "checkpoint", settings_of(name))
    for moment in growing.moments(5, 7):
        growing.write_to(moment)
        grown.step_and_compare()


@pytest.mark.parametrize("seed", rest_is_slow(range(4), quick=1))
def test_files_that_expire(seed: int, tmp_path: Path) -> None:
    growing = Growing(rolling(tmp_path / "whole", seed), tmp_path / "copy")
    grown = GrownTable([growing.root], parquet(tmp_path / "table"), tmp_path / "checkpoint", by_default)
    gone = 0
    for number, moment in enumerate(growing.moments(14, seed)):
        growing.write_to(moment)
        set_cursors(growing.root, random.Random(number).choice([0, 10, 30, None]), number % 6)
        files = damage.log_files(growing.root)
        for file in files[: max(0, min(number // 2, len(files) - 1))]:
            file.unlink()
        gone += grown.step_and_compare().gone_count
    assert gone > 5
    assert any(row["closed_by"] == "gone" for row in grown.rows())
