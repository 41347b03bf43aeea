"""Histories of faults that clients, or settings of the broker, cause."""

from __future__ import annotations

import time
from random import Random

from rmqtx.readers.model import clock
from tests.brokers.histories.raw_requests import raw_record
from tests.brokers.histories.registry import IMMUNITY, history
from tests.brokers.rig import HALF_TOPIC
from tests.brokers.stage import Play

AHEAD_MS = 600_000
REQUEST_DELETE_TOPIC = 215
MESSAGE_TOO_YOUNG_MS = 600


@history()
def clock_ahead(play: Play, count: int, rng: Random) -> None:
    """A producer whose clock is ten minutes ahead: each round puts its half messages back and asks.

    Never answered; committed at the first check; committed after it, so that the decision names the old copy.
    """
    play.join_group("ahead_shop", ahead_ms=AHEAD_MS)
    plans: dict[str, dict[str, object]] = {
        "clock_ahead_unanswered": {},
        "clock_ahead_commit_at_check": {"checks": "COMMIT"},
        "clock_ahead_late_commit": {"first": "COMMIT@1"},
    }
    sent = [play.send_all(plan, count, rng, group="ahead_shop", **wanted) for plan, wanted in plans.items()]
    play.until_delivered([*sent[1], *sent[2]])
    play.until_discarded([*sent[0], *sent[2]])


@history()
def immunity_discarded(play: Play, count: int, rng: Random) -> None:
    """Immune for an hour: each round counts a check and does not ask, until the broker discards it."""
    play.until_discarded(play.send_all("immunity_discarded", count, rng, **{f"p.{IMMUNITY}": 3600}))


@history()
def hidden_by_pool(play: Play, count: int, rng: Random) -> None:
    """Committed at once, and at each check: the broker cannot read the copy yet that the decision names, and discards.

    Others are committed some seconds later, when the broker can read the half message.
    """
    late = [
        play.send("pool_commit_later", number, rng, first="COMMIT", at=clock.now_ms() + 6000) for number in range(count)
    ]
    sent = play.send_all("hidden_by_pool", count, rng, first="COMMIT", checks="COMMIT")
    play.until_delivered(late)
    play.until_discarded(sent)


@history()
def op_cursor_jumps(play: Play, count: int, rng: Random) -> None:
    """Committed between two half messages that are not: the round that asks for the older one loses the op message.

    A round that needs more op messages than there are moves the op cursor to the end of the op queue. It ends at the
    younger half message; the next round reads no op message of those behind it.
    """
    timeout = int(play.rig.conf["transactionTimeOut"]) / 1000
    for number in range(count):
        play.until_sent([play.send("jump_before", number, rng)])
        time.sleep(timeout - MESSAGE_TOO_YOUNG_MS / 1000)
        play.until_sent([play.send("jump_between", number, rng)])
        sent = play.send("op_cursor_jumps", number, rng, first="COMMIT", checks="COMMIT")
        play.until_delivered([sent])
        time.sleep(timeout + 3)


@history()
def half_by_hand(play: Play, count: int, rng: Random) -> None:
    """An ordinary message that a client sends to the half topic itself, which brokers before 4.7.1 accept."""
    for number in range(count):
        raw_record(play, "half_by_hand", number, rng, HALF_TOPIC, 0, {})
    time.sleep(int(play.rig.conf["transactionCheckMax"]) + 4)


@history()
def result_ignored(play: Play, count: int, rng: Random) -> None:
    """The local transaction returns COMMIT or ROLLBACK, and each check; the client 4.3.1 uses only the latter."""
    for number in range(count):
        what = ("COMMIT", "ROLLBACK")[number % 2]
        play.send("result_ignored", number, rng, first=what, checks=what)
    sent = [play.cases[f"result_ignored.{number}"] for number in range(count)]
    play.until_checked(sent, 1)
    play.until_delivered(sent[::2])


@history(phase=1)
def topic_deleted(play: Play, count: int, rng: Random) -> None:
    """Committed or rolled back, then any topic is deleted: the broker deletes the op queue too (before 4.9.0).

    The cursor is before them, because a half message before them is not decided and still young.
    """
    play.send_all("deleted_before", 2, rng)
    sent = play.send_all("topic_deleted_commit", count, rng, first="COMMIT", checks="COMMIT")
    play.send_all("topic_deleted_rollback", count, rng, first="ROLLBACK", checks="ROLLBACK")
    play.until_delivered(sent)
    play.rig.create_topic(play.agent, "passing", 1)
    answer = play.rig.request(play.agent, REQUEST_DELETE_TOPIC, topic="passing")
    assert answer["code"] == 0, answer
    play.record("topic_deleted", topic="passing")
    play.until_delivered(sent, 2)
    time.sleep(3)
