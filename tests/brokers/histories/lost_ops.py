"""Histories in which an op message is written late, or not at all (5.1 and later collect them in memory)."""

from __future__ import annotations

import time
from random import Random

from tests.brokers.histories.registry import history
from tests.brokers.stage import Play
from tests.brokers.transaction import Transaction


def decided(play: Play, plan: str, count: int, rng: Random) -> list[Transaction]:
    """Send transactions that are committed or rolled back at once, and wait for the decisions."""
    sent = [play.send(plan, number, rng, first=("COMMIT", "ROLLBACK")[number % 2]) for number in range(count)]
    play.until_delivered(sent[::2])
    for one in sent:
        play.until(f"{one.case} decided", lambda one=one: bool(one.decisions))  # type: ignore[misc]
    return sent


@history(phase=2)
def ops_lost_at_stop(play: Play, count: int, rng: Random) -> None:
    """Committed or rolled back less than transactionOpBatchInterval before an orderly stop.

    The broker has just written an op message, that of the first decisions, and writes the next one only an interval
    later.
    """
    decided(play, "ops_before_stop", 2, rng)
    time.sleep(0.3)
    decided(play, "ops_lost_at_stop", count, rng)


@history()
def slow_local_transaction(play: Play, count: int, rng: Random) -> None:
    """The local transaction takes half of transactionTimeOut; the check's answer is COMMIT too."""
    timeout_ms = int(play.rig.conf["transactionTimeOut"])
    for number in range(count):
        at = int(time.time() * 1000) + timeout_ms // 2
        play.send("slow_local_transaction", number, rng, first="COMMIT", checks="COMMIT", at=at)
        time.sleep(0.37)
    time.sleep(2.5 * timeout_ms / 1000)
