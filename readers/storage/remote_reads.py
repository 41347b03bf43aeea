"""Read ranges of files on remote file systems: few requests, several in parallel, and no bytes from a short read.

Small reads fetch and cache whole blocks; announced ranges are fetched together (`prepare`). Large reads are fetched in
parallel parts, and a scan's next window is fetched while the current one is decoded. Ranges of zeros are remembered,
since an object store has no holes.

The cache key contains the file's length and time of change in the snapshot, so a later snapshot never gets old bytes.
"""

from __future__ import annotations

import bisect
import functools
import os
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import pyarrow as pa
from pyarrow import fs

from readers.model.errors import FileChanged, SourceError, UnreadableFile
from readers.storage.open_file import OpenFile
from readers.storage.remote_systems import as_os_error, opened

#: The first byte of a request costs more than the rest of a block.
BLOCK_BYTES = 64 << 10
#: Reads larger than this are not cached: a scan would evict blocks that the index and the queues need again.
KEPT_READ_BYTES_MAX = 2 << 20
#: A large read is fetched in parts of about this size: one connection does not use the whole bandwidth.
_PART_BYTES = 2 << 20
_CONNECTIONS = 16
#: How far a window of a scan may begin before the end of the last one, which cut off a record.
_STEP_BACK_BYTES_MAX = 4 << 20
_BLOCKS_MAX = 1024
_HANDLES_MAX = 256
#: Marks at the end of a buffer that remain after a short read; the file's bytes can be equal to only one of them.
_MARK = os.urandom(16)
_OTHER_MARK = bytes(byte ^ 0xFF for byte in _MARK)


class _Version(NamedTuple):
    """A file in a snapshot: the key of its cached blocks."""

    place: str
    size_bytes: int
    modified_ns: int | None


class _Zeros:
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


class _Handle:
    """A remote file with one opened stream for each thread that reads it."""

    def __init__(self, version: _Version) -> None:
        self.version = version
        self.zeros = _Zeros()
        self._system, self._path = opened(version.place)
        self._free = [self._system.open_input_file(self._path)]

    def fill(self, position_bytes: int, length_bytes: int, end: bytes) -> bytes:
        """Return a buffer that ended in `end` after a read into it.

        pyarrow's S3 client does not notice that an object has become shorter: it reports a complete read and leaves
        the rest of the buffer unchanged. The mark `end` then remains in the buffer.
        """
        buffer = bytearray(length_bytes)
        buffer[length_bytes - len(end) :] = end
        try:
            file = self._free.pop()
        except IndexError:  # other threads use them
            file = self._system.open_input_file(self._path)
        file.seek(position_bytes)
        count = file.readinto(buffer)
        self._free.append(file)
        return bytes(buffer) if count == length_bytes else bytes(buffer[:count])

    def info(self) -> fs.FileInfo:
        """Return the file system's current information on the file."""
        return self._system.get_file_info(self._path)


_handles: OrderedDict[_Version, _Handle] = OrderedDict()
_blocks: OrderedDict[tuple[_Version, int], bytes] = OrderedDict()


def _handle(version: _Version) -> _Handle:
    if version.modified_ns is None:  # versions cannot be distinguished
        return _Handle(version)
    handle = _handles.get(version)
    if handle is None:
        handle = _handles[version] = _Handle(version)
        if len(_handles) > _HANDLES_MAX:
            _handles.popitem(last=False)  # closed when its last reader releases it
    else:
        _handles.move_to_end(version)
    return handle


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_CONNECTIONS, thread_name_prefix="rmqtx-read")


def open_together(files: Iterable[tuple[str, int, int | None]], end_bytes: int) -> None:
    """Open files in parallel and fetch their last bytes; errors appear when the files are read.

    `files`: place, size and time of change.
    """
    versions = [version for version in (_Version(*file) for file in files) if version not in _handles]
    for version, handle, first, data in _threads().map(lambda version: _with_end(version, end_bytes), versions):
        if handle is not None and version.modified_ns is not None:
            _handles[version] = handle
            _keep(handle, first, data)
    while len(_handles) > _HANDLES_MAX:
        _handles.popitem(last=False)


