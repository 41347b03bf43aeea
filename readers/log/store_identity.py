"""By what a store is known again wherever it lies: the first record of its log.

It holds its broker's address, its times and a message that no other store has at that offset; a broker never changes
it, and neither does rmqtx. It goes when its file expires, so this tells whether two stores are the same now.
"""

from __future__ import annotations

import hashlib
import os

from readers.log.record_layout import RECORD_BYTES_MIN
from readers.store.store import open_store

#: What is digested where no length of a record stands at the begin: the header of a DLedger entry, or damage.
_HEAD_BYTES = 48
_RECORD_BYTES_MAX = 1 << 24


def first_record_of(root: str | os.PathLike[str]) -> str | None:
    """Where a store's log begins and the digest of its first record, as one text; None for a log without any.

    Raises: NotAStore, UnreadableFile; FileChanged.
    """
    store = open_store(root)
    first = next((segment for segment in store.commit_log if segment.size_bytes), None)
    if first is None:
        return None
    with first.open() as file:
        length = int.from_bytes(file.read(0, 4), "big", signed=True)
        is_length = RECORD_BYTES_MIN <= length <= min(first.size_bytes, _RECORD_BYTES_MAX)
        data = file.read(0, length if is_length else _HEAD_BYTES)
    if not data.strip(b"\0"):
        return None
    return f"{first.base_offset}:{hashlib.sha256(data).hexdigest()}"


def why_another(known: str | None, root: str | os.PathLike[str]) -> str | None:
    """Why the store at a place is not the one that is known; None where it is.

    Raises: as `first_record_of`.
    """
    found = first_record_of(root)
    if found == known:
        return None
    if found is None or known is None:
        return "its log is empty" if found is None else "its log was empty"
    return "the first record of its log is another"
