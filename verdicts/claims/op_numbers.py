"""Op marks for half queue offsets that no half message has: the half message is lost, or the number is damaged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from rmqtx.readers.model.columns import Int64s, int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.rocksdb.rocksdb_queues import end_in_rocksdb
from rmqtx.readers.store.store import HALF_TOPIC, Store

#: The most marks of one range of the log that are kept; the others have lower numbers.
_MARKS_MAX = 100


def highest_marks(marks: Iterable[pa.RecordBatch], end: int | None) -> Int64s:
    """Return the op marks of queue 0 at or after a half queue offset: rows of op message and number.

    `end`: as `half_queue_end` returns it; no rows if it is unknown.
    Order: number ascending; of very many only the last ones.
    """
    if end is None:
        return np.empty((0, 2), np.int64)
    parts = [np.empty((0, 2), np.int64)]
    for rows in marks:
        numbers = int64s(rows["half_queue_offset"])
        chosen = (numbers >= end) & (int64s(rows["queue_id"]) == 0)
        if chosen.any():
            parts.append(np.stack([int64s(rows["commit_log_offset"])[chosen], numbers[chosen]], axis=1))
    found = np.concatenate(parts)
    return found[np.argsort(found[:, 1], kind="stable")][-_MARKS_MAX:]


def half_queue_end(store: Store) -> int | None:
    """Return the half queue offset after the last slot; None if the half queue has no slot in a file."""
    try:
        with open_queue(store, HALF_TOPIC, 0) as queue:
            if not queue.exists or not queue.max_offset:
                return None
            return max(queue.max_offset, end_in_rocksdb(store, HALF_TOPIC, 0))
    except SourceError:
        return None


def op_number_findings(store: Store, offsets: Int64s, numbers: Int64s) -> Iterator[Finding]:
    """Return a finding for each op mark beyond the end of the half queue. Parallel arrays: op message, number."""
    log = store.log()
    for offset, number in zip(offsets.tolist(), numbers.tolist(), strict=True):
        segment = log.segment_at(offset)
        yield Finding(
            store.root, "op-beyond-end", None if segment is None else segment.file,
            None if segment is None else offset - segment.base_offset, commit_log_offset=offset,
            expected="offsets of half messages in the half queue", actual=str(number),
        )
    log.close()
