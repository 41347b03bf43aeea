"""Histories in which a sound message, or a damaged op message, stops the check."""

from __future__ import annotations

import time
from random import Random

from tests.brokers.histories.raw_requests import raw_half
from tests.brokers.histories.registry import history
from tests.brokers.stage import Play

PROPERTIES_BYTES = 32_700


@history(phase=1)
def no_room_for_properties(play: Play, count: int, rng: Random) -> None:
    """A half message with so many bytes of properties that the check cannot add its own: it is never put back, and
    those behind it are never checked.
    """
    play.send_all("before_no_room", count, rng)
    raw_half(play, "no_room_for_properties", 0, rng, note="x" * (PROPERTIES_BYTES - 400))
    play.send_all("behind_no_room", count, rng)
    play.send_all("behind_no_room_decided", count, rng, first="COMMIT")
    time.sleep(8)
