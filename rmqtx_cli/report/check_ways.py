"""The way of the check through a half queue, as the copies that it put back prove it.

The check reads a half copy with n checks, and stores a copy with n + 1 checks at the end of the queue. So when this was
stored, the check had read at least the first copy of the transaction with n checks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Bools, Int64s, int64s
from rmqtx_cli.report.copies import put_back
from rmqtx_cli.report.time_steps import TimeSteps

#: Series of a way. Units: queue offsets, exclusive.
END, CHECKED = range(2)


@dataclass(slots=True)
class CheckWays:
    """By store, the end of queue 0 of the half topic, and how far the check had read at least, by time."""

    now_ms: int
    by_store: dict[str, TimeSteps] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch) -> None:
        """Consider the half copies of some transactions."""
        copies = pc.list_flatten(batch["half_copies"])
        times, offsets, queues = (
            int64s(pc.struct_field(copies, name)) for name in ("store_time_ms", "queue_offset", "queue_id")
        )
        stores = pc.struct_field(copies, "store").dictionary_encode("encode")
        numbers = int64s(stores.indices)
        is_first_queue = (queues == 0) & (offsets >= 0)
        is_checked, read = _read_before(batch, numbers)
        is_checked &= is_first_queue & (offsets[read] >= 0) & (offsets[read] < offsets)
        for number, name in enumerate(stores.dictionary.to_pylist()):
            if name is None:
                continue
            way = self.by_store.setdefault(name, TimeSteps(self.now_ms, 2, np.maximum))
            is_here = numbers == number
            for series, chosen, values in ((END, is_first_queue, offsets), (CHECKED, is_checked, offsets[read])):
                way.add(series, times[chosen & is_here], values[chosen & is_here] + 1)


def _read_before(batch: pa.RecordBatch, stores: Int64s) -> tuple[Bools, Int64s]:
    """Return which copies were put back, and for each the place of the first copy with one check less."""
    copies = batch["half_copies"]
    checks = int64s(pc.struct_field(pc.list_flatten(copies), "checks_count"), 0)
    if not len(checks):
        return np.zeros(0, np.bool_), np.zeros(0, np.int64)
    keys = int64s(pc.list_parent_indices(copies)) * (int(checks.max()) + 2) + checks
    firsts, places = np.unique(keys, return_index=True)
    found = np.searchsorted(firsts, keys - 1)
    read: Int64s = places[np.minimum(found, len(places) - 1)]
    is_put_back: Bools = put_back(batch) & (keys[read] == keys - 1) & (stores[read] == stores)
    return is_put_back, read
