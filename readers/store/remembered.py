"""What one command finds out about a store and needs again."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

from rmqtx.readers.store.store import Store

_Found = TypeVar("_Found")


class Remembered(Generic[_Found]):
    """Values by store, forgotten with it; of a running broker's store nothing is remembered, because it changes."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Store], _Found]] = {}

    def of(self, store: Store, find: Callable[[], _Found]) -> _Found:
        """Return the value of a store, by `find` if it is not known yet."""
        number = id(store)
        known = self._known.get(number)
        if known is not None and known[0]() is store:
            return known[1]
        found = find()
        if not store.in_use:
            self._known[number] = weakref.ref(store, lambda _: self._forget(number)), found
        return found

    def _forget(self, number: int) -> None:
        self._known.pop(number, None)
