"""Brokers without half topics (3.1.4, 3.2.6, 4.2.0) with small files and upgrades in place.

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
"""The configuration of every old store, unless a recipe says otherwise. Only 3.1 has the last three."""
SMALL_REDO_LOG: Mapping[str, str] = {"tranRedoLogMapedFileSize": str(ENTRY_BYTES * 50)}
"""Redo log files so small that there are several: then 3.1.4's recovery reads the first one only."""
LATER_SETTINGS = ("transaction", "traceTopic")
"""Prefixes of settings that these versions do not have."""
FIRST_CHECK_SECONDS = 60
"""Time of 3.1.4 from a table file's first slot, or from its own start, to the first check; no setting changes it."""


class OldRig(Rig):
    """A name server and a broker of a version without half topics."""

    def __init__(self, version: str, out: Path, conf: Mapping[str, str] | None = None) -> None:
        super().__init__(version, out, dict(OLD_SMALL) | dict(conf or {}))
        self.conf = {name: value for name, value in self.conf.items() if not name.startswith(LATER_SETTINGS)}

    def start(self) -> None:
        """Start the name server and the broker on the store."""
        self.start_names()
        self.start_broker()

    def use(self, version: str) -> None:
        """Use another version from the next start on: an upgrade in the same directory."""
        self.version = version
        self.classpath = maven.classpath(version)

    def view(self, agent: Agent, to: int, begin: int = 0) -> list[Event]:
        """The log's records between two offsets, returned by the broker one by one and decoded by the official decoder,
        with prepared records and rollback records, which no consumer receives.
        """
        size = self.conf["mappedFileSizeCommitLog"]
        answer = agent.do("view", address=self.address, to=to, file=size, **{"from": begin})
        records: list[Event] = answer["records"]
        return records

    def end(self, agent: Agent, what: int, sent: Event, **other: object) -> Event:
        """Send END_TRANSACTION by hand with the producer's handle (a `sent` event); `other` replaces fields. Return
        the broker's answer.
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
    """A rig of an old version in a new directory."""
    out.mkdir(parents=True, exist_ok=True)
    return OldRig(version, out, conf)
