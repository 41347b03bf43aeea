"""Histories behind a proxy: decisions that it refuses, because it no longer has, or never had, the half message."""

from __future__ import annotations

from random import Random

from rmqtx.readers.model import clock
from tests.brokers.histories.registry import history
from tests.brokers.proxied_stage import REMOTING_GROUP
from tests.brokers.stage import Play

WITHIN_MS, LATE_MS = 20_000, 33_000
"""A proxy keeps the place of a half message for 30 s (transactionDataExpireMillis)."""
PATIENCE_SECONDS = 180


@history()
def commit_within_30s(play: Play, count: int, rng: Random) -> None:
    """Committed by a gRPC client 20 s after the send."""
    sent = play.send_all("commit_within_30s", count, rng, first="COMMIT", at=clock.now_ms() + WITHIN_MS)
    play.until("all delivered", lambda: all(one.deliveries for one in sent), PATIENCE_SECONDS)


@history()
def late_commit_lost(play: Play, count: int, rng: Random) -> None:
    """Committed by a gRPC client 33 s after the send, which the proxy refuses; COMMIT at the first check."""
    sent = play.send_all("late_commit_lost", count, rng, first="COMMIT", at=clock.now_ms() + LATE_MS, checks="COMMIT")
    play.until("all delivered", lambda: all(one.deliveries for one in sent), PATIENCE_SECONDS)


@history()
def late_rollback_lost(play: Play, count: int, rng: Random) -> None:
    """Rolled back by a gRPC client 33 s after the send, which the proxy refuses; ROLLBACK at the first check."""
    at_ms = clock.now_ms() + LATE_MS
    sent = play.send_all("late_rollback_lost", count, rng, first="ROLLBACK", at=at_ms, checks="ROLLBACK")
    play.until("all checked", lambda: all(one.checks for one in sent), PATIENCE_SECONDS)


@history()
def late_commit_lost_then_unknown(play: Play, count: int, rng: Random) -> None:
    """Committed by a gRPC client 33 s after the send, which the proxy refuses; UNKNOW at every check: discarded."""
    plan = "late_commit_lost_then_unknown"
    sent = play.send_all(plan, count, rng, first="COMMIT", at=clock.now_ms() + LATE_MS)
    play.until_discarded(sent, 1, PATIENCE_SECONDS)


@history()
def remoting_commit_lost(play: Play, count: int, rng: Random) -> None:
    """Committed at once by a remoting client, which the proxy loses; COMMIT at the first check."""
    plan = "remoting_commit_lost"
    sent = play.send_all(plan, count, rng, group=REMOTING_GROUP, first="COMMIT", checks="COMMIT")
    play.until("all delivered", lambda: all(one.deliveries for one in sent), PATIENCE_SECONDS)


@history()
def remoting_rollback_lost(play: Play, count: int, rng: Random) -> None:
    """Rolled back at once by a remoting client, which the proxy loses; ROLLBACK at the first check."""
    plan = "remoting_rollback_lost"
    sent = play.send_all(plan, count, rng, group=REMOTING_GROUP, first="ROLLBACK", checks="ROLLBACK")
    play.until("all checked", lambda: all(one.checks for one in sent), PATIENCE_SECONDS)


@history(phase=1)
def pending_behind_proxy(play: Play, count: int, rng: Random) -> None:
    """Never decided by a gRPC client, and not yet checked when the broker stops."""
    play.send_all("pending_behind_proxy", count, rng)
