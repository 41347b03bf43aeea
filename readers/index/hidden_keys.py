"""The keys of records that cannot be read, from the index: hashes for each place in the log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from rmqtx.readers.index.index import BLOCK_ENTRIES, IndexFile, entries_at
from rmqtx.readers.index.index_search import Index, open_index
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.storage.open_file import OpenFile
from rmqtx.readers.store.store import Store

_ENTRIES_MAX = 1 << 18
_HASHES_MAX = 1 << 12


@dataclass(slots=True)
class HiddenKeys:
    """The hashes of `topic#key` in the index, by commit-log offset."""

    by_offset: dict[int, set[int]] = field(default_factory=dict)

    def of_all(self, offsets: Iterable[int]) -> tuple[int, ...] | None:
        """Return all hashes of some records; None if the index lacks one of the records, or if there are too many.

        A record without an entry may have any key: it may have been written while the index was disabled.
        """
        found: set[int] = set()
        for offset in offsets:
            hashes = self.by_offset.get(offset)
            if not hashes:
                return None
            found |= hashes
        return tuple(sorted(found)) if len(found) <= _HASHES_MAX else None


class IndexKeys:
    """The index of a store, opened at the first call."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @cached_property
    def _index(self) -> Index:
        return open_index(self._store)

    def between(self, begin: int, end: int) -> HiddenKeys:
        """Return the index's hashes for a range of the log; none if a file for the range is damaged.

        Units: commit-log offsets in bytes.
        """
        result = HiddenKeys()
        if self._index.findings:
            return result
        for one in self._index.files:
            if one.end_offset < begin or one.begin_offset >= end:
                continue
            try:
                with one.segment.open() as file:
                    if not _add(result, one, file, begin, end):
                        return HiddenKeys()
            except SourceError:
                return HiddenKeys()
        return result


def _add(result: HiddenKeys, index: IndexFile, file: OpenFile, begin: int, end: int) -> bool:
    """Add the entries of a file that point into a range; return whether the entries are consistent."""
    first, last = _number_of(index, file, begin), _number_of(index, file, end)
    if last - first > _ENTRIES_MAX:
        return False
    # One more entry on each side shows that entries are in log order here, which the search requires.
    before = -1
    number = max(first - 1, 1)
    while number < min(last + 1, index.entries_count + 1):
        numbers = np.arange(number, min(number + BLOCK_ENTRIES, last + 1, index.entries_count + 1))
        entries = entries_at(file, index, numbers)
        offsets: Int64s = entries["commit_log_offset"].astype(np.int64)
        is_ordered = bool((np.diff(offsets, prepend=before) >= 0).all())
        if not is_ordered or not index.is_plausible(entries, numbers).all():
            return False
        before = int(offsets[-1])
        inside = (offsets >= begin) & (offsets < end)
        for offset, key_hash in zip(offsets[inside].tolist(), entries["key_hash"][inside].tolist(), strict=True):
            result.by_offset.setdefault(offset, set()).add(key_hash)
        number = int(numbers[-1]) + 1
    return True


def _number_of(index: IndexFile, file: OpenFile, offset: int) -> int:
    """Return the number of the first entry that points at or after a place; entries are in log order."""
    low, high = 1, index.entries_count + 1
    while low < high:
        middle = (low + high) // 2
        if int(entries_at(file, index, np.array([middle]))["commit_log_offset"][0]) < offset:
            low = middle + 1
        else:
            high = middle
    return low
