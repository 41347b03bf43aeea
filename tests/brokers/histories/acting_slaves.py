"""Histories with a slave that acts as its master (enableSlaveActingMaster, 5.1.0 and later).

A slave of these releases fetches its master's cursors and topics once a minute. Without its master it checks from the
cursors that it has, and sends each open half copy to another broker of the cluster; if that fails eleven times, it goes
on with the next one.
"""

from __future__ import annotations

import signal
import time
from random import Random

from tests.brokers.histories.registry import history
from tests.brokers.rig import HALF_TOPIC, REQUEST_TOPIC, Rig
from tests.brokers.slave import fail_over, start_slave, wait_copied
from tests.brokers.stage import Play

READ_ONLY, READ_WRITE = 4, 6
#: The slave's log has one of them when it has tried to fetch the topics of its master.
FETCHED = ("Update slave topic config from master", "SyncTopicConfig Exception")
ROUND_SECONDS = 60


def wait_logged(rig: Rig, *words: str, seconds: float = 120) -> None:
    """Wait until a log of the broker has one of the words."""
    limit = time.monotonic() + seconds
    while not any(word in path.read_text(errors="replace") for path in rig.out.rglob("*.log") for word in words):
        if time.monotonic() > limit:
            raise TimeoutError(f"no log of {rig.out} has {words}")
        time.sleep(0.5)


def permit(play: Play, topic: str, queues: int, permission: int) -> None:
    """Let clients of the broker write to a topic, or only read."""
    answer = play.rig.request(
        play.agent, REQUEST_TOPIC, topic=topic, defaultTopic="TBW102", readQueueNums=queues, writeQueueNums=queues,
        perm=permission, topicFilterType="SINGLE_TAG", topicSysFlag=0, order="false",
    )
    assert answer["code"] == 0, answer


@history(phase=1)
def escaped(play: Play, count: int, rng: Random) -> None:
    """Sent to another master, which is killed; its acting slave sends each open copy of them to this broker.

    The other master has put them back several times, and the slave's cursors are older than these copies: this broker
    gets several copies of each transaction and checks each of them. One was committed on the other master: its older
    copies are sent too, and committed here.
    """
    (topic, queues), = play.script.topics.items()
    permit(play, topic, queues, READ_ONLY)
    master = Rig(play.script.version, play.out / "master", play.rig.conf | {"brokerName": "broker-b"})
    master.names_port = play.rig.names_port
    play.rig.others.append(master)
    master.start_broker()
    master.wait_broker(play.agent)
    master.create_topic(play.agent, topic, queues)
    slave = start_slave(master, play.out / "slave")
    time.sleep(4)  # and clients have the route of the other master
    unanswered = play.send_all("escaped_unanswered", count, rng)
    committed = play.send_all("escaped_committed_before", 2, rng, checks="UNKNOW,UNKNOW,COMMIT")
    rolled_back = play.send_all("escaped_rolled_back_before", 2, rng, checks="UNKNOW,ROLLBACK")
    play.until_checked(unanswered, 3)
    play.until_checked([*committed, *rolled_back], 2)
    play.until_delivered(committed)
    time.sleep(2)  # and their ops are written
    later = play.send_all("escaped_at_once", 2, rng, checks="UNKNOW,COMMIT")
    wait_copied(master)
    play.record("stopping", how="kill", broker=master.conf["brokerName"])
    master.stop("broker", signal.SIGKILL)
    play.beside = master.store
    permit(play, topic, queues, READ_WRITE)
    wait_logged(slave, "TransactionCheckService status changed to true")
    play.record("acting", broker=master.conf["brokerName"])
    play.until("the first copy", lambda: bool(play.copies(unanswered[0])))
    play.until_delivered(later)
    play.until_discarded(unanswered)
    play.send_all("commit", 2, rng, first="COMMIT")
    own = play.send_all("pending", 2, rng)
    play.until_checked(own, 1)
    slave.stop("broker")


@history(phase=1)
def acting_gave_up(play: Play, count: int, rng: Random) -> None:
    """The master is killed; its acting slave may not send halves to other brokers, goes on after eleven tries each, and
    then becomes a master with this cursor: nothing checks the halves before it.

    One of the topics has message.type=TRANSACTION: slaves of 5.3.2 and 5.3.3 do not accept it.
    """
    play.record("slave_started")
    slave = start_slave(play.rig, play.out / "slave")
    plain, typed = play.script.topics
    early = play.send_all("acting_commit", 4, rng, first="COMMIT")
    play.until_delivered(early)
    play.send_all("acting_rollback", 2, rng, first="ROLLBACK")
    wait_logged(slave, *FETCHED)
    play.config(transactionTimeOut="600000")  # so that nothing is checked and put back before the kill
    for number in range(count):
        play.send("acting_pending", number, rng, topic=(plain, typed)[number % 2])
    play.until_sent([play.cases[f"acting_pending.{number}"] for number in range(count)])
    wait_copied(play.rig)
    play.beside = play.out / "killed"
    play.record("stopping", how="kill")
    end = fail_over(play.rig, acting=lambda: time.sleep(ROUND_SECONDS + 15), keep=play.beside)
    play.rig.wait_broker(play.agent)
    play.record("failed_over", commit_log_offset=end, half_cursor=play.rig.cursor(play.agent, HALF_TOPIC))
