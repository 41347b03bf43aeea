"""The times of an index file against the store times of the records that it names: its header's, its entries'."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from readers.index.index import ENTRY, HEADER, IndexFile
from readers.log.record_at import block_at
from readers.model.columns import Int64s
from readers.model.errors import SourceError
from readers.model.findings import Finding
from readers.store.store import Store

_SECONDS_MAX = 0x7FFFFFFF


def expected_seconds(begin_time_ms: int, numbers: Int64s, times_ms: Int64s) -> Int64s:
    """What entries should say of their records' store times; the first (1) is entered before any begin is known.

    Source: store/index/IndexFile.java putKey.
    """
    if begin_time_ms <= 0:
        return np.zeros_like(times_ms)
    seconds: Int64s = np.clip((times_ms - begin_time_ms) // 1000, 0, _SECONDS_MAX)
    seconds[numbers == 1] = 0
    return seconds


def header_time_findings(store: Store, index: IndexFile, told_offsets: set[int]) -> Iterator[Finding]:
    """Times in a header that are not those of the records that it names; nothing where these are not there.

    `told_offsets`: records about which another finding was made.
    """
    log = store.log()
    try:
        for name in ("begin", "end"):
            offset, stored = index.header[f"{name}_offset"], index.header[f"{name}_time_ms"]
            block = None if offset in told_offsets else block_at(log, offset)
            if index.entries_count and block is not None and int(block.header("store_time_ms")[0]) != stored:
                yield Finding(
                    store.root, "index-damaged", index.segment.file, HEADER.offsets[f"{name}_time_ms"], 8,
                    expected=f"{name}_time_ms {int(block.header('store_time_ms')[0])}, its record's store time",
                    actual=str(stored),
                )
    except SourceError:  # told when the whole store is looked at
        return
    finally:
        log.close()


def entry_time_findings(
    store: Store, index: IndexFile, strange_times: Sequence[Int64s], told_offsets: set[int]
) -> Iterator[Finding]:
    """Entries whose seconds are not those of their records, as one finding.

    `strange_times`: what splits found of the file, as in IndexPart. `told_offsets`: records about which another finding
    was made.
    """
    every = [
        row for row in np.concatenate([np.empty((0, 4), np.int64), *strange_times]).tolist()
        if row[3] not in told_offsets
    ]
    if every:
        number, expected, actual, _ = min(every)
        more = f", and {len(every) - 1} more such entries" if len(every) > 1 else ""
        yield Finding(
            store.root, "index-mismatch", index.segment.file, index.entry_position(number), ENTRY.size_bytes,
            expected=f"seconds_since_begin {expected}, by its record's store time", actual=f"{actual}{more}",
            meaning="a search by key between two times may not find the record",
        )
