"""What look-ups in object storage cost, against one reading of the log: estimated from counts before either begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rmqtx.readers.index.index import ENTRY, IndexFile
from rmqtx.readers.storage.open_file import REMOTE, REMOTE_PART_BYTES

#: What is fetched of a place by itself, in bytes: one record, in whole blocks of the cache.
_PLACE_BYTES = 8 << 10
#: Requests for one key of the index: its slot and its entry.
_READS_OF_KEY = 2
#: What look-ups may cost, of the cost of a reading of the log: that finds damage too. Below some bytes they always may.
_SHARE_MAX, _CHEAP_BYTES = 2 / 3, 64 << 20


@dataclass(frozen=True, slots=True)
class Cost:
    """Requests and their bytes."""

    requests: int
    length_bytes: int

    @property
    def as_bytes(self) -> int:
        """What can be received in the time that all takes, with many requests under way."""
        return self.requests * REMOTE.near_bytes + self.length_bytes

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.requests + other.requests, self.length_bytes + other.length_bytes)


def whole(length_bytes: int) -> Cost:
    """Return the cost of a range that is read in order."""
    return Cost(-(-length_bytes // REMOTE_PART_BYTES), length_bytes)


def scattered(count: int, span_bytes: int) -> Cost:
    """Return the cost of some places that are spread evenly over a range: near ones are read together."""
    alone = Cost(count, count * _PLACE_BYTES)
    return alone if count * (_PLACE_BYTES + REMOTE.near_bytes) < span_bytes else whole(span_bytes)


def indexed(keys_count: int, entries_bytes: int) -> Cost:
    """Return the cost of keys in the index: each by itself, or all entries in order."""
    alone, swept = Cost(keys_count * _READS_OF_KEY, keys_count * _READS_OF_KEY * _PLACE_BYTES), whole(entries_bytes)
    return min(alone, swept, key=lambda cost: cost.as_bytes)


@dataclass(frozen=True, slots=True)
class Counts:
    """What look-ups will read. Units: bytes.

    `older`: transactions whose original is before the open copies. `keys`: names in topics that the index is asked for;
    `entries`: those of its entries that are as new as the first copy. `ops`: op messages from the first copy
    on, `span_bytes` of the log. `log_bytes`: all files of the log.
    """

    older: int
    keys: int
    entries: int
    ops: int
    span_bytes: int
    log_bytes: int


def why_dear(counts: Counts) -> str | None:
    """Return why one reading of the log is cheaper than look-ups; None if it is not."""
    places = scattered(counts.older, counts.span_bytes) + scattered(counts.ops, counts.span_bytes)
    found, log = indexed(counts.keys, counts.entries * ENTRY.size_bytes) + places, whole(counts.log_bytes)
    if found.as_bytes <= max(log.as_bytes * _SHARE_MAX, _CHEAP_BYTES):
        return None
    return (
        f"look-ups would take about {found.requests} requests for {found.length_bytes >> 20} MiB of object storage, "
        f"and the log takes {log.requests} for {log.length_bytes >> 20} MiB"
    )


def about_offset(index: Sequence[IndexFile], time_ms: int) -> int:
    """Return about where the log was at a time, by the heads of the index files, oldest first; 0 before the first."""
    offset = 0
    for file in index:
        begin_ms, end_ms = file.header["begin_time_ms"], file.header["end_time_ms"]
        if begin_ms > time_ms:
            break
        share = min(1.0, (time_ms - begin_ms) / max(1, end_ms - begin_ms))
        offset = file.begin_offset + int(share * (file.end_offset - file.begin_offset))
    return offset
