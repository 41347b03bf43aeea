"""Brokers from before half topics (3.1.4, 3.2.6, 4.2.0) with small files and upgrades in place.

For a test of its own: `with old_rig("3.1.4", out) as rig: rig.start(); agent = rig.agent(on_event=events.append)`, then
`agent.do("producer", group="shop")`, `agent.do("consumer", ...)`, `agent.do("send", ...)` as OldScenario.java says, and
`rig.end(agent, COMMIT, sent)` for END_TRANSACTION by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.brokers import maven
from tests.brokers.rig import COMMIT, REQUEST_END_TRANSACTION, ROLLBACK, Agent, Event, Rig

__all__ = ["COMMIT", "OLD_SMALL", "ROLLBACK", "OldRig", "old_rig"]

COMMIT_LOG_FILE_BYTES = 1 << 17
SLOTS_PER_FILE, SLOT_BYTES, ENTRY_BYTES = 20, 24, 20
OLD_SMALL: Mapping[str, str] = {
    "mappedFileSizeCommitLog": str(COMMIT_LOG_FILE_BYTES),
    "mappedFileSizeConsumeQueue": str(ENTRY_BYTES * 200),
    "maxMessageSize": str(1 << 16),
    "brokerIP2": "127.0.0.1",
    "deleteWhen": "04",
    "tranStateTableMapedFileSize": str(SLOT_BYTES * SLOTS_PER_FILE),
    "tranRedoLogMapedFileSize": str(ENTRY_BYTES * 2000),
    "checkTransactionMessageTimerInterval": "3000",
}
"""The configuration of every old store, unless a recipe says otherwise. The last three are 3.1's alone."""
SMALL_REDO_LOG: Mapping[str, str] = {"tranRedoLogMapedFileSize": str(ENTRY_BYTES * 50)}
"""Redo log files so small that there are several: then 3.1.4's recovery reads the first one only."""
LATER_SETTINGS = ("transaction", "traceTopic")
"""How settings begin that these versions don't have."""
FIRST_CHECK_SECONDS = 60
"""3.1.4 asks for the first time so long after a table file's first slot, or its own start; no setting changes that."""


class OldRig(Rig):
    """A name server and a broker of a version before half topics."""

    def __init__(self, version: str, out: Path, conf: Mapping[str, str] | None = None) -> None:
        super().__init__(version, out, dict(OLD_SMALL) | dict(conf or {}))
        self.conf = {name: value for name, value in self.conf.items() if not name.startswith(LATER_SETTINGS)}

    def start(self) -> None:
        """Start the name server and the broker on the store."""
        self.start_names()
        self.start_broker()

    def use(self, version: str) -> None:
        """Another version from the next start on: an upgrade in the same directory."""
        self.version = version
        self.classpath = maven.classpath(version)

    def view(self, agent: Agent, to: int, begin: int = 0) -> list[Event]:
        """The log's records between two offsets, as the broker serves them one by one and the official decoder reads
        them: prepared records and rollback records too, which no consumer gets.
        """
        size = self.conf["mappedFileSizeCommitLog"]
        answer = agent.do("view", address=self.address, to=to, file=size, **{"from": begin})
        records: list[Event] = answer["records"]
        return records

    def end(self, agent: Agent, what: int, sent: Event, **other: object) -> Event:
        """Send END_TRANSACTION by hand with the handle that its producer got (a `sent` event), or parts of another;
        gives the broker's answer.
        """
        wanted: dict[str, object] = {
            "producerGroup": sent["producer_group"],
            "tranStateTableOffset": sent["queue_offset"],
            "commitLogOffset": sent["commit_log_offset"],
            "commitOrRollback": what,
            "fromTransactionCheck": "true",
            "msgId": sent["message_id"],
            "transactionId": sent["transaction_id"],
        }
        return self.request(agent, REQUEST_END_TRANSACTION, None, 15, **(wanted | other))


def old_rig(version: str, out: Path, conf: Mapping[str, str] | None = None) -> OldRig:
    """A rig of an old version in a directory, which is made."""
    out.mkdir(parents=True, exist_ok=True)
    return OldRig(version, out, conf)
