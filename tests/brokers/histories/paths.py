"""Histories of stores with files in other places, or written by several versions one after the other."""

from __future__ import annotations

from random import Random

from tests.brokers.histories.registry import history
from tests.brokers.script import BETWEEN
from tests.brokers.stage import Play

REQUEST_COMMIT_OFFSET = 15


@history()
def light(play: Play, count: int, rng: Random) -> None:
    """Messages that are also in two light queues (INNER_MULTI_DISPATCH), one of which a light group has read."""
    for number in range(count):
        words = {"p.INNER_MULTI_DISPATCH": "%LMQ%one,%LMQ%two"}
        play.send("light", number, rng, kind="ordinary", **words)
    answer = play.rig.request(
        play.agent, REQUEST_COMMIT_OFFSET, consumerGroup="%LMQ%readers", topic="%LMQ%one", queueId=0, commitOffset=1
    )
    assert answer["code"] == 0, answer


@history(phase=BETWEEN)
def between(play: Play, count: int, rng: Random) -> None:
    """Committed or rolled back at once, or never decided, on a broker version between the first and the last."""
    for number in range(count):
        play.send("between", number, rng, first=("COMMIT", "ROLLBACK", "UNKNOWN")[number % 3])
    sent = [play.cases[f"between.{number}"] for number in range(count)]
    play.until_delivered(sent[::3])
