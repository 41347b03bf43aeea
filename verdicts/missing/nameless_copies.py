"""Whether the log has other copies of a half message whose id is torn: copies that were born at the same time."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.log.record_layout import AT, MAGIC_START
from rmqtx.readers.log.transaction_records import are_halves
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.model.verdict_inputs import MissingRange

_WINDOW_BYTES = 64 << 20


def with_other_copies(store: Store, ranges: Sequence[MissingRange]) -> list[MissingRange]:
    """Return missing ranges; those of a half copy without a readable id with whether another copy was born with it.

    Where a large log is judged, a process has a part of the transactions, and the other copy may be in another part. So
    the log is read once more if there is a torn copy.
    Damage: a file that cannot be read may have the other copy.
    """
    times = {one.copy_born_ms for one in ranges if one.copy_born_ms is not None}
    places: dict[int, set[int]] = defaultdict(set)
    try:
        for born_ms, offset in _halves_born_at(store, times) if times else ():
            places[born_ms].add(offset)
    except SourceError:  # reported by the scan
        return [replace(one, has_other_copies=one.copy_born_ms is not None) for one in ranges]
    return [
        one if one.copy_born_ms is None
        else replace(one, has_other_copies=bool(places[one.copy_born_ms] - {one.begin_offset}))
        for one in ranges
    ]


def _halves_born_at(store: Store, times: Collection[int]) -> Iterator[tuple[int, int]]:
    """Yield the born time and the commit-log offset of each half copy with one of some born times."""
    values = b"|".join(re.escape(born_ms.to_bytes(8, signed=True)) for born_ms in sorted(times))
    between = AT["born_time_ms"] - AT["magic"] - len(MAGIC_START)
    pattern = re.compile(b"%b.{%d}(%b)" % (re.escape(MAGIC_START), between, values), re.DOTALL)
    with store.log() as log:
        for segment in store.commit_log:
            for offset, value in _hits(segment, pattern):
                block = block_at(log, offset)
                if block is not None and are_halves(block)[0]:
                    yield int.from_bytes(value, signed=True), offset


def _hits(segment: Segment, pattern: re.Pattern[bytes]) -> Iterator[tuple[int, bytes]]:
    with segment.open() as file:
        for begin in range(0, segment.size_bytes, _WINDOW_BYTES):
            for hit in pattern.finditer(file.read(begin, _WINDOW_BYTES + AT["store_time_ms"])):
                yield segment.base_offset + begin + hit.start() - AT["magic"], hit[1]