def _with_end(version: _Version, end_bytes: int) -> tuple[_Version, _Handle | None, int, bytes]:
    try:
        file = RemoteFile(*version)
        first = max(0, version.size_bytes - end_bytes) // BLOCK_BYTES
        last = -(-version.size_bytes // BLOCK_BYTES)
        return version, file.handle, first, file.fetch_blocks((first, last)) if last else b""
    except SourceError:
        return version, None, 0, b""


def _keep(handle: _Handle, first: int, data: bytes) -> None:
    """Cache the blocks of a file from a number on; for blocks of zeros only their range."""
    for place in range(0, len(data), BLOCK_BYTES):
        block = data[place : place + BLOCK_BYTES]
        begin = first * BLOCK_BYTES + place
        if not block.strip(b"\0"):
            handle.zeros.add(begin, begin + len(block))
        else:
            _blocks[handle.version, begin // BLOCK_BYTES] = block
    while len(_blocks) > _BLOCKS_MAX:
        _blocks.popitem(last=False)


class RemoteFile(OpenFile):
    """A remote file open for positioned reads within its length in the snapshot."""

    is_remote = True

    def __init__(self, file: str, size_bytes: int, modified_ns: int | None = None) -> None:
        """Raises: UnreadableFile."""
        self.file = file
        self.size_bytes = size_bytes
        self._last: tuple[int, bytes] = 0, b""
        self._ahead: list[Future[bytes]] = []
        try:
            self.handle = _handle(_Version(file, size_bytes, modified_ns))
        except (pa.ArrowException, OSError) as error:
            raise UnreadableFile(f"cannot open {file}: {as_os_error(error).strerror}", file=file) from error

    def close(self) -> None:
        """Drop data that was fetched ahead; the handle stays open for the next reader of the file."""
        for part in self._ahead:
            part.cancel()
        self._last, self._ahead = (0, b""), []

    def read(self, position_bytes: int, length_bytes: int) -> bytes:
        """Return exactly the requested bytes, up to the snapshot's length.

        Raises: FileChanged if the file has become shorter; UnreadableFile if it can no longer be read.
        """
        wanted = max(0, min(length_bytes, self.size_bytes - position_bytes))
        if self.handle.zeros.end_of(position_bytes) >= position_bytes + wanted:
            return bytes(wanted)
        if wanted > KEPT_READ_BYTES_MAX:
            return self._window(position_bytes, wanted)
        self.prepare([(position_bytes, wanted)])
        first, last = position_bytes // BLOCK_BYTES, (position_bytes + wanted - 1) // BLOCK_BYTES
        data = b"".join(self._kept(number) for number in range(first, last + 1))
        begin = position_bytes - first * BLOCK_BYTES
        return data[begin : begin + wanted]

    def read_runs(self, runs: Sequence[tuple[int, int]], view: memoryview) -> None:
        """Read runs, given by begin and end, one after another into a buffer; the cache must have room for them.

        Raises: FileChanged, UnreadableFile.
        """
        self.prepare((begin, end - begin) for begin, end in runs)
        place = 0
        for begin, end in runs:
            for position in range(begin, end, KEPT_READ_BYTES_MAX):
                data = self.read(position, min(KEPT_READ_BYTES_MAX, end - position))
                view[place : place + len(data)] = data
                place += len(data)

    def next_data(self, position_bytes: int) -> int:
        """Return where bytes begin that are not known to be zeros."""
        return min(self.handle.zeros.end_of(position_bytes), self.size_bytes)

    # -- small reads ----------------------------------------------------------------------------------------------

    def prepare(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Fetch the blocks of ranges that are not cached: adjacent blocks in one request, others in parallel.

        Units: position and length in bytes. Pass no more blocks at once than the cache holds.
        """
        numbers: set[int] = set()
        for position, length in ranges:
            end = min(position + length, self.size_bytes)
            numbers.update(range(position // BLOCK_BYTES, -(-end // BLOCK_BYTES)))
        runs: list[tuple[int, int]] = []
        for number in sorted(numbers):
            if self._block(number) is not None:
                continue
            is_next = runs and runs[-1][1] == number and number - runs[-1][0] < KEPT_READ_BYTES_MAX // BLOCK_BYTES
            runs[-1:] = [(runs[-1][0], number + 1)] if is_next else [*runs[-1:], (number, number + 1)]
        if len(runs) == 1:
            _keep(self.handle, runs[0][0], self.fetch_blocks(runs[0]))
        elif runs:
            for run, data in zip(runs, _threads().map(self.fetch_blocks, runs), strict=True):
                _keep(self.handle, run[0], data)

    def fetch_blocks(self, run: tuple[int, int]) -> bytes:
        """Return the blocks from one number to before another, with one request."""
        return self._fetch(run[0] * BLOCK_BYTES, (run[1] - run[0]) * BLOCK_BYTES)

    def _kept(self, number: int) -> bytes:
        block = self._block(number)
        return self.fetch_blocks((number, number + 1)) if block is None else block

    def _block(self, number: int) -> bytes | None:
        begin = number * BLOCK_BYTES
        end = min(begin + BLOCK_BYTES, self.size_bytes)
        if self.handle.zeros.end_of(begin) >= end:
            return bytes(end - begin)
        key = self.handle.version, number
        block = _blocks.get(key)
        if block is not None:
            _blocks.move_to_end(key)
        return block

    # -- windows of a scan ----------------------------------------------------------------------------------------

    def _window(self, position_bytes: int, length_bytes: int) -> bytes:
        """Return a large range; if it continues the last one, it was fetched ahead, and the next one is fetched now."""
        last_position, last = self._last
        end = last_position + len(last)
        goes_on = end - min(len(last), _STEP_BACK_BYTES_MAX) < position_bytes <= end if last else False
        if goes_on and self._ahead:
            known = last[position_bytes - last_position :] + b"".join(part.result() for part in self._ahead)
            data = known[:length_bytes]
            if len(data) < length_bytes:
                data += self._fetch(position_bytes + len(data), length_bytes - len(data))
        else:
            for part in self._ahead:
                part.cancel()
            data = b"".join(part.result() for part in self._parts(position_bytes, length_bytes))
        self._ahead = []
        self._last = position_bytes, data
        self._remember_zeros(position_bytes, data)
        following = position_bytes + len(data)
        if goes_on and self.handle.zeros.end_of(following) < following + len(data):
            self._ahead = self._parts(following, length_bytes)
        return data

    def _parts(self, position_bytes: int, length_bytes: int) -> list[Future[bytes]]:
        """Start to fetch a range in parallel parts."""
        length = min(length_bytes, self.size_bytes - position_bytes)
        if length <= 0:
            return []
        count = max(1, round(length / _PART_BYTES))
        step = -(-length // count)
        return [
            _threads().submit(self._fetch, position_bytes + begin, min(step, length - begin))
            for begin in range(0, length, step)
        ]

    def _remember_zeros(self, position_bytes: int, data: bytes) -> None:
        """Remember the zeros at the end of a window: after a log's last record are only zeros."""
        if not data.endswith(bytes(BLOCK_BYTES)):
            return
        self.handle.zeros.add(position_bytes + len(data.rstrip(b"\0")), position_bytes + len(data))

    # -- requests -------------------------------------------------------------------------------------------------

    def _fetch(self, position_bytes: int, length_bytes: int) -> bytes:
        """Return bytes from one request, up to the snapshot's length."""
        wanted = min(length_bytes, self.size_bytes - position_bytes)
        for mark in (_MARK, _OTHER_MARK):
            end = mark[: min(wanted, len(mark))]
            try:
                data = self.handle.fill(position_bytes, wanted, end)
            except (pa.ArrowException, OSError) as error:
                raise self._unreadable(position_bytes, error) from error
            if len(data) == wanted and not data.endswith(end):
                return data
        raise self._became_shorter(position_bytes)

    def _became_shorter(self, position_bytes: int) -> FileChanged:
        return FileChanged(
            f"{self.file} became shorter while it was read",
            file=self.file, position_bytes=position_bytes,
            advice="copy the store and read the copy, or run the command again",
        )  # fmt: skip

    def _unreadable(self, position_bytes: int, error: BaseException) -> UnreadableFile | FileChanged:
        """Return the error for a failed read: clients report it in different ways, so the file is examined again."""
        reason = as_os_error(error).strerror
        try:
            info = self.handle.info()
            if info.type == fs.FileType.NotFound:
                reason = "the file was deleted while it was read"
            elif info.size is not None and info.size < self.size_bytes:
                return self._became_shorter(position_bytes)
        except (pa.ArrowException, OSError):
            pass  # the first error is reported
        return UnreadableFile(f"cannot read {self.file}: {reason}", file=self.file, position_bytes=position_bytes)
