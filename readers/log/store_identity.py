"""Identify a store, wherever it is copied, by the first record of its log.

The record contains the broker's address, times and a message. Only copies and replicas of the store have the same
record at that offset, and neither a broker nor rmqtx changes it. It is deleted when its file expires, so this shows
whether two stores are the same now.
"""

from __future__ import annotations

import hashlib
import os

from rmqtx.readers.log.record_head import HEAD_BYTES, number_at
from rmqtx.readers.log.record_layout import RECORD_BYTES_MIN
from rmqtx.readers.store.store import open_store

#: Bytes that are digested if the log does not begin with a record: the header of a DLedger entry, or damage.
_HEAD_BYTES = 48
_RECORD_BYTES_MAX = 1 << 24


def first_record_of(root: str | os.PathLike[str]) -> str | None:
    """Return the begin of a store's log and the digest of its first record, as one text; None for an empty log.

    Raises: NotAStore, UnreadableFile; FileChanged.
    """
    store = open_store(root)
    first = next((segment for segment in store.commit_log if segment.size_bytes), None)
    if first is None:
        return None
    with first.open() as file:
        length = number_at(file.read(0, HEAD_BYTES), "length_bytes")
        is_length = RECORD_BYTES_MIN <= length <= min(first.size_bytes, _RECORD_BYTES_MAX)
        data = file.read(0, length if is_length else _HEAD_BYTES)
    if not data.strip(b"\0"):
        return None
    return f"{first.base_offset}:{hashlib.sha256(data).hexdigest()}"


def why_another(known: str | None, root: str | os.PathLike[str]) -> str | None:
    """Return the reason why the store at a place is not the known store; None if it is.

    Raises: as `first_record_of`.
    """
    found = first_record_of(root)
    if found == known:
        return None
    if found is None or known is None:
        return "its log is empty" if found is None else "its log was empty"
    return "the first record of its log is different"
