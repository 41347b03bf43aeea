"""Histories of messages with a delay level or a timer property."""

from __future__ import annotations

import time
from random import Random

from tests.brokers.histories.raw_requests import raw_half
from tests.brokers.histories.registry import history
from tests.brokers.rig import COMMIT
from tests.brokers.stage import Play


@history()
def delayed_level(play: Play, count: int, rng: Random) -> None:
    """A delay level on a transactional message; committed at once (5.5: by a raw request: its client refuses it)."""
    if play.rig.release >= (5, 5):
        delayed_raw(play, "delayed_level", [{"DELAY": 2}] * count, rng)
        return
    sent = play.send_all("delayed_level", count, rng, first="COMMIT", **{"p.DELAY": 2})
    play.holds(lambda: all(one.deliveries for one in sent), 12)


@history()
def delayed_timer(play: Play, count: int, rng: Random) -> None:
    """A timer property (5.x) on a transactional message; committed at once or at each check (5.5: raw, at once)."""
    soon = int(time.time() * 1000) + 4000
    timers = ({"TIMER_DELAY_SEC": 3}, {"TIMER_DELAY_MS": 3000}, {"TIMER_DELIVER_MS": soon})
    if play.rig.release >= (5, 5):
        delayed_raw(play, "delayed_timer", [timers[number % 3] for number in range(count)], rng)
        return
    for number in range(count):
        first = ("COMMIT", "UNKNOWN")[number // 3 % 2]
        timer = {f"p.{name}": value for name, value in timers[number % 3].items()}
        play.send("delayed_timer", number, rng, first=first, checks="COMMIT", **timer)
    time.sleep(15)


def delayed_raw(play: Play, plan: str, delays: list[dict[str, int]], rng: Random) -> None:
    """Send delayed halves as an older client does; each is committed by hand at the place in the broker's response."""
    for number, delay in enumerate(delays):
        one = raw_half(play, plan, number, rng, **delay)
        play.end(one, COMMIT, one.original)
    time.sleep(12)


@history()
def delayed_ordinary(play: Play, count: int, rng: Random) -> None:
    """A delay level on ordinary messages."""
    play.send_all("delayed_ordinary", count, rng, kind="ordinary", **{"p.DELAY": 2})
