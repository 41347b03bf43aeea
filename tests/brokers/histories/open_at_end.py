"""Histories of transactions that are still open when the broker stops."""

from __future__ import annotations

import time
from random import Random

from tests.brokers.histories.raw_requests import raw_half
from tests.brokers.histories.registry import IMMUNITY, history
from tests.brokers.histories.repeated_decisions import offset_message_id
from tests.brokers.stage import Play


@history(phase=1)
def pending(play: Play, count: int, rng: Random) -> None:
    """Not answered when the broker stops: sent in waves, so that some were never checked and some several times."""
    waves = 4
    for wave in range(waves):
        for number in range(wave, count, waves):
            play.send("pending", number, rng)
        if wave < waves - 1:
            time.sleep(1.1)
    play.until_sent(play.cases[f"pending.{number}"] for number in range(count))


@history(phase=2)
def pending_never_checked(play: Play, count: int, rng: Random) -> None:
    """Sent after transactionTimeOut was raised: not checked before the stop, nor is any other half message while the
    broker stops.
    """
    play.config(transactionTimeOut="600000")
    time.sleep(1.2)
    play.send_all("pending_never_checked", count, rng)


@history(phase=1)
def pending_immune(play: Play, count: int, rng: Random) -> None:
    """Not answered and immune for an hour: put back at each round, never checked."""
    play.send_all("pending_immune", count, rng, **{f"p.{IMMUNITY}": 3600})
    time.sleep(2.5)


@history(phase=1)
def pending_late_commit(play: Play, count: int, rng: Random) -> None:
    """COMMIT naming an old copy shortly before the end: delivered, and the newer copy is still open."""
    play.until_delivered(play.send_all("pending_late_commit", count, rng, first="COMMIT@1"))


@history(phase=1)
def pending_late_rollback(play: Play, count: int, rng: Random) -> None:
    """ROLLBACK naming an old copy shortly before the end: rolled back, and the newer copy is still open."""
    sent = play.send_all("pending_late_rollback", count, rng, first="ROLLBACK@1")
    for one in sent:
        play.until(f"{one.case} decided", lambda one=one: bool(one.decisions))  # type: ignore[misc]
    time.sleep(1.2)


@history()
def pending_resumed(play: Play, count: int, rng: Random) -> None:
    """Discarded, resumed by request 323, not answered when the broker stops."""
    sent = play.send_all("pending_resumed", count, rng)
    play.until_discarded(sent)

    def resume() -> None:
        for one in sent:
            play.resume(one, offset_message_id(play, one))
        time.sleep(1.5)

    play.epilogues.append(("pending_resumed", resume))


@history(phase=2)
def pending_without_id(play: Play, count: int, rng: Random) -> None:
    """Half messages without UNIQ_KEY that are not decided when the broker stops."""
    for number in range(count):
        raw_half(play, "pending_without_id", number, rng)


@history(phase=1)
def op_batch_lost(play: Play, count: int, rng: Random) -> None:
    """Decisions whose ops wait in the broker's memory (5.1 and later, transactionOpBatchInterval raised) when it is
    killed.
    """
    play.config(transactionOpBatchInterval="60000")
    time.sleep(2)
    sent = [
        play.send("op_batch_lost", number, rng, first=("COMMIT", "ROLLBACK")[number % 2]) for number in range(count)
    ]
    play.until_delivered(sent[::2])
    for one in sent:
        play.until(f"{one.case} decided", lambda one=one: bool(one.decisions))  # type: ignore[misc]
    time.sleep(0.5)
