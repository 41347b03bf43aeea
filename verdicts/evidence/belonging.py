"""The rules by which witnesses of one transaction are grouped.

Processes group them with files, Spark by shuffling, a following audit in its database, a lookup in memory; all use
these rules.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.store.store import HALF_TOPIC

T = TypeVar("T", bound=Hashable)


def op_numbers(halves: pa.RecordBatch | pa.Table) -> pa.Array:
    """Return the number by which op messages name each half copy: its half queue offset.

    Shape: null for copies without one: those that wait in another topic, and those of other designs.
    """
    return pc.if_else(pc.equal(halves["topic"], HALF_TOPIC), halves["queue_offset"], None)


def tied_groups(ties: Iterable[tuple[T, T]]) -> dict[T, frozenset[T]]:
    """Return for each tied element all elements that a chain of ties connects with it, including itself."""
    groups: dict[T, frozenset[T]] = {}
    for pair in ties:
        joined = frozenset(pair).union(*(groups.get(one, frozenset()) for one in pair))
        groups.update(dict.fromkeys(joined, joined))
    return groups
