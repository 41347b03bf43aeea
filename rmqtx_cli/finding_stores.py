"""Finds stores below a directory, so that an operator need not know a host's layout."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from readers.errors import NotAStore
from readers.store import Store, open_store

_DEPTH_MAX = 6
#: Directories of a store itself: nothing below them is another one.
_INSIDE = frozenset({"commitlog", "consumequeue", "consumequeue_ext", "batchconsumequeue", "index", "config"})


def stores_below(path: Path, commit_logs: tuple[str, ...] = ()) -> list[Store]:
    """The store at a path, or all stores below it.

    Order: by path. Links are not followed, so that no store is found twice.
    Raises: NotAStore if there is none; UnreadableFile if the path cannot be read.
    """
    try:
        return [open_store(path, commit_logs)]
    except NotAStore:
        found = [open_store(root) for root in _roots(path, _DEPTH_MAX)]
        if not found:
            raise
        return found


def _roots(directory: Path, depth: int) -> Iterator[Path]:
    try:
        with os.scandir(directory) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return
    if "commitlog" in names:
        yield directory
        return
    if depth == 0:
        return
    for name in names:
        if name not in _INSIDE:
            yield from _roots(directory / name, depth - 1)
