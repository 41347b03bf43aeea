"""Histories with decisions that name a COMMIT record or a discard copy in place of a half message."""

from __future__ import annotations

import time
from random import Random

from tests.brokers.histories.raw_requests import fill_queue
from tests.brokers.histories.registry import history
from tests.brokers.rig import COMMIT, DISCARD_TOPIC, ROLLBACK
from tests.brokers.stage import Play


@history()
def commit_names_final(play: Play, count: int, rng: Random) -> None:
    """COMMIT by hand naming a final record in queue 0: delivered again, and the op hides the half whose number the
    final has (before 5.5).
    """
    topic = next(iter(play.script.topics))
    victims = 0
    for number in range(count):
        probe = play.send("mask_probe", number, rng, first="ROLLBACK", topic=topic)
        play.until_sent([probe])
        here = max((record["queue_offset"] for record in play.rig.pull(play.agent, topic)), default=-1) + 1
        fill_queue(play, number, rng, topic, probe.original[0] + 6 - here)
        one = play.send("commit_names_final", number, rng, topic=topic, first="COMMIT")
        play.until_delivered([one])
        final = one.deliveries[0]
        while True:
            victim = play.send("mask_victim", victims, rng, topic=topic)
            victims += 1
            play.until_sent([victim])
            if victim.original[0] >= final["queue_offset"]:
                break
        play.record("masking", case=one.case, number=final["queue_offset"], victim=victim.case, half=victim.original[0])
        play.end(one, COMMIT, (final["queue_offset"], final["commit_log_offset"]))
    time.sleep(int(play.rig.conf["transactionTimeOut"]) / 1000 + int(play.rig.conf["transactionCheckMax"]) + 4)


@history()
def decision_names_discard(play: Play, count: int, rng: Random) -> None:
    """Discarded, then a decision by hand naming the discard copy: COMMIT delivers it, ROLLBACK changes nothing."""
    sent = play.send_all("decision_names_discard", count, rng)
    play.until_discarded(sent)
    for number, one in enumerate(sent):
        play.end(one, (COMMIT, ROLLBACK)[number % 2], play.last_copy(one, DISCARD_TOPIC))
    play.until_delivered(sent[::2])
