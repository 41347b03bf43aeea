"""Finds stores below a directory."""

from __future__ import annotations

import time
from collections.abc import Iterator

from rmqtx.readers.model.errors import NotAStore, SourceError
from rmqtx.readers.storage.file_systems import files_of
from rmqtx.readers.storage.places import FileSystem, joined
from rmqtx.readers.storage.refused import unreadable
from rmqtx.readers.store.store import Store, open_store
from rmqtx.readers.store.store_roots import is_below_others_without_log, log_directories

_DEPTH_MAX = 6
#: Directories inside a store, which contain no other store.
_INSIDE = frozenset({"consumequeue", "consumequeue_ext", "batchconsumequeue", "index", "config"})


def stores_below(place: str, commit_logs: tuple[str, ...] = ()) -> tuple[list[Store], list[SourceError]]:
    """The store at a place, or all stores below it, and why others below it cannot be read.

    Order: by path. Links are not followed, so that no store is found twice.
    Raises: NotAStore if there is none; UnreadableFile if the place cannot be read.
    """
    try:
        return [open_store(place, commit_logs)], []
    except NotAStore:
        stores: list[Store] = []
        refused: list[SourceError] = []
        for root in _roots(files_of(place, time.time_ns()), place, _DEPTH_MAX, refused):
            try:
                stores.append(open_store(root))
            except SourceError as error:
                refused.append(error)
        if not stores and not refused:
            raise
        return stores, refused


def _roots(files: FileSystem, directory: str, depth: int, refused: list[SourceError]) -> Iterator[str]:
    try:
        names = [entry.name for entry in files.entries(directory) if entry.is_directory and not entry.is_link]
        is_root = bool(log_directories(files, directory, names)) or is_below_others_without_log(files, directory)
    except (FileNotFoundError, NotADirectoryError):  # also a directory that was removed meanwhile
        return
    except OSError as error:
        refused.append(unreadable(directory, error))
        return
    except SourceError as error:
        refused.append(error)
        return
    if is_root:
        yield directory
        return
    if depth == 0:
        return
    for name in names:
        if name not in _INSIDE:
            yield from _roots(files, joined(directory, name), depth - 1, refused)
