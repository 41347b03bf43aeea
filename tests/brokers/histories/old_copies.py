"""Histories with decisions that name an old half copy, after the check has put a newer one back."""

from __future__ import annotations

from random import Random

from tests.brokers.histories.registry import history
from tests.brokers.stage import Play


@history()
def late_commit(play: Play, count: int, rng: Random) -> None:
    """COMMIT after the first check has put a newer copy back: it names the old copy, and the newer copy is checked
    until the discard.
    """
    play.until_discarded(play.send_all("late_commit", count, rng, first="COMMIT@1"))


@history()
def late_rollback(play: Play, count: int, rng: Random) -> None:
    """ROLLBACK after the first check has put a newer copy back: it names the old copy, and the newer copy is checked
    until the discard.
    """
    play.until_discarded(play.send_all("late_rollback", count, rng, first="ROLLBACK@1"))


@history()
def late_commit_then_commit(play: Play, count: int, rng: Random) -> None:
    """COMMIT naming an old copy, then COMMIT at the third check: delivered twice."""
    sent = play.send_all("late_commit_then_commit", count, rng, first="COMMIT@1", checks="UNKNOWN,UNKNOWN,COMMIT")
    play.until_delivered(sent, 2)


@history()
def late_rollback_then_commit(play: Play, count: int, rng: Random) -> None:
    """ROLLBACK naming an old copy, then COMMIT at the third check: delivered, although it was rolled back."""
    sent = play.send_all("late_rollback_then_commit", count, rng, first="ROLLBACK@1", checks="UNKNOWN,UNKNOWN,COMMIT")
    play.until_delivered(sent)


@history()
def late_rollback_then_rollback(play: Play, count: int, rng: Random) -> None:
    """ROLLBACK naming an old copy, then ROLLBACK at the third check."""
    sent = play.send_all(
        "late_rollback_then_rollback", count, rng, first="ROLLBACK@1", checks="UNKNOWN,UNKNOWN,ROLLBACK"
    )
    play.until_checked(sent, 3)
