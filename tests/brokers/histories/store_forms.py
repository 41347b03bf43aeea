"""Histories of special stores: a single transaction, version 2 records, cursors set back."""

from __future__ import annotations

import time
from random import Random

from tests.brokers.histories.registry import history
from tests.brokers.stage import Play

LONG_GROUP = "consumer_of_a_very_long_name_" + "x" * 100


@history()
def fifteen_checks(play: Play, count: int, rng: Random) -> None:
    """Checked until transactionCheckMax and then discarded, with nothing else in the store."""
    play.until_discarded(
        play.send_all("fifteen_checks", count, rng, topic="orders", keys="ORDER-1", tags="created"), seconds=120
    )


@history()
def refused_by_consumer(play: Play, count: int, rng: Random) -> None:
    """Messages that a group with a long name refuses once: they go to its retry topic (over 127 bytes: V2 records)."""
    topic = next(iter(play.script.topics))
    play.agent.do("consumer", group=LONG_GROUP, topics=topic, fail=1)
    play.send_all("refused_by_consumer", count, rng, kind="ordinary", topic=topic)
    play.until("redelivered", lambda: retried(play) >= count, 40)


def retried(play: Play) -> int:
    """The number of messages that were delivered from a retry topic too.

    The client shows the original topic for both, so the deliveries are distinguished by commit-log offset.
    """
    places: dict[str, set[int]] = {}
    for event in list(play.truth):
        if event["event"] == "delivered" and str(event["case"]).startswith("refused_by_consumer"):
            places.setdefault(event["case"], set()).add(event["commit_log_offset"])
    return sum(len(found) > 1 for found in places.values())


@history()
def half_cursor_set_back(play: Play, count: int, rng: Random) -> None:
    """Broker stopped, the half cursor in consumerOffset.json set back to 0, broker started again for a few rounds."""
    cursor_back(play, count, rng, with_backup=False)


@history()
def half_cursor_set_back_with_backup(play: Play, count: int, rng: Random) -> None:
    """The half cursor set back to 0 in consumerOffset.json.bak too."""
    cursor_back(play, count, rng, with_backup=True)


def cursor_back(play: Play, count: int, rng: Random, with_backup: bool) -> None:
    """Set the half cursor back in the files of the stopped broker, with committed and discarded transactions."""
    sent = play.send_all("cursor_back_commit", count, rng, first="COMMIT")
    play.send_all("cursor_back_rollback", count, rng, first="ROLLBACK")
    lost = play.send_all("cursor_back_discarded", 2, rng)
    play.until_delivered(sent)
    play.until_discarded(lost)
    play.halt("clean")
    play.set_half_cursor(0, with_backup)
    play.boot()
    time.sleep(3)
