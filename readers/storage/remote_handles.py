"""Open remote files: streams for many threads, reads that notice a short answer, and the memory of requests.

A cache has the blocks that were fetched, and the ranges of zeros, since an object store has no holes. The key of a file
contains its length and time of change in the snapshot, so a later snapshot never gets old bytes.
"""

from __future__ import annotations

import bisect
import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import ClassVar, NamedTuple

from pyarrow import fs

from rmqtx.readers.storage.remote_systems import opened

#: Bytes of a file are kept in blocks, so that a record by itself needs two of them at most.
BLOCK_BYTES = 4 << 10
#: The most bytes that are kept.
KEPT_BYTES_MAX = 64 << 20
_BLOCKS_MAX = KEPT_BYTES_MAX // BLOCK_BYTES
_ZEROS = bytes(BLOCK_BYTES)
#: The most bytes that all requests under way may give.
_UNDER_WAY_BYTES_MAX = 64 << 20
_HANDLES_MAX = 256
#: Marks at the end of a buffer that remain after a short read; the file's bytes can be equal to only one of them.
_MARK = os.urandom(16)
_OTHER_MARK = bytes(byte ^ 0xFF for byte in _MARK)


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


class Room:
    """Limits the memory of the requests under way; one request may always run."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._used_bytes = 0

    @contextmanager
    def of(self, length_bytes: int) -> Iterator[None]:
        """Wait until there is room for the bytes of a request."""
        with self._changed:
            self._changed.wait_for(
                lambda: not self._used_bytes or self._used_bytes + length_bytes <= _UNDER_WAY_BYTES_MAX
            )
            self._used_bytes += length_bytes
        try:
            yield
        finally:
            with self._changed:
                self._used_bytes -= length_bytes
                self._changed.notify_all()


ROOM = Room()


class Handle:
    """A remote file, opened once, with one request, for all threads that read it."""

    def __init__(self, version: Version) -> None:
        self.known = KnownBytes(version)
        #: Whether a connection broke off each time that a long range was read.
        self.breaks_off = False
        self._system, self._path = opened(version.place)
        self._file = self._system.open_input_file(self._path)

    def fill(self, position_bytes: int, view: memoryview) -> bool:
        """Read into a buffer; return whether the file reaches to its end.

        pyarrow's S3 client does not notice that an object has become shorter: it reports a complete read and leaves
        the rest of the buffer unchanged. So the buffer ends in a mark before the read, which then remains.
        Raises: ArrowException, OSError.
        """
        for mark in (_MARK, _OTHER_MARK):
            end = mark[: len(view)]
            view[len(view) - len(end) :] = end
            if self.read_into(position_bytes, view) == len(view) and view[len(view) - len(end) :] != end:
                return True
        return False

    def read_into(self, position_bytes: int, view: memoryview) -> int:
        """Return the number of bytes that one request read into a buffer."""
        # A stream has a position of its own, so threads do not disturb each other; to open the file again is a request.
        with self._file.get_stream(position_bytes, len(view)) as stream:
            count: int = stream.readinto(view)
        return count

    def info(self) -> fs.FileInfo:
        """Return the file system's current information on the file."""
        return self._system.get_file_info(self._path)


#: By place and time of change; of a file whose end a reader leaves out, the handle is that of the whole file.
_handles: OrderedDict[tuple[str, int], Handle] = OrderedDict()


def handle_of(version: Version) -> Handle:
    """Return the open file of a version. Raises: ArrowException, OSError."""
    if version.modified_ns is None:  # versions cannot be distinguished
        return Handle(version)
    handle = known_handle(version)
    if handle is None:
        handle = Handle(version)
        add_handle(handle)
    else:
        _handles.move_to_end((version.place, version.modified_ns))
    return handle


def known_handle(version: Version) -> Handle | None:
    """Return the open file of a version, if it is open."""
    if version.modified_ns is None:
        return None
    handle = _handles.get((version.place, version.modified_ns))
    return None if handle is None or handle.known.version.size_bytes < version.size_bytes else handle


def add_handle(handle: Handle) -> None:
    """Keep a file open for later readers."""
    version = handle.known.version
    assert version.modified_ns is not None
    _handles[version.place, version.modified_ns] = handle
    if len(_handles) > _HANDLES_MAX:
        _handles.popitem(last=False)  # closed when its last reader releases it
