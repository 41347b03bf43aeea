"""Stores that are bundles: a part of a store, with filler records in place of what was left out."""

from __future__ import annotations

from rmqtx.readers.store.store import LEFT_OUT_TOPIC, Store

#: How much of a log is searched for records that replace those that were left out of a bundle.
_SEARCHED_BYTES = 4 << 20
#: Length and magic of a blank (docs/formats/record.md#blank).
_BLANK_HEAD_BYTES = 8


def is_bundle(store: Store) -> bool:
    """Whether a store is a bundle; its log has filler records for what was left out.

    A log file of which a bundle has no record is only a blank: the next one is searched then.
    """
    for segment in store.commit_log:
        with segment.open() as file:
            begin = file.read(0, _SEARCHED_BYTES)
        if begin[_BLANK_HEAD_BYTES:].strip(b"\0"):
            return LEFT_OUT_TOPIC.encode() in begin
    return False
