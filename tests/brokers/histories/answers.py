"""Histories in which every answer comes as planned: at once, at a check, or never."""

from __future__ import annotations

import time
from random import Random

from tests.brokers.histories.registry import history
from tests.brokers.stage import Play


@history()
def commit(play: Play, count: int, rng: Random) -> None:
    """Committed at once by the local transaction."""
    for number in range(count):
        play.send("commit", number, rng, first="COMMIT", flag=rng.choice((None, 7)))
        time.sleep(rng.random() / 20)


@history()
def rollback(play: Play, count: int, rng: Random) -> None:
    """Rolled back at once by the local transaction."""
    for number in range(count):
        play.send("rollback", number, rng, first="ROLLBACK")
        time.sleep(rng.random() / 20)


@history()
def commit_at_check_1(play: Play, count: int, rng: Random) -> None:
    """UNKNOW first, COMMIT at the first check."""
    play.until_checked(play.send_all("commit_at_check_1", count, rng, checks="COMMIT"), 1)


@history()
def commit_at_check_2(play: Play, count: int, rng: Random) -> None:
    """UNKNOW first and at the first check, COMMIT at the second."""
    play.until_checked(play.send_all("commit_at_check_2", count, rng, checks="UNKNOWN,COMMIT"), 2)


@history()
def rollback_at_check_1(play: Play, count: int, rng: Random) -> None:
    """UNKNOW first, ROLLBACK at the first check."""
    play.until_checked(play.send_all("rollback_at_check_1", count, rng, checks="ROLLBACK"), 1)


@history()
def rollback_at_check_2(play: Play, count: int, rng: Random) -> None:
    """UNKNOW first and at the first check, ROLLBACK at the second."""
    play.until_checked(play.send_all("rollback_at_check_2", count, rng, checks="UNKNOWN,ROLLBACK"), 2)


@history()
def local_transaction_throws(play: Play, count: int, rng: Random) -> None:
    """The local transaction throws (the client then answers UNKNOW); COMMIT at the first check."""
    play.until_checked(play.send_all("local_transaction_throws", count, rng, first="THROW", checks="COMMIT"), 1)


@history()
def never_answered(play: Play, count: int, rng: Random) -> None:
    """Every check is answered UNKNOW, until the broker discards the half message."""
    play.until_discarded(play.send_all("never_answered", count, rng))


@history()
def producer_group_gone(play: Play, count: int, rng: Random) -> None:
    """The only producer of the group leaves before the first check: checks are counted and not received, until the
    discard.
    """
    play.join_group("gone")
    sent = play.send_all("producer_group_gone", count, rng, group="gone")
    play.agent.do("leave", group="gone")
    play.record("left", group="gone")
    play.until_discarded(sent)
