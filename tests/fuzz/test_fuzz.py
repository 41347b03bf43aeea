"""A short run of the fuzzer, the same every time; `make fuzz` runs it for long, with a seed of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.representatives import rest_is_slow

ROUNDS = [(10, []), (40, []), (10, ["--other-designs"])]


@pytest.mark.parametrize(("rounds", "more"), rest_is_slow(ROUNDS, quick=0, slow=1))
def test_no_damage_breaks_reading(rounds: int, more: list[str]) -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--seed", "1", "--rounds", str(rounds), *more]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{rounds} rounds, 0 failures" in run.stdout
