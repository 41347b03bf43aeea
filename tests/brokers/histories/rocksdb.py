"""Histories of transactions in RocksDB, where a half message is never put back."""

from __future__ import annotations

import time
from random import Random

from tests.brokers.histories.registry import IMMUNITY, history
from tests.brokers.rocks_stage import DROPPED
from tests.brokers.slave import start_slave, wait_copied
from tests.brokers.stage import Play


@history()
def answered_late(play: Play, count: int, rng: Random) -> None:
    """The local transaction ends after the first check: the decision names the only half copy."""
    for number in range(count):
        play.send("answered_late", number, rng, first=("COMMIT@1", "ROLLBACK@1")[number % 2])
    sent = [play.cases[f"answered_late.{number}"] for number in range(count)]
    for one in sent:
        play.until(f"{one.case} decided", lambda one=one: bool(one.decisions))  # type: ignore[misc]
    play.until_delivered(sent[::2])


@history()
def dropped_then_late_commit(play: Play, count: int, rng: Random) -> None:
    """COMMIT by the client after the broker has dropped the transaction: delivered."""
    sent = play.send_all("dropped_then_late_commit", count, rng, first=f"COMMIT@{play.checks_max}")
    play.until_delivered(sent)


@history(phase=1)
def pending_after_drop(play: Play, count: int, rng: Random) -> None:
    """Dropped shortly before the end: if the broker is then killed, its database does not show the drop."""
    play.until_discarded(play.send_all("pending_after_drop", count, rng))


@history(phase=1)
def pending_once_checked(play: Play, count: int, rng: Random) -> None:
    """Checked once or twice when the broker stops."""
    play.until_checked(play.send_all("pending_once_checked", count, rng), 1)
    time.sleep(0.2)


@history()
def pending_before_restart(play: Play, count: int, rng: Random) -> None:
    """Immune for an hour, and still open when the broker is started again with transactions in RocksDB."""
    play.send_all("pending_before_restart", count, rng, **{f"p.{IMMUNITY}": 3600})


@history(phase=1)
def after_restart(play: Play, count: int, rng: Random) -> None:
    """Committed or rolled back at once, or committed at the first check, when the broker has been started again."""
    for number in range(count):
        first = ("COMMIT", "ROLLBACK", "UNKNOWN")[number % 3]
        play.send("after_restart", number, rng, first=first, checks="COMMIT")
    sent = [play.cases[f"after_restart.{number}"] for number in range(count)]
    play.until_delivered(sent[::3] + sent[2::3])


@history(phase=1)
def dropped_by_slave(play: Play, count: int, rng: Random) -> None:
    """An operator raises transactionCheckMax on the master; its slave runs a check too, and drops what it cannot ask.

    The store beside is the slave's.
    """
    slave = start_slave(play.rig, play.out / "slave")
    play.config(transactionCheckMax="1000")
    sent = play.send_all("dropped_by_slave", count, rng)
    play.send_all("committed_beside", 2, rng, first="COMMIT")
    log = slave.home / "logs" / "rocketmqlogs" / "transaction.log"
    ids = {one.known["transaction_id"] for one in sent}

    def dropped() -> set[str]:
        text = log.read_text(errors="replace") if log.exists() else ""
        return {found.group(3) for found in DROPPED.finditer(text)}

    play.until("the slave drops them", lambda: ids <= dropped(), 120)
    play.record("slave_dropped", transaction_ids=sorted(ids))
    wait_copied(play.rig)
    slave.stop("broker")
    play.beside = slave.store
