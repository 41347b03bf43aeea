"""Records that several stores have: the log of a slave is a copy of its master's, so both have the same record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Bools, Int64s, int64s

#: Equal in the copies of one record.
PLACE = ("commit_log_offset", "queue_id", "queue_offset", "store_time_ms")


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
