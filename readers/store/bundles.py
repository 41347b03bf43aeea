"""Stores that are bundles: a part of a store, with filler records in place of what was left out."""

from __future__ import annotations

from rmqtx.readers.store.store import LEFT_OUT_TOPIC, Store

#: How much of a log is searched for records that replace those that were left out of a bundle.
_SEARCHED_BYTES = 4 << 20


def is_bundle(store: Store) -> bool:
    """Whether a store is a bundle; its log has filler records for what was left out."""
    if not store.commit_log:  # deleted: a bundle always has a log
        return False
    with store.commit_log[0].open() as file:
        return LEFT_OUT_TOPIC.encode() in file.read(0, _SEARCHED_BYTES)
