"""Histories in which a transaction is decided again, after a decision or a discard."""

from __future__ import annotations

import time
from random import Random

from tests.brokers.histories.registry import history
from tests.brokers.rig import COMMIT, DISCARD_TOPIC, ROLLBACK
from tests.brokers.stage import Play
from tests.brokers.transaction import Transaction, order


@history()
def double_commit(play: Play, count: int, rng: Random) -> None:
    """COMMIT by the client and once more by hand: delivered twice."""
    sent = play.send_all("double_commit", count, rng, first="COMMIT")
    for one in sent:
        play.end(one, COMMIT, one.original)
    play.until_delivered(sent, 2)


@history()
def triple_commit(play: Play, count: int, rng: Random) -> None:
    """COMMIT by the client and two more times by hand: delivered three times."""
    sent = play.send_all("triple_commit", count, rng, first="COMMIT")
    for one in sent:
        play.end(one, COMMIT, one.original)
        play.end(one, COMMIT, one.original)
    play.until_delivered(sent, 3)


@history()
def commit_after_rollback(play: Play, count: int, rng: Random) -> None:
    """ROLLBACK by the client, its op written, then COMMIT by hand: delivered."""
    sent = play.send_all("commit_after_rollback", count, rng, first="ROLLBACK")
    time.sleep(1.5)
    for one in sent:
        play.end(one, COMMIT, one.original)
    play.until_delivered(sent)


@history()
def rollback_after_commit(play: Play, count: int, rng: Random) -> None:
    """COMMIT by the client, then ROLLBACK by hand: stays delivered."""
    sent = play.send_all("rollback_after_commit", count, rng, first="COMMIT")
    play.until_delivered(sent)
    for one in sent:
        play.end(one, ROLLBACK, one.original)


@history()
def commit_after_discard(play: Play, count: int, rng: Random) -> None:
    """Discarded, then COMMIT by hand naming the last half copy: delivered."""
    sent = play.send_all("commit_after_discard", count, rng)
    play.until_discarded(sent)
    for one in sent:
        play.end(one, COMMIT, play.last_copy(one))
    play.until_delivered(sent)


@history()
def rollback_after_discard(play: Play, count: int, rng: Random) -> None:
    """Discarded, then ROLLBACK by hand naming the last half copy."""
    sent = play.send_all("rollback_after_discard", count, rng)
    play.until_discarded(sent)
    for one in sent:
        play.end(one, ROLLBACK, play.last_copy(one))


@history()
def resumed_then_commit(play: Play, count: int, rng: Random) -> None:
    """Discarded, resumed by request 323, COMMIT at the first check after that."""
    sent = play.send_all("resumed_then_commit", count, rng, checks="UNKNOWN," * play.checks_max + "COMMIT")
    play.until_discarded(sent)
    for one in sent:
        play.resume(one, offset_message_id(play, one))
    play.until_delivered(sent)


@history()
def resumed_then_discarded(play: Play, count: int, rng: Random) -> None:
    """Discarded, resumed by request 323, never answered: discarded again."""
    sent = play.send_all("resumed_then_discarded", count, rng)
    play.until_discarded(sent)
    for one in sent:
        play.resume(one, offset_message_id(play, one))
    play.until_discarded(sent, 2)


@history()
def resumed_compressed(play: Play, count: int, rng: Random) -> None:
    """A compressed body, discarded and resumed by request 323: releases before 5.3.2 write it decompressed, with the
    flag for compression. Discarded again.
    """
    body = order(rng, "resumed_compressed", 6000)
    sent = play.send_all("resumed_compressed", count, rng, body=body)
    play.until_discarded(sent)
    for one in sent:
        play.resume(one, offset_message_id(play, one))
    time.sleep(4 + (play.checks_max + 1) * int(play.rig.conf["transactionCheckInterval"]) / 1000)


def offset_message_id(play: Play, one: Transaction, topic: str = DISCARD_TOPIC) -> str:
    """The offset message id of the newest record in a system topic: the host of the first id, another offset."""
    found = play.last_copy(one, topic)
    return str(one.known["offset_message_id"])[:-16] + f"{found[1]:016X}"
