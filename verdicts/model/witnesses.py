"""The records of some transactions, on which verdicts are based, and the rules by which records are grouped.

Processes group them with files, Spark by shuffling, a following audit in its database, a lookup in memory; all use
these rules.

The log of a slave is a copy of its master's, so both have the same record: replicas.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.log.op_messages import OFFSET_MARKS
from rmqtx.readers.log.transaction_records import JUDGED_FINALS, JUDGED_HALVES
from rmqtx.readers.model.columns import Bools, Int64s, int64s
from rmqtx.readers.model.tables import MARKS
from rmqtx.readers.store.store import HALF_TOPIC

T = TypeVar("T", bound=Hashable)
#: Equal in the copies of one record.
PLACE = ("commit_log_offset", "queue_id", "queue_offset", "store_time_ms")


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
        halves: list[pa.RecordBatch], marks: list[pa.RecordBatch], finals: list[pa.RecordBatch],
        discards: list[pa.RecordBatch], offset_marks: Sequence[pa.RecordBatch] = (),
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


def are_repeated(places: Int64s) -> Bools:
    """Return which rows are equal to an earlier one.

    Shape: `places`: a row for each record, a column for each value.
    """
    found: Bools = np.ones(len(places), np.bool_)
    if len(places):
        found[np.unique(places, axis=0, return_index=True)[1]] = False
    return found


def are_replicas(records: pa.ListArray) -> Bools:
    """Return which records in lists of evidence are the same record as an earlier one of their list, in another store.

    Shape: one value for each record, the lists one after the other.
    """
    flat = pc.list_flatten(records)
    owners = int64s(pc.list_parent_indices(records))
    if not len(flat) or pc.count_distinct(pc.struct_field(flat, "store")).as_py() < 2:
        return np.zeros(len(flat), np.bool_)
    return are_repeated(np.stack([owners, *(int64s(pc.struct_field(flat, name), -1) for name in PLACE)], axis=1))


def distinct_counts(records: pa.ListArray) -> Int64s:
    """Return how many different records each list of evidence has."""
    is_first = ~are_replicas(records)
    return np.bincount(int64s(pc.list_parent_indices(records))[is_first], minlength=len(records)).astype(np.int64)


def are_in_several_stores(records: pa.ListArray) -> Bools:
    """Return which lists of evidence have records of several stores."""
    stores = pc.struct_field(pc.list_flatten(records), "store").dictionary_encode()
    found: Bools = np.zeros(len(records), np.bool_)
    if len(stores.dictionary) > 1:
        owners, numbers = int64s(pc.list_parent_indices(records)), int64s(stores.indices)
        firsts = np.full(len(records), -1, np.int64)
        firsts[owners[::-1]] = numbers[::-1]
        found[owners[numbers != firsts[owners]]] = True
    return found


def originals(entries: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any] | None]:
    """Return for each entry of evidence the earlier entry of the same record, in another store; None for the first."""
    firsts: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    found: list[Mapping[str, Any] | None] = []
    for entry in entries:
        first = firsts.setdefault(tuple(entry[name] for name in PLACE), entry)
        found.append(None if first["store"] == entry["store"] else first)
    return found
