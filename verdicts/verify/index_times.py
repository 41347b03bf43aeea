"""The times in the header and entries of an index file, compared with the store times of their records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rmqtx.readers.index.index import ENTRY, HEADER, IndexFile
from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.store.store import Store

_SECONDS_MAX = 0x7FFFFFFF


def expected_seconds(begin_time_ms: int, numbers: Int64s, times_ms: Int64s) -> Int64s:
    """Return the seconds that entries should contain; the first entry (1) is written before the begin time is known.

    Source: store/index/IndexFile.java putKey.
    """
    if begin_time_ms <= 0:
        return np.zeros_like(times_ms)
    seconds: Int64s = np.clip((times_ms - begin_time_ms) // 1000, 0, _SECONDS_MAX)
    seconds[numbers == 1] = 0
    return seconds


def header_time_findings(store: Store, index: IndexFile, reported_offsets: set[int]) -> Iterator[Finding]:
    """Return times in a header that differ from those of its records; nothing where the records are missing.

    `reported_offsets`: records with another finding.
    """
    log = store.log()
    try:
        for name in ("begin", "end"):
            offset, stored = index.header[f"{name}_offset"], index.header[f"{name}_time_ms"]
            block = None if offset in reported_offsets else block_at(log, offset)
            if index.entries_count and block is not None and int(block.header("store_time_ms")[0]) != stored:
                yield Finding(
                    store.root, "index-damaged", index.segment.file, HEADER.offsets[f"{name}_time_ms"], 8,
                    expected=f"{name}_time_ms {int(block.header('store_time_ms')[0])}, its record's store time",
                    actual=str(stored),
                )
    except SourceError:  # reported when the whole store is examined
        return
    finally:
        log.close()


def entry_time_findings(
    store: Store, index: IndexFile, wrong_times: Sequence[Int64s], reported_offsets: set[int]
) -> Iterator[Finding]:
    """Return entries whose seconds differ from those of their records, as one finding.

    `wrong_times`: what the splits found in the file, as in IndexPart. `reported_offsets`: records with another finding.
    """
    every = [
        row for row in np.concatenate([np.empty((0, 4), np.int64), *wrong_times]).tolist()
        if row[3] not in reported_offsets
    ]
    if every:
        number, expected, actual, _ = min(every)
        more = f", and {len(every) - 1} more entries" if len(every) > 1 else ""
        yield Finding(
            store.root, "index-mismatch", index.segment.file, index.entry_position(number), ENTRY.size_bytes,
            expected=f"seconds_since_begin {expected}, from the store time of its record", actual=f"{actual}{more}",
            meaning="a search by key between two times may not find the record",
        )
