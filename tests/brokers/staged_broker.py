"""The broker and the clients of a run: start, stop, restart, changes of settings and cursors, and the broker's log."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.brokers import rig as rigs
from tests.brokers.events import Events
from tests.brokers.rig import DISCARD_TOPIC, HALF_TOPIC, Agent, Rig
from tests.brokers.script import Script, Stop

DISCARD_COPIES_SINCE = (4, 5, 2)


class StagedBroker(Events):
    """One broker on one store, with official clients."""

    def __init__(self, script: Script, out: Path, say: Callable[[str], None] = print) -> None:
        super().__init__()
        self.script = script
        self.out = out
        self.say = say
        self.log_file = self.out / "broker-logback.log"
        self._log_read = 0
        self.rig = Rig((*script.earlier, script.version)[0], out, script.conf, script.host)
        self.agent: Agent
        self._agent_number = 0
        self.groups: set[str] = set()

    def boot(self) -> None:
        """Start the broker on the store, and the clients."""
        self.rig.start_broker()
        self._agent_number += 1
        self.agent = self.start_clients(f"client-{self._agent_number}.log")
        self.rig.wait_broker(self.agent)
        for topic, queues in self.script.topics.items():
            self.rig.create_topic(self.agent, topic, queues, self.script.attributes.get(topic))
        self.record("started", version=self.rig.version, check_max=int(self.rig.conf["transactionCheckMax"]))
        self.agent.do("consumer", group="warehouse", topics=",".join(self.script.topics))
        if self.rig.release >= DISCARD_COPIES_SINCE:
            self.agent.do("consumer", group="watch", topics=DISCARD_TOPIC)
        for group in sorted(self.groups) or self.script.groups:
            self.join_group(group)

    def start_clients(self, log: str) -> Agent:
        """Start the process of clients."""
        return self.rig.agent(log, self.take)

    def halt(self, how: Stop) -> None:
        """Stop the broker, then the clients."""
        self.record("stopping", how=how)
        self.rig.stop("broker", signal.SIGKILL if how == "kill" else signal.SIGTERM)
        self.record("stopped", how=how)
        self.agent.kill()
        self.read_log()

    def restart(self, settings: Mapping[str, str]) -> None:
        """Stop cleanly and start again with some settings changed."""
        self.halt("clean")
        self.rig.conf.update(settings)
        self.record("config", **settings)
        self.boot()

    def become(self, version: str) -> None:
        """Stop cleanly and start another version on the same store."""
        self.halt("clean")
        self.rig.become(version)
        self.boot()

    def config(self, **values: str) -> None:
        """Change settings of the running broker."""
        self.rig.set_config(self.agent, **values)
        self.record("config", **values)

    def join_group(self, group: str, compress: str | None = None, ahead_ms: int | None = None) -> None:
        """Start a producer; `ahead_ms`: by how much its clock is ahead."""
        topic = next(iter(self.script.topics))
        self.agent.do("producer", group=group, topic=topic, compress=compress, ahead=ahead_ms)
        self.groups.add(group)

    def set_half_cursor(self, to: int, with_backup: bool) -> None:
        """Edit the half topic's committed offset in the stopped broker's configuration, as an operator would."""
        pattern = re.compile(r'("' + HALF_TOPIC + "@" + rigs.CHECK_GROUP + r'":\s*\{\s*"?0"?:\s*)(\d+)')
        for name in ("consumerOffset.json", *(("consumerOffset.json.bak",) if with_backup else ())):
            path = self.rig.store / "config" / name
            if not path.exists():  # only the second flush writes the backup
                continue
            text = path.read_text()
            found = pattern.search(text)
            if found is None:
                raise RuntimeError(f"no half cursor in {path}")
            path.write_text(pattern.sub(lambda match: match.group(1) + str(to), text))
            self.record("edited", file=f"config/{name}", was=int(found.group(2)), now=to)

    def read_log(self) -> None:
        """Read discards from the broker's log if the version writes no discard copy."""
        if self.rig.release < DISCARD_COPIES_SINCE:
            for line in self.new_log_lines():
                if "has been checked too many times" in line:
                    found = {name: _first(pattern, line) for name, pattern in LOGGED.items()}
                    self.record(
                        "discard_logged",
                        case=found["case"],
                        transaction_id=found["uniq"],
                        queue_offset=int(found["queue_offset"] or -1),
                        commit_log_offset=int(found["commit_log_offset"] or -1),
                        checks_count=found["checks"],
                    )

    def new_log_lines(self) -> list[str]:
        """The lines of the broker's log since the last call."""
        if not self.log_file.exists():
            return []
        with self._changed:
            with self.log_file.open("rb") as lines:
                lines.seek(self._log_read)
                text = lines.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._log_read += len(whole)
        return whole.decode("utf-8", "replace").splitlines()


LOGGED = {
    "uniq": re.compile(r"UNIQ_KEY=([0-9A-F]+)"),
    "case": re.compile(r"[{ ]case=([\w.]+)"),
    "queue_offset": re.compile(r"queueOffset=(\d+)"),
    "commit_log_offset": re.compile(r"commitLogOffset=(\d+)"),
    "checks": re.compile(r"TRANSACTION_CHECK_TIMES=(\d+)"),
}


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.search(text)
    return found.group(1) if found else None
