"""What is known of remote files: blocks that were fetched, and ranges of zeros, since an object store has no holes.

The key of a file contains its length and time of change in the snapshot, so a later snapshot never gets old bytes.
"""

from __future__ import annotations

import bisect
from collections import OrderedDict
from collections.abc import Iterable
from typing import ClassVar, NamedTuple

#: Bytes of a file are kept in blocks, so that a record by itself needs two of them at most.
BLOCK_BYTES = 4 << 10
#: The most bytes that are kept.
KEPT_BYTES_MAX = 64 << 20
_BLOCKS_MAX = KEPT_BYTES_MAX // BLOCK_BYTES
_ZEROS = bytes(BLOCK_BYTES)


class Version(NamedTuple):
    """A file in a snapshot: the key of its cached blocks."""

    place: str
    size_bytes: int
    modified_ns: int | None


class Zeros:
    """Ranges of a file that are known to be zeros; adjacent ranges are merged."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []

    def add(self, begin: int, end: int) -> None:
        """Add a range."""
        first = bisect.bisect_left(self._ends, begin)
        last = bisect.bisect_right(self._begins, end)
        if first < last:
            begin, end = min(begin, self._begins[first]), max(end, self._ends[last - 1])
        self._begins[first:last], self._ends[first:last] = [begin], [end]

    def end_of(self, position: int) -> int:
        """Return the end of the zeros that begin at or before a position; the position if none are known."""
        number = bisect.bisect_right(self._begins, position) - 1
        return max(position, self._ends[number]) if number >= 0 else position


class KnownBytes:
    """The blocks of one file that are kept, and its zeros. Blocks of all files share one cache.

    Units: bytes. Blocks have numbers; the last one ends with the file.
    """

    _blocks: ClassVar[OrderedDict[tuple[Version, int], bytes]] = OrderedDict()

    def __init__(self, version: Version) -> None:
        self.version = version
        self.zeros = Zeros()
        #: Where the data ends as samples of the file show it; None: it was not searched for, or the file was read.
        self.sampled_end: int | None = None

    def keep(self, first: int, data: bytes | memoryview) -> None:
        """Cache the blocks of a file from a number on; of blocks of zeros only their range."""
        begin = first * BLOCK_BYTES
        zeros_begin: int | None = None
        for place in range(0, len(data), BLOCK_BYTES):
            block = bytes(data[place : place + BLOCK_BYTES])
            if block == _ZEROS[: len(block)]:
                zeros_begin = begin + place if zeros_begin is None else zeros_begin
                continue
            if zeros_begin is not None:
                self.zeros.add(zeros_begin, begin + place)
                zeros_begin = None
            self._blocks[self.version, first + place // BLOCK_BYTES] = block
        if zeros_begin is not None:
            self.zeros.add(zeros_begin, begin + len(data))
        while len(self._blocks) > _BLOCKS_MAX:
            self._blocks.popitem(last=False)

    def missing(self, ranges: Iterable[tuple[int, int]]) -> list[int]:
        """Return the numbers of the blocks of ranges (position, length) that are not known. Order: ascending."""
        numbers: set[int] = set()
        for position, length in ranges:
            end = min(position + length, self.version.size_bytes)
            numbers.update(range(position // BLOCK_BYTES, -(-end // BLOCK_BYTES)))
        return [number for number in sorted(numbers) if self._block(number) is None]

    def bytes_of(self, begin: int, end: int) -> bytes | None:
        """Return the bytes of a range, or None if not all of them are known."""
        first = begin // BLOCK_BYTES
        blocks: list[bytes] = []
        for number in range(first, -(-end // BLOCK_BYTES)):
            block = self._block(number)
            if block is None:
                return None
            blocks.append(block)
        skipped = begin - first * BLOCK_BYTES
        return b"".join(blocks)[skipped : skipped + end - begin]

    def _block(self, number: int) -> bytes | None:
        key = self.version, number
        block = self._blocks.get(key)
        if block is not None:
            self._blocks.move_to_end(key)
            return block
        begin = number * BLOCK_BYTES
        end = min(begin + BLOCK_BYTES, self.version.size_bytes)
        return bytes(end - begin) if self.zeros.end_of(begin) >= end else None
