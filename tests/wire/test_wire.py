"""Some courses on the simulated wire; `make wire` plays more of them (docs/wire.md).

In a process of their own: a course replaces the clock of its process, which threads of other tests use too (py4j's).
"""

from __future__ import annotations

import subprocess
import sys

import pytest

_EACH_ACT = """
from tests.wire.course import ACTS, played
for act in ACTS:
    for seed in range(3):
        errors = played(seed, act).errors
        print(*(f"--act {act} --seed {seed}: {one}" for one in errors), sep="\\n", end="")
"""
_TWICE = "from tests.wire.course import played; print(played(7).world.steps == played(7).world.steps)"
_PLANTED = """
import sys
from tests.wire.course import played
from tests.wire.planted import planted
with planted(sys.argv[1]):
    print(next(text for seed in range(500) if sys.argv[2] in (text := " ".join(played(seed).errors)) and text))
"""


def printed(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, timeout=800
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_is_delivered_twice_or_done_without_a_receipt() -> None:
    assert printed(_EACH_ACT) == ""


def test_the_same_seed_gives_the_same_course() -> None:
    assert printed(_TWICE) == "True\n"


@pytest.mark.parametrize(("fault", "word"), [
    ("journal-after-request", "no receipt"),
    pytest.param("retry-of-decision", "was delivered by A and A", marks=pytest.mark.slow),
    pytest.param("no-wait-in-drain", "was safe to stop, and", marks=pytest.mark.slow),
    pytest.param("no-second-look", "before it looked", marks=pytest.mark.slow),
    pytest.param("no-claim", "", marks=pytest.mark.slow),
])
def test_a_planted_fault_is_found(fault: str, word: str) -> None:
    """The seed of the first course that fails changes with each request that the product sends more or less."""
    assert printed(_PLANTED, fault, word)
