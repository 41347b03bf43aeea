"""Cursors that the broker writes and does not read when it starts: what its next start does to transactions."""

from __future__ import annotations

from collections.abc import Iterator

from readers.broker_settings import BrokerSettings
from readers.consume_queue import open_queue
from readers.cursors import check_cursors
from readers.errors import SourceError
from readers.findings import Finding
from readers.paths import ALWAYS, Version
from readers.store import HALF_TOPIC, Store


def starts_without(settings: BrokerSettings, loaded_since: Version) -> bool | None:
    """Whether a broker starts without cursors that are read since some version only; None where it may."""
    low, high = settings.version_low, settings.version_high
    if loaded_since == ALWAYS or (low is not None and low >= loaded_since):
        return False
    return True if high is not None and high < loaded_since else None


def unloaded_cursor_findings(store: Store, settings: BrokerSettings) -> Iterator[Finding]:
    """A finding where the next start begins the check at the queues' first messages, or may.

    Source: broker/offset/LmqConsumerOffsetManager.java (4.9.3, 4.9.4); seen on 4.9.3.
    """
    cursors = check_cursors(store)
    is_known = starts_without(settings, cursors.loaded_since)
    if cursors.half is None or cursors.file is None or is_known is False:
        return
    before = _checked_before(store, cursors.half.get(0))
    if before is None or before <= 0:
        return
    since = ".".join(map(str, cursors.loaded_since))
    may_be = f"a broker before {since}, which this one may be (--broker-version),"
    who = f"broker {settings.version}" if is_known else may_be
    yield Finding(
        store.root, "cursors-not-loaded", cursors.file, expected=f"a broker that reads it when it starts ({since}+)",
        actual=f"{who} begins at the first half: the check has {before} half copies before it again",
    )  # fmt: skip


def _checked_before(store: Store, cursor: int | None) -> int | None:
    """How many half copies that are left the check has behind it."""
    if cursor is None:
        return None
    try:
        with open_queue(store, HALF_TOPIC, 0) as queue:
            return min(cursor, queue.max_offset) - queue.min_offset
    except SourceError:
        return None
