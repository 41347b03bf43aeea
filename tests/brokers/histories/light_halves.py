"""Histories of half messages that are also in light queues (enableLmq, enableMultiDispatch)."""

from __future__ import annotations

from random import Random

from tests.brokers.histories.registry import history
from tests.brokers.stage import Play


@history()
def light_half(play: Play, count: int, rng: Random) -> None:
    """INNER_MULTI_DISPATCH on a half message: committed, rolled back, committed at the first check, or discarded."""
    for number in range(count):
        first = ("COMMIT", "ROLLBACK", "UNKNOWN", "UNKNOWN")[number % 4]
        checks = ("COMMIT", "UNKNOWN")[number // 2 % 2] if number % 4 == 3 else "COMMIT"
        words = {"p.INNER_MULTI_DISPATCH": "%LMQ%one,%LMQ%two"}
        play.send("light_half", number, rng, first=first, checks=checks, **words)
    sent = [play.cases[f"light_half.{number}"] for number in range(count)]
    play.until_delivered(sent[::4] + sent[2::4])
