"""Finds stores below a directory."""

from __future__ import annotations

import time
from collections.abc import Iterator

from readers.model.errors import NotAStore
from readers.storage.file_systems import files_of
from readers.storage.places import FileSystem, joined
from readers.store.store import Store, log_directories, open_store

_DEPTH_MAX = 6
#: Directories inside a store, which contain no other store.
_INSIDE = frozenset({"consumequeue", "consumequeue_ext", "batchconsumequeue", "index", "config"})


def stores_below(place: str, commit_logs: tuple[str, ...] = ()) -> list[Store]:
    """The store at a place, or all stores below it.

    Order: by path. Links are not followed, so that no store is found twice.
    Raises: NotAStore if there is none; UnreadableFile if the place cannot be read.
    """
    try:
        return [open_store(place, commit_logs)]
    except NotAStore:
        found = [open_store(root) for root in _roots(files_of(place, time.time_ns()), place, _DEPTH_MAX)]
        if not found:
            raise
        return found


def _roots(files: FileSystem, directory: str, depth: int) -> Iterator[str]:
    try:
        names = [entry.name for entry in files.entries(directory) if entry.is_directory and not entry.is_link]
    except OSError:
        return
    if log_directories(files, directory, names):
        yield directory
        return
    if depth == 0:
        return
    for name in names:
        if name not in _INSIDE:
            yield from _roots(files, joined(directory, name), depth - 1)
