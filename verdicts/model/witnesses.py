"""The records of some transactions, on which verdicts are based, and the rules by which records are grouped.

Processes group them with files, Spark by shuffling, a following audit in its database, a lookup in memory; all use
these rules.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.log.offset_marks import OFFSET_MARKS
from rmqtx.readers.log.transaction_records import JUDGED_FINALS, JUDGED_HALVES
from rmqtx.readers.model.tables import MARKS
from rmqtx.readers.store.store import HALF_TOPIC

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Witnesses:
    """The witnesses of some transactions, always complete transactions.

    Shape: JUDGED_HALVES, MARKS, JUDGED_FINALS, JUDGED_HALVES for discard copies, and OFFSET_MARKS, from one store or
           several.
    """

    halves: pa.Table
    marks: pa.Table
    finals: pa.Table
    discards: pa.Table
    offset_marks: pa.Table = field(default_factory=OFFSET_MARKS.empty_table)

    @staticmethod
    def of(
        halves: list[pa.RecordBatch],
        marks: list[pa.RecordBatch],
        finals: list[pa.RecordBatch],
        discards: list[pa.RecordBatch],
        offset_marks: Sequence[pa.RecordBatch] = (),
    ) -> Witnesses:
        """Make witnesses from batches."""
        return Witnesses(
            pa.Table.from_batches(halves, JUDGED_HALVES),
            pa.Table.from_batches(marks, MARKS),
            pa.Table.from_batches(finals, JUDGED_FINALS),
            pa.Table.from_batches(discards, JUDGED_HALVES),
            pa.Table.from_batches(list(offset_marks), OFFSET_MARKS),
        )

    @staticmethod
    def joined(parts: Sequence[Witnesses]) -> Witnesses:
        """Make one of the witnesses of several stores."""
        return Witnesses(*(pa.concat_tables([getattr(part, one.name) for part in parts]) for one in fields(Witnesses)))


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
