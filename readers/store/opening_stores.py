"""Open several stores at the same time: on object storage, each takes round trips."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from rmqtx.readers.storage.places import is_uri
from rmqtx.readers.store.store import Store, open_store

_OPENED_AT_ONCE = 16


def open_all(places: Sequence[str], commit_log_directories: tuple[str, ...] = ()) -> list[Store]:
    """Return the stores at some places; those on object storage are opened at the same time.

    Order:  as given.
    Raises: NotAStore, UnreadableFile, for the first place without a store.
    """
    if len(places) < 2 or not any(map(is_uri, places)):
        return [open_store(place, commit_log_directories) for place in places]
    with ThreadPoolExecutor(min(len(places), _OPENED_AT_ONCE)) as pool:
        return list(pool.map(lambda place: open_store(place, commit_log_directories), places))
