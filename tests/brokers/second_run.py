"""Second runs: the same version, started on a copy of a finished store: what does it ask, put back and discard?"""

from __future__ import annotations

import shutil
import time

from tests.brokers.rig import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC, Agent, Event, Rig
from tests.brokers.staged_broker import StagedBroker
from tests.brokers.store_files import allow_reading_ops, log_end

FORGETTING = ("4.9.3",)
"""Versions that do not load config/lmqConsumerOffset.json when they start."""
CURSORS = "consumerOffset.json"
NEVER = "100000"
QUIET_SECONDS = 4.0


class SecondRun(StagedBroker):
    """A run that can be followed by another one on a copy of its store."""

    system_topics: tuple[tuple[str, int], ...] = ((HALF_TOPIC, 1), (OP_TOPIC, 4), (DISCARD_TOPIC, 1))

    def after(self, wait_seconds: float = 8) -> None:
        """Start the same version on a copy of the finished store, answer UNKNOW to every check, and record what is
        asked and put back.
        """
        end_of_log = log_end(self.rig.store)
        self.record("log_end", commit_log_offset=end_of_log)
        copy = self.out / "after"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.rig.store, copy / "store")
        allow_reading_ops(copy / "store" / "config" / "topics.json", self.script.topics)
        (copy / "store" / "brokerIdentity").unlink(missing_ok=True)  # the second run has another controller
        calm = {"transactionCheckMax": NEVER, "transactionTimeOut": "1000", "transactionCheckInterval": "1000"}
        if self.script.version in FORGETTING and self.script.conf.get("enableLmq") == "true":
            # The second run must begin at the check's cursors, which this version does not load from their file.
            calm["enableLmq"] = "false"
            shutil.copyfile(*(copy / "store" / "config" / name for name in ("lmqConsumerOffset.json", CURSORS)))
        with Rig(self.script.version, copy, dict(self.rig.conf) | calm, self.script.host) as rig:
            rig.start_names()
            rig.start_broker()
            agent = rig.agent("client.log", self._take_after)
            rig.wait_broker(agent)
            for group in sorted(self.groups):
                self.join_after(agent, group)
            agent.do("consumer", group="after", topics=",".join(self.script.topics))
            self._wait_asked(wait_seconds)
            for topic in (HALF_TOPIC, OP_TOPIC):
                self.record("after_cursor", topic=topic, queue_offset=rig.cursor(agent, topic))
            for topic, queues in (*self.system_topics, *self.script.topics.items()):
                for queue in range(queues):
                    for record in rig.pull(agent, topic, queue, bodies=topic == OP_TOPIC):
                        before = record["commit_log_offset"] < end_of_log
                        if before or topic == HALF_TOPIC:
                            record.pop("body_crc32" if topic != OP_TOPIC else "keys", None)
                            self.record("after_record" if before else "after_put_back", **record)
            agent.kill()
        shutil.rmtree(copy)

    def after_as_is(self, wait_seconds: float = 12) -> None:
        """Start the same version on a copy, with the same settings and only a reading client: record what it puts
        back and what it discards.
        """
        copy = self.out / "as-is"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.rig.store, copy / "store")
        end_of_log = log_end(self.rig.store)
        with Rig(self.script.version, copy, self.rig.conf, self.script.host) as rig:
            rig.start_names()
            rig.start_broker()
            agent = rig.agent("client.log")
            rig.wait_broker(agent)
            cursor, since = rig.cursor(agent, HALF_TOPIC), time.monotonic()
            self.record("as_is_first_cursor", queue_offset=cursor)
            while time.monotonic() - since < wait_seconds:  # until it has nothing more to put back
                time.sleep(0.5)
                now = rig.cursor(agent, HALF_TOPIC)
                if now != cursor:
                    cursor, since = now, time.monotonic()
            for topic, kind in ((HALF_TOPIC, "as_is_put_back"), (DISCARD_TOPIC, "as_is_discarded")):
                for record in rig.pull(agent, topic):
                    if record["commit_log_offset"] >= end_of_log:
                        record.pop("body_crc32", None)
                        self.record(kind, **record)
            agent.kill()
        shutil.rmtree(copy)

    def join_after(self, agent: Agent, group: str) -> None:
        """Start a producer of the second run."""
        agent.do("producer", group=group, topic=next(iter(self.script.topics)))

    def _take_after(self, event: Event) -> None:
        if event["event"] in ("check", "delivered"):
            self.take(event | {"event": "after_" + event["event"]})

    def _wait_asked(self, wait_seconds: float) -> None:
        begin = time.monotonic()
        asked: set[str] = set()
        last_new = begin
        while True:
            time.sleep(0.5)
            with self._changed:
                now = {str(event["transaction_id"]) for event in self.truth if event["event"] == "after_check"}
            if now - asked:
                asked, last_new = now, time.monotonic()
            if time.monotonic() - begin > wait_seconds and time.monotonic() - last_new > QUIET_SECONDS:
                return
