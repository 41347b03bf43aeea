"""Runs on brokers without half topics (before 4.3), with restarts, crashes and upgrades.

As in stage.py, the truth is what clients, consumers and brokers reported. The second run, on a copy, differs: its
producers answer every check with COMMIT, and the deliveries show which answers this broker still accepts; its records
are those that the broker returns by offset, because no consumer receives prepared records or rollback records.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from tests.brokers import maven
from tests.brokers.histories import HISTORIES
from tests.brokers.old_rig import FIRST_CHECK_SECONDS, OldRig
from tests.brokers.rig import COMMIT, Event
from tests.brokers.script import Act, Script, Stop
from tests.brokers.slave import start_slave, wait_copied
from tests.brokers.stage import Play
from tests.brokers.store_files import log_end
from tests.brokers.transaction import Transaction

QUIET_ROUNDS = 3
FIRST = "first_"


@dataclass
class OldScript(Script):
    """The plan of a run on an old broker."""

    upgrade: str | None = None
    """The version that is started on the same directory after the histories."""
    later: Mapping[str, int] = field(default_factory=dict)
    """The histories played on that version."""
    slave: bool = False
    """Keep the slave's store instead of the master's."""

    @property
    def last_version(self) -> str:
        """The version of the last broker that wrote."""
        return self.upgrade or self.version


class OldPlay(Play):
    """One run on one store of an old broker."""

    script: OldScript
    rig: OldRig

    def __init__(self, script: OldScript, out: Path, say: Callable[[str], None] = print) -> None:
        super().__init__(script, out, say)
        self.rig.close()
        self.rig = OldRig(script.version, out, script.conf)
        self.strangers: str | None = None
        """The answer of producers to checks of transactions that an earlier process sent."""

    def boot(self) -> None:
        """Start the broker on the store, and the clients; send the first record of the log if it is in the script."""
        super().boot()
        if self.script.slave and self.rig.slave is None:
            start_slave(self.rig, self.out / "slave", haMasterAddress=f"127.0.0.1:{self.rig.port + 1}")
        for name in self.script.histories:
            if name.startswith(FIRST) and name + ".0" not in self.cases:
                first = "COMMIT" if name == "first_committed" else "UNKNOW"
                self.until_sent([self.send(name, 0, Random(name), first=first)])

    def join_group(self, group: str, compress: str | None = None, ahead_ms: int | None = None) -> None:
        """Start a producer."""
        topic = next(iter(self.script.topics))
        self.agent.do("producer", group=group, topic=topic, strangers=self.strangers)
        self.groups.add(group)

    def end_by_hand(self, transaction: Transaction, what: int, why: str = "by hand", **other: object) -> Event:
        """Send END_TRANSACTION with the producer's handle; `other` replaces fields. Return the answer."""
        known = transaction.known
        self.record(
            "decision",
            case=transaction.case,
            transaction_id=known["transaction_id"],
            what="COMMIT_MESSAGE" if what == COMMIT else "ROLLBACK_MESSAGE",
            by="tool",
            why=why,
            producer_group=other.get("producerGroup", known["producer_group"]),
            queue_offset=other.get("tranStateTableOffset", known["queue_offset"]),
            commit_log_offset=known["commit_log_offset"],
        )
        answer = self.rig.end(self.agent, what, known, **other)
        self.record("decision_answer", case=transaction.case, code=answer["code"], remark=answer["remark"])
        return answer

    def start_again(self, how: Stop, version: str | None = None, strangers: str | None = None) -> None:
        """Stop or kill the broker, and start it again on the same store."""
        self.halt(how)
        self.strangers = strangers
        if version is not None:
            self.rig.use(version)
        self.boot()

    def run(self, acts: Mapping[str, Act]) -> None:
        """Play the histories; then, if the script upgrades to another old version, the later ones on that version."""
        super().run(acts)
        if self.rig.slave is not None:
            shutil.rmtree(self.rig.store)
            shutil.move(self.rig.slave.store, self.rig.store)
        upgrade = self.script.upgrade
        if upgrade is not None and maven.is_old(upgrade):
            self.rig.stop("namesrv")
            self.rig.use(upgrade)
            self.record("upgraded", version=upgrade)
            self.script = replace(self.script, version=upgrade, histories=self.script.later, upgrade=None)
            super().run(acts)

    def halt(self, how: Stop) -> None:
        """Stop the broker, then the clients. A slave is first synchronized, and stopped before its master, because a
        master of 3.1.4 with a slave does not stop.
        """
        if self.rig.slave is not None:
            wait_copied(self.rig)
            self.rig.slave.stop("broker")
        super().halt(how)

    def after(self, wait_seconds: float = 2) -> None:
        """Start the last version on a copy of the finished store, answer COMMIT to every check, and record the checks,
        the deliveries, and every record before the end of the log. Wait as long as 3.1 needs for its first check, also
        with versions that never check.
        """
        end = log_end(self.rig.store)
        self.record("log_end", commit_log_offset=end)
        copy = self.out / "after"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.rig.store, copy / "store")
        with OldRig(self.rig.version, copy, self.rig.conf) as rig:
            rig.start()
            agent = rig.agent("client.log", self._take_after)
            rig.wait_broker(agent)
            for group in sorted(self.groups):
                agent.do("producer", group=group, topic=next(iter(self.script.topics)), strangers="COMMIT")
            agent.do("consumer", group="after", topics=",".join(self.script.topics))
            begin = time.monotonic()
            for record in rig.view(agent, end):
                record.pop("body_crc32")
                self.record("after_record", **record)
            time.sleep(max(0.0, FIRST_CHECK_SECONDS - (time.monotonic() - begin)))
            interval = int(rig.conf["checkTransactionMessageTimerInterval"]) / 1000
            self._wait_asked(QUIET_ROUNDS * interval + wait_seconds)
            agent.kill()
        shutil.rmtree(copy)


class LaterPlay(Play):
    """The run of a version with half topics on an old broker's store."""

    earlier: OldPlay


def play_old(script: OldScript, out: Path, acts: Mapping[str, Act]) -> Play:
    """Play a script of an old version in a directory: the store is then `out/store`, the truth in the result. After an
    upgrade to a version with half topics, the result is the run of that version.
    """
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    run = OldPlay(script, out)
    with run.rig:
        run.run(acts)
    run.after()
    if script.upgrade is None or maven.is_old(script.upgrade):
        return run
    newer = Script(script.upgrade, script.seed + 1, script.later, script.stop, run.rig.conf, script.topics)
    later = LaterPlay(newer, out)
    later.earlier = run
    later.truth = run.truth
    later.record("upgraded", version=script.upgrade)
    with later.rig:
        later.run(dict(acts) | HISTORIES)
    later.after()
    return later
