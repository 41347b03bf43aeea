"""Histories in which a sound message, or a damaged op message, stops the check."""

from __future__ import annotations

import time
from random import Random

from tests.brokers.histories.raw_requests import raw_half
from tests.brokers.histories.registry import history
from tests.brokers.stage import Play
from tests.brokers.transaction import Transaction

PROPERTIES_BYTES_MAX = 32_767
STEP_BYTES = 16
"""Less than the check adds to the properties."""


@history(phase=1)
def no_room_for_properties(play: Play, count: int, rng: Random) -> None:
    """A half message whose properties leave no room for those of the check: it is never put back, and those behind it
    are never checked.
    """
    play.send_all("before_no_room", count, rng)
    one = largest_half(play, "no_room_for_properties", rng)
    play.record("no_room", case=one.case)
    play.send_all("behind_no_room", count, rng)
    play.send_all("behind_no_room_decided", count, rng, first="COMMIT")
    time.sleep(8)


def largest_half(play: Play, plan: str, rng: Random) -> Transaction:
    """Send the half message with the most bytes of properties that the broker accepts, less STEP_BYTES at most."""
    for size in range(PROPERTIES_BYTES_MAX, 0, -STEP_BYTES):
        try:
            return raw_half(play, plan, 0, rng, note="x" * size)
        except RuntimeError:
            play.cases.pop(f"{plan}.0")
    raise RuntimeError("the broker accepts no properties at all")
