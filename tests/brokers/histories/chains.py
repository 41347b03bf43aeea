"""Histories with several chains for one half message: timers, and cursors that are older than the last checks."""

from __future__ import annotations

import signal
import time
from random import Random

from tests.brokers.histories.registry import history
from tests.brokers.slave import fail_over, start_slave, wait_copied, wait_cursors
from tests.brokers.stage import Play

TIMER_MS = 3000


@history()
def timer_unanswered(play: Play, count: int, rng: Random) -> None:
    """TIMER_DELAY_MS on a half (5.x), committed at once or not at all; every check is answered UNKNOW.

    The first one is the first record of the log. The op of each commit has a number of the timer queue; some halves
    without a timer, never answered, have the same numbers in the half queue.
    """
    for number in range(count):
        first = "UNKNOWN" if number % 5 == 4 else "COMMIT"
        one = play.send("timer_unanswered", number, rng, first=first, **{"p.TIMER_DELAY_MS": TIMER_MS})
        play.until_sent([one])
        if number == 1:
            play.send_all("timer_neighbour", 2, rng)
    time.sleep(TIMER_MS / 1000 + 12)


@history()
def killed_between_checks(play: Play, count: int, rng: Random) -> None:
    """The broker is killed between two checks and started again, with cursors that are older than its last checks.

    Copies that the check had put back before the kill are checked further, and more chains of the same halves begin.
    The broker is stopped again when the first chain was discarded and others are still checked. Of four transactions
    one is rolled back late, one committed.
    """
    play.until("cursors flushed", lambda: (play.rig.store / "config" / "consumerOffset.json").exists())
    plans = ("chain_unanswered", "chain_unanswered", "chain_rollback", "chain_commit")
    answers = {"chain_rollback": "UNKNOW,UNKNOW,UNKNOW,ROLLBACK", "chain_commit": "UNKNOW,UNKNOW,COMMIT"}
    sent = []
    for number in range(count):
        plan = plans[number % len(plans)]
        sent.append(play.send(plan, number, rng, checks=answers.get(plan)))
    play.until_sent(sent)
    play.until_checked(sent, 2)
    play.record("stopping", how="kill")
    play.rig.stop("broker", signal.SIGKILL)
    play.rig.start_broker()  # the clients stay, and find it again
    play.record("started", version=play.script.version)
    play.until_checked([one for one in sent if one.plan == "chain_unanswered"], 14)


@history(phase=1)
def failed_over(play: Play, count: int, rng: Random) -> None:
    """The master is killed, and its slave becomes a master: it has the log, and cursors that are some seconds old.

    A slave fetches cursors every ten seconds. A half message that was put back after the slave fetched its cursors has
    several copies after these cursors, each of which begins a chain of its own. Some were decided at once, some at
    their first check, some are decided at checks of the new master; four are sent to the new master. When the first
    chain was discarded, a long timeout delays the check, two more are sent, and the broker is stopped.
    """
    start_slave(play.rig, play.out / "slave")
    play.record("slave_started")
    early = play.send_all("failover_commit", 4, rng, first="COMMIT")
    play.send_all("failover_rollback", 3, rng, first="ROLLBACK")
    play.until_delivered(early)
    wait_cursors(play.rig)
    play.record("cursors_fetched")
    late = play.send_all("failover_late_commit", 2, rng, first="COMMIT")
    decided = play.send_all("failover_rollback_at_check", 2, rng, checks="ROLLBACK")
    unanswered = play.send_all("failover_unanswered", count, rng)
    answered = play.send_all("failover_commit_later", 2, rng, checks="UNKNOWN,UNKNOWN,UNKNOWN,COMMIT")
    answered += play.send_all("failover_rollback_later", 2, rng, checks="UNKNOWN,UNKNOWN,UNKNOWN,ROLLBACK")
    play.until_delivered(late)
    play.until_checked(decided, 1)
    play.until_checked([*unanswered, *answered], 2)
    wait_copied(play.rig)
    play.record("stopping", how="kill")
    end = fail_over(play.rig)  # the clients stay, and find it again
    play.rig.wait_broker(play.agent)
    play.record("failed_over", commit_log_offset=end)
    lost = [event for event in play.truth if event["event"] in ("sent", "decision", "delivered")]
    lost = [event for event in lost if (event["commit_log_offset"] or 0) >= end]
    if lost:
        raise RuntimeError(f"the slave has not got: {lost}")
    heard = max(len(one.checks) for one in unanswered)
    play.until_checked(unanswered, heard + 1)  # so the producer is connected again
    for number, first in enumerate(("COMMIT", "ROLLBACK", "UNKNOWN", "UNKNOWN")):
        play.send("failover_new_master", number, rng, first=first)
    play.until_delivered([play.cases["failover_new_master.0"]])
    play.until_discarded(unanswered[:1])
    play.config(transactionTimeOut="600000")
    play.send_all("failover_pending", 2, rng)


@history(phase=1)
def rolled_back_then_discarded(play: Play, count: int, rng: Random) -> None:
    """Rolled back at once or at the first check, and discarded while the ops still wait in the broker's memory."""
    play.config(transactionOpBatchInterval="60000")
    time.sleep(2)
    sent = []
    for number in range(count):
        words = {"first": "ROLLBACK"} if number % 2 else {"checks": "ROLLBACK"}
        sent.append(play.send("rolled_back_then_discarded", number, rng, **words))
    play.until_discarded(sent)
    time.sleep(2)  # and the check's cursor is written
