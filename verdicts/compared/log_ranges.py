"""Which parts of a log can contain records, from the results of its splits."""

from __future__ import annotations

import numpy as np

from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.ranges import LogRanges, merged
from rmqtx.readers.store.store import Store


def ranges_of_log(store: Store, end_offset: int, damaged: list[Int64s]) -> LogRanges:
    """Return the parts of a log that can contain records.

    `end_offset`: past its last record. `damaged`: rows [begin, end) that are damaged or were not read.
    Units: bytes of the commit log.
    """
    held = merged([np.array([(one.base_offset, one.end_offset) for one in store.commit_log], np.int64).reshape(-1, 2)])
    gaps = np.stack([held[:-1, 1], held[1:, 0]], axis=1)
    return LogRanges(
        store.log_begin_offset, max(end_offset, store.log_begin_offset), merged([gaps, *damaged]), held
    )
