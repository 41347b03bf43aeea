"""A short run of the fuzzer, the same every time; `make fuzz` runs it for long, with a seed of its own."""

from __future__ import annotations

import subprocess
import sys

ROUNDS = 60


def test_no_damage_breaks_reading() -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--seed", "1", "--rounds", str(ROUNDS)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{ROUNDS} rounds, 0 failures" in run.stdout
