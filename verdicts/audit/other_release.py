"""What another release does with the open transactions of a store, compared with the release that wrote it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rmqtx.readers.model.releases import HALF_TOPIC_DESIGN, PREPARED_NOT_CHECKED, ROCKSDB_TRANSACTIONS, Version
from rmqtx.readers.store.broker_settings import BrokerSettings
from rmqtx.readers.store.store import HALF_TOPIC, ROCKSDB_HALF_TOPIC, Store
from rmqtx.verdicts.audit.lookups import pending
from rmqtx.verdicts.audit.timeline import StoreTimelineSource
from rmqtx.verdicts.model.verdict_words import NextEvent

#: What a release that does not read the design of a transaction does with it.
UNSEEN = "never seen"


@dataclass(slots=True)
class OtherRelease:
    """What a release does with the open transactions of one store.

    Shape: `counts`: transactions by what the own release does next, and what the other does (values of `next_event`, or
           UNSEEN); None where it is not known. `own`: the version of its broker as text, as far as it is known.
           `is_doubtful`: evidence is missing or damaged, so transactions may be missing here.
    """

    version: Version
    own: str
    is_doubtful: bool = False
    counts: Counter[tuple[str | None, str | None]] = field(default_factory=Counter)

    @property
    def is_known(self) -> bool:
        """Whether what both do is known of every transaction."""
        known = all(None not in pair and NextEvent.UNKNOWN not in pair for pair in self.counts)
        return known and not self.is_doubtful

    @property
    def changed_count(self) -> int:
        """The number of transactions with which the other release is known to do something else."""
        return sum(
            count for pair, count in self.counts.items()
            if pair[0] != pair[1] and not {None, NextEvent.UNKNOWN} & {*pair}
        )


def with_release(store: Store, own: BrokerSettings, other: BrokerSettings, version: Version) -> OtherRelease:
    """Return what a release does with the open transactions of a stopped store.

    `own`, `other`: the settings of its broker, with its own release and with the other one.
    Raises: UnreadableFile.
    """
    mine, is_doubtful = _open(store, own)
    others, are_doubtful = _open(store, other)
    names = _topics(store, own, [*mine.values(), *others.values()])
    found = OtherRelease(version, own.version, is_doubtful or are_doubtful)
    for identity in mine.keys() | others.keys():
        row = mine.get(identity) or others[identity]
        topic = names.get(row["half_copies"][0]["commit_log_offset"]) if row["half_copies"] else None
        theirs = _event(others.get(identity))
        # Its record cannot be read, so its design is unknown; or no start on queues of another release was tried.
        if topic is None or (topic == HALF_TOPIC and store.has_rocksdb_queues):
            theirs = NextEvent.UNKNOWN
        elif not _reads(topic, version):
            theirs = UNSEEN
        found.counts[_event(mine.get(identity)), theirs] += 1
    return found


def _open(store: Store, settings: BrokerSettings) -> tuple[dict[str, dict[str, Any]], bool]:
    """Return the open transactions by id, and whether evidence is missing or damaged."""
    def settings_of(_store: Store) -> BrokerSettings:
        return settings

    reading = pending([store], settings_of)
    rows = {row["transaction_id"]: row for row in reading.table().to_pylist()}
    return rows, bool(reading.undecidable_count) or any(one.is_error for one in reading.findings)


def _event(row: Mapping[str, Any] | None) -> str | None:
    """The next event of a transaction; a row that is not listed is not open."""
    return str(NextEvent.NONE) if row is None else row["next_event"]


def _topics(store: Store, settings: BrokerSettings, rows: list[dict[str, Any]]) -> dict[int, str]:
    """The topic of the first half copy of each transaction, by its commit-log offset."""
    offsets = {row["half_copies"][0]["commit_log_offset"] for row in rows if row["half_copies"]}
    records = StoreTimelineSource(store, settings).records(sorted(offsets))
    return {offset: name.topic for offset, name in records.items()}


def _reads(topic: str, version: Version) -> bool:
    """Whether the check of a release reads the design of a half copy in a topic, with the files as they are."""
    if topic == ROCKSDB_HALF_TOPIC:
        return ROCKSDB_TRANSACTIONS.holds(version)
    return HALF_TOPIC_DESIGN.holds(version) if topic == HALF_TOPIC else not PREPARED_NOT_CHECKED.holds(version)
