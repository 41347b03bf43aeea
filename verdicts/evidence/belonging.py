"""What belongs together among witnesses, wherever those of a transaction are brought together.

Processes do that by files, Spark by shuffling, an audit that follows in its database, a look by derived files or at a
broker in memory: each by its own means, and by these rules.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from readers.store.store import HALF_TOPIC

T = TypeVar("T", bound=Hashable)


def op_numbers(halves: pa.RecordBatch | pa.Table) -> pa.Array:
    """The number by which op messages name each half copy: its half queue offset.

    Shape: null for copies that no op names so: those that wait in another topic, and those of other designs.
    """
    return pc.if_else(pc.equal(halves["topic"], HALF_TOPIC), halves["queue_offset"], None)


def tied_groups(ties: Iterable[tuple[T, T]]) -> dict[T, frozenset[T]]:
    """For each that is tied to any other, all that a chain of ties connects it with, itself too."""
    groups: dict[T, frozenset[T]] = {}
    for pair in ties:
        joined = frozenset(pair).union(*(groups.get(one, frozenset()) for one in pair))
        groups.update(dict.fromkeys(joined, joined))
    return groups
