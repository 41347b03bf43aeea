"""Histories in which an op message is written late, or not at all (5.1 and later collect them in memory)."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from random import Random

from tests.brokers.histories.registry import history
from tests.brokers.rig import COMMIT, ROLLBACK
from tests.brokers.stage import Play
from tests.brokers.transaction import Transaction

AFTER_ROUND_MS = 800


def decided(play: Play, plan: str, count: int, rng: Random) -> list[Transaction]:
    """Send transactions that are committed or rolled back at once, and wait for the decisions."""
    sent = [play.send(plan, number, rng, first=("COMMIT", "ROLLBACK")[number % 2]) for number in range(count)]
    play.until_delivered(sent[::2])
    for one in sent:
        play.until(f"{one.case} decided", lambda one=one: bool(one.decisions))  # type: ignore[misc]
    return sent


@history(phase=2)
def ops_lost_at_stop(play: Play, count: int, rng: Random) -> None:
    """Committed or rolled back shortly before an orderly stop, less than transactionOpBatchInterval after the last op
    message.

    The interval is longer than the default: a stop takes two or three seconds before it reaches the op messages.
    """
    decided(play, "ops_before_stop", 2, rng)
    time.sleep(1.2)
    play.config(transactionOpBatchInterval="15000", transactionTimeOut="60000")
    decided(play, "ops_lost_at_stop", count, rng)


@history()
def first_ops_after_start(play: Play, count: int, rng: Random) -> None:
    """The local transaction takes 2.6 s, and no other decision came since the broker started; checks are answered
    COMMIT.

    The thread for op messages wakes each transactionOpBatchInterval. Before 5.5.0 it leaves what is younger than an
    interval to its next round: decisions soon after a round wait for almost two intervals.
    """
    interval_ms = int(play.rig.conf["transactionOpBatchInterval"])
    now_ms = int(time.time() * 1000)
    since_ms = (now_ms + 2_600 - started_ms(play)) % interval_ms
    at = now_ms + 2_600 + (AFTER_ROUND_MS - since_ms) % interval_ms
    time.sleep((at - 2_600 - now_ms) / 1000)
    for number in range(count):
        play.send("first_ops_after_start", number, rng, first="COMMIT", checks="COMMIT", at=at)
    time.sleep(14)


def started_ms(play: Play) -> int:
    """When the thread for op messages started, by the middle of the second in the broker's log."""
    log = next(play.out.rglob("transaction.log"))
    line = next(line for line in log.read_text().splitlines() if "Start transaction op batch thread" in line)
    zone = timezone(timedelta(hours=8))  # of all logs of RocketMQ 5
    started = datetime.strptime(line[:19], "%Y-%m-%d %H:%M:%S").replace(tzinfo=zone)
    return int(started.timestamp() * 1000) + 500


@history()
def discarded_before_ops_were_read(play: Play, count: int, rng: Random) -> None:
    """Committed after the last check, behind more op messages than the check reads before it reaches the half.

    The round of the last check ends at half messages that are too young: else it would reach the copies that it has
    just put back, and discard them at once. The young ones are decided before the next round, whose first 32 op
    messages settle them: the check reads others only when it meets a half message that none of these settles. A
    release before 5.1 writes an op message for each decision.
    """
    sent = play.send_all("discarded_before_ops_were_read", count, rng)
    play.until_checked(sent, play.checks_max - 1)
    interval = play.rig.conf["transactionCheckInterval"]
    play.config(transactionCheckInterval="20000")
    young: list[Transaction] = []
    while any(len(one.checks) < play.checks_max for one in sent):
        young.append(play.send("young", len(young), rng))
        time.sleep(0.1)
    play.until_sent(young)
    for one in young:
        play.end(one, ROLLBACK, one.original)
    decided(play, "many_ops", 50, rng)
    for one in sent:
        play.end(one, COMMIT, one.newest)
    play.until_discarded(sent)
    play.config(transactionCheckInterval=interval)
