"""What one command finds out about a store and needs again."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from rmqtx.readers.store.store import Store

_Found = TypeVar("_Found")
_Asked = TypeVarTuple("_Asked")


def remembered(find: Callable[[Store, *_Asked], _Found]) -> Callable[[Store, *_Asked], _Found]:
    """Return a function of a store whose values are remembered, by the arguments after the store, until the store goes.

    Of a running broker's store nothing is remembered, because it changes.
    """
    known: dict[int, tuple[weakref.ref[Store], dict[tuple[*_Asked], _Found]]] = {}

    @functools.wraps(find)
    def found(store: Store, *asked: *_Asked) -> _Found:
        number = id(store)
        if store.in_use:
            return find(store, *asked)
        if number not in known or known[number][0]() is not store:
            known[number] = weakref.ref(store, lambda _: known.pop(number, None)), {}
        values = known[number][1]
        if asked not in values:
            values[asked] = find(store, *asked)
        return values[asked]

    return found


@remembered
def unused_rests(_: Store) -> dict[str, int]:
    """Return where to keep the position from which on a file of a log or a queue is known to have only zeros.

    A command searches the ends of the same files up to ten times, and each time for what follows the last record.
    """
    return {}
