"""Read ranges of files on remote file systems: few requests, many in parallel, and no bytes from a short read.

Small reads fetch and cache their neighbourhood; announced ranges are fetched together (`prepare`). Large reads are
fetched in parallel parts, and a scan's next window is fetched while the current one is decoded.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import NamedTuple

import pyarrow as pa
from pyarrow import fs

from rmqtx.readers.model.errors import FileChanged, SourceError, UnreadableFile
from rmqtx.readers.storage.open_file import REMOTE, REMOTE_PART_BYTES, OpenFile, became_shorter
from rmqtx.readers.storage.remote_handles import (
    BLOCK_BYTES,
    KEPT_BYTES_MAX,
    ROOM,
    Handle,
    Version,
    add_handle,
    handle_of,
    known_handle,
)
from rmqtx.readers.storage.remote_systems import CONNECTIONS, as_os_error, is_broken_off

#: A small read fetches the bytes around it up to multiples of this length: the next one is often near.
_AROUND_BYTES = 64 << 10
#: Reads larger than this are not cached: a scan would evict blocks that the index and the queues need again.
KEPT_READ_BYTES_MAX = 2 << 20
#: Where a connection breaks off again and again, a range is fetched in parts of this length.
_SHORT_PART_BYTES = 128 << 10
#: The most parts of a large read that are fetched at once.
_PARTS_MAX = 4
#: Of runs that are read together, those up to this length are cached: records by themselves.
_KEPT_RUN_BYTES_MAX = 512 << 10
#: Bytes of runs that are cached at once; the cache has room for all.
_KEPT_TOGETHER_BYTES_MAX = KEPT_BYTES_MAX // 2
#: Windows of a scan that are under way while one is decoded, which takes about the time of one request.
_WINDOWS_AHEAD = 2
#: How far a window of a scan may begin before the end of the last one, which cut off a record.
_STEP_BACK_BYTES_MAX = 4 << 20
#: A file of at most this length is fetched whole where files are opened together; of a longer one the end.
_WHOLE_BYTES_MAX, _END_BYTES = 8 << 20, 1 << 20
#: In search of the end of a file's data, bytes that are fetched by one request: in the file, and where it must lie.
_SAMPLE_BYTES, _SEARCHED_WHOLE_BYTES = 64 << 10, 256 << 10


@functools.cache
def request_threads() -> ThreadPoolExecutor:
    """Return the threads that wait for requests."""
    return ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="rmqtx-read")


class _Part(NamedTuple):
    """A part of a large range that was fetched, or is under way. Units: bytes; `end` is the place after the last."""

    begin: int
    end: int
    data: Future[memoryview]


class RemoteFile(OpenFile):
    """A remote file open for positioned reads within its length in the snapshot."""

    is_remote = True
    limits = REMOTE

    def __init__(self, file: str, size_bytes: int, modified_ns: int | None = None) -> None:
        """Raises: UnreadableFile."""
        self.file = file
        self.size_bytes = size_bytes
        self._last: tuple[int, bytes] = 0, b""
        self._ahead: list[_Part] = []
        self._read_until = size_bytes
        try:
            self.handle = handle_of(Version(file, size_bytes, modified_ns))
        except (pa.ArrowException, OSError) as error:
            raise UnreadableFile(f"cannot open {file}: {as_os_error(error).strerror}", file=file) from error

    def close(self) -> None:
        """Drop data that was fetched ahead; the handle stays open for the next reader of the file."""
        self._drop_ahead()
        self._last = 0, b""

    def read(self, position_bytes: int, length_bytes: int) -> bytes:
        """Return exactly the requested bytes, up to the snapshot's length.

        Raises: FileChanged if the file has become shorter; UnreadableFile if it can no longer be read.
        """
        known = self.handle.known
        end = position_bytes + max(0, min(length_bytes, self.size_bytes - position_bytes))
        if known.zeros.end_of(position_bytes) >= end:
            return bytes(end - position_bytes)
        data = known.bytes_of(position_bytes, end)
        if data is None and end - position_bytes > KEPT_READ_BYTES_MAX:
            return self._window(position_bytes, end - position_bytes)
        if data is None:  # the record that a window of a scan cut off
            received = b"".join(self._received(position_bytes, end))
            data = received if len(received) == end - position_bytes else None
        if data is None:
            begin = position_bytes // _AROUND_BYTES * _AROUND_BYTES
            self.prepare([(begin, -(-end // _AROUND_BYTES) * _AROUND_BYTES - begin)])
            data = known.bytes_of(position_bytes, end)
        return bytes(self.fetch(position_bytes, end - position_bytes)) if data is None else data

    def read_runs(self, runs: Sequence[tuple[int, int]], view: memoryview) -> None:
        """Read runs, given by begin and end, one after another into a buffer. Only short runs are cached.

        Raises: FileChanged, UnreadableFile.
        """
        lengths = [end - begin for begin, end in runs]
        places = [0, *itertools.accumulate(lengths)]
        parts = [
            request_threads().submit(self._fetch_into, runs[number][0] + first, view[places[number] + first :][:length])
            for number, whole in enumerate(lengths) if whole > _KEPT_RUN_BYTES_MAX
            for first in range(0, whole, REMOTE_PART_BYTES) if (length := min(REMOTE_PART_BYTES, whole - first))
        ]
        short = [number for number, length in enumerate(lengths) if length <= _KEPT_RUN_BYTES_MAX]
        try:
            for some in _kept_together(short, lengths):
                self.prepare((runs[number][0], lengths[number]) for number in some)
                for number in some:
                    view[places[number] : places[number + 1]] = self.read(runs[number][0], lengths[number])
            for part in parts:
                part.result()
        finally:  # no thread writes into the buffer later
            wait([part for part in parts if not part.cancel()])

    @property
    def data_end(self) -> int:
        """Where the data of the file ends, by samples if these were taken."""
        sampled = self.handle.known.sampled_end
        return self.size_bytes if sampled is None else sampled

    def next_data(self, position_bytes: int) -> int:
        """Return where bytes begin that are not known to be zeros."""
        return min(self.handle.known.zeros.end_of(position_bytes), self.size_bytes)

    # -- small reads ----------------------------------------------------------------------------------------------

    def prepare(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Fetch the blocks of ranges that are not cached: near blocks in one request, others in parallel.

        Units: position and length in bytes. Pass no more blocks at once than the cache holds.
        """
        runs: list[tuple[int, int]] = []
        for number in self.handle.known.missing(ranges):
            if runs and _are_one_request(runs[-1], number):
                runs[-1] = runs[-1][0], number + 1
            else:
                runs.append((number, number + 1))
        if len(runs) == 1:
            self.handle.known.keep(runs[0][0], self._fetch_blocks(runs[0]))
        elif runs:
            for run, data in zip(runs, request_threads().map(self._fetch_blocks, runs), strict=True):
                self.handle.known.keep(run[0], data)

    def _fetch_blocks(self, run: tuple[int, int]) -> memoryview:
        """Return the blocks from one number to before another, with one request."""
        end = min(run[1] * BLOCK_BYTES, self.handle.known.version.size_bytes)  # this reader may leave out the end
        return self._fetched(run[0] * BLOCK_BYTES, end - run[0] * BLOCK_BYTES)

    # -- windows of a scan ----------------------------------------------------------------------------------------

    def fetch_ahead(self, position_bytes: int, length_bytes: int) -> None:
        """Begin to fetch a long range that will be read after the next work."""
        self._drop_ahead()
        if length_bytes > KEPT_READ_BYTES_MAX:
            self._ahead = self._parts(position_bytes, length_bytes)

    def will_read_until(self, position_bytes: int) -> None:
        """Announce where a reading in order will end: what follows is not fetched ahead."""
        self._read_until = min(position_bytes, self.size_bytes)

    def _drop_ahead(self) -> None:
        for part in self._ahead:
            part.data.cancel()
        self._ahead = []

    def _received(self, begin: int, end: int) -> list[memoryview]:
        """Return the bytes of a range that the last window has or that were fetched ahead, up to the first gap."""
        last_begin, last = self._last
        pieces = [memoryview(last)[begin - last_begin : end - last_begin]] if begin >= last_begin else []
        begin += sum(map(len, pieces))
        for part in self._ahead:
            if part.begin <= begin < min(end, part.end):
                pieces.append(part.data.result()[begin - part.begin : end - part.begin])
                begin += len(pieces[-1])
        return pieces

    def _window(self, position_bytes: int, length_bytes: int) -> bytes:
        """Return a large range; where readings go on in order, it was fetched ahead, and so are the next ones now."""
        last_position, last = self._last
        end = last_position + len(last)
        goes_on = end - min(len(last), _STEP_BACK_BYTES_MAX) < position_bytes <= end if last else False
        if goes_on or (self._ahead and self._ahead[0].begin == position_bytes):
            pieces = self._received(position_bytes, position_bytes + length_bytes)
        else:
            self._drop_ahead()
            pieces = []
        received = sum(map(len, pieces))
        pieces += [part.data.result() for part in self._parts(position_bytes + received, length_bytes - received)]
        data = b"".join(pieces)
        following = position_bytes + len(data)
        self._last = position_bytes, data
        self._ahead = [part for part in self._ahead if part.end > following]
        self._remember_zeros(position_bytes, data)
        if goes_on:
            self._fetch_next_windows(following, length_bytes)
        return data

    def _fetch_next_windows(self, position_bytes: int, length_bytes: int) -> None:
        """Begin to fetch what follows a window, as far as it is not under way."""
        begin = self._ahead[-1].end if self._ahead else position_bytes
        # A reading beyond the announced end is the search for the next record.
        last = self._read_until if position_bytes < self._read_until else self.size_bytes
        while begin < min(position_bytes + _WINDOWS_AHEAD * length_bytes, last):
            end = begin + length_bytes
            end = last if last - end <= KEPT_READ_BYTES_MAX else end  # no request of its own for a short rest
            if self.handle.known.zeros.end_of(begin) >= end:
                break
            self._ahead += self._parts(begin, end - begin)
            begin = end

    def _parts(self, position_bytes: int, length_bytes: int) -> list[_Part]:
        """Start to fetch a range in parallel parts."""
        length = min(length_bytes, self.size_bytes - position_bytes)
        if length <= 0:
            return []
        count = min(_PARTS_MAX, max(1, round(length / REMOTE_PART_BYTES)))
        step = -(-length // count)
        places = [(position_bytes + begin, min(step, length - begin)) for begin in range(0, length, step)]
        return [
            _Part(begin, begin + size, request_threads().submit(self.fetch, begin, size)) for begin, size in places
        ]

    def _remember_zeros(self, position_bytes: int, data: bytes) -> None:
        """Remember the zeros at the end of a window: after a log's last record are only zeros."""
        if not data.endswith(bytes(_AROUND_BYTES)):
            return
        self.handle.known.zeros.add(position_bytes + len(data.rstrip(b"\0")), position_bytes + len(data))

    # -- requests -------------------------------------------------------------------------------------------------

    def fetch(self, position_bytes: int, length_bytes: int) -> memoryview:
        """Return bytes from one request, up to the snapshot's length; nothing is cached.

        Raises: FileChanged, UnreadableFile.
        """
        return self._fetched(position_bytes, min(length_bytes, self.size_bytes - position_bytes))

    def _fetched(self, position_bytes: int, length_bytes: int) -> memoryview:
        with ROOM.of(length_bytes):
            view = memoryview(bytearray(length_bytes))
            self._fetch_into(position_bytes, view)
        return view

    def _fetch_into(self, position_bytes: int, view: memoryview) -> None:
        """Fill a buffer by one request, which the client repeats; by short ones if its connection still breaks off."""
        if len(view) > _SHORT_PART_BYTES and self.handle.breaks_off:
            for first in range(0, len(view), _SHORT_PART_BYTES):
                self._fetch_into(position_bytes + first, view[first : first + _SHORT_PART_BYTES])
            return
        try:
            is_whole = self.handle.fill(position_bytes, view)
        except (pa.ArrowException, OSError) as error:
            if len(view) > _SHORT_PART_BYTES and is_broken_off(error):
                self.handle.breaks_off = True
                self._fetch_into(position_bytes, view)
                return
            raise self._unreadable(position_bytes, error) from error
        if not is_whole:
            raise became_shorter(self.file, position_bytes)

    def _unreadable(self, position_bytes: int, error: BaseException) -> UnreadableFile | FileChanged:
        """Return the error for a failed read: clients report it in different ways, so the file is examined again."""
        reason = as_os_error(error).strerror
        try:
            info = self.handle.info()
            if info.type == fs.FileType.NotFound:
                reason = "the file was deleted while it was read"
            elif info.size is not None and info.size < self.size_bytes:
                return became_shorter(self.file, position_bytes)
        except (pa.ArrowException, OSError):
            pass  # the first error is reported
        return UnreadableFile(f"cannot read {self.file}: {reason}", file=self.file, position_bytes=position_bytes)


def _kept_together(numbers: Sequence[int], lengths: Sequence[int]) -> Iterator[list[int]]:
    """Return the numbers of runs in groups that the cache has room for."""
    group: list[int] = []
    left_bytes = _KEPT_TOGETHER_BYTES_MAX
    for number in numbers:
        group.append(number)
        left_bytes -= lengths[number] + 2 * BLOCK_BYTES
        if left_bytes < _KEPT_RUN_BYTES_MAX:
            yield group
            group, left_bytes = [], _KEPT_TOGETHER_BYTES_MAX
    yield group


def _are_one_request(run: tuple[int, int], number: int) -> bool:
    """Whether a request for a run of blocks also fetches the next missing block, and the blocks between them."""
    gap_bytes, length_bytes = (number - run[1]) * BLOCK_BYTES, (number + 1 - run[0]) * BLOCK_BYTES
    return gap_bytes <= REMOTE.near_bytes and length_bytes <= KEPT_READ_BYTES_MAX


def open_together(
    files: Sequence[tuple[str, int, int | None]], guessed_ends: Sequence[int | None] | None = None
) -> None:
    """Open files in parallel and fetch small ones whole, of others the end; errors appear when the files are read.

    Of each file the bytes before the zeros at its end are kept, as far as half of the cache has room for all files.
    `files`: place, size and time of change. `guessed_ends`: about where the data of each file ends; of one with a guess
    only samples are fetched, which show where; one without is read, also if samples of it are known.
    """
    share_bytes = KEPT_BYTES_MAX // 2 // max(1, len(files))
    asked: list[tuple[Version, int | None]] = []
    for file, guess in zip(files, guessed_ends or [None] * len(files), strict=True):
        known = known_handle(version := Version(*file))
        if known is None:
            asked.append((version, guess))
        elif guess is None and guessed_ends is not None:
            known.known.sampled_end = None
    ends = request_threads().map(lambda one: _with_end(one[0], one[1], share_bytes), asked)
    for version, handle, first, data in ends:
        if handle is not None and version.modified_ns is not None:
            add_handle(handle)
            handle.known.keep(first, data)


def _with_end(version: Version, guess: int | None, share_bytes: int) -> tuple[Version, Handle | None, int, memoryview]:
    """Open a file; return the blocks before the zeros at its end, with the number of the first one."""
    nothing = memoryview(b"")
    try:
        file = RemoteFile(*version)
        size = version.size_bytes
        if guess is not None and size > _SEARCHED_WHOLE_BYTES and version.modified_ns is not None:
            file.handle.known.sampled_end = _sampled_end(file, guess)
            return version, file.handle, 0, nothing
        first = 0 if size <= _WHOLE_BYTES_MAX else (size - _END_BYTES) // BLOCK_BYTES
        data = file.fetch(first * BLOCK_BYTES, size - first * BLOCK_BYTES) if size else nothing
    except SourceError:
        return version, None, 0, nothing
    used = _used_blocks(data)
    file.handle.known.zeros.add(min((first + used) * BLOCK_BYTES, size), size)
    skipped = max(0, used - share_bytes // BLOCK_BYTES)
    return version, file.handle, first + skipped, memoryview(bytes(data[skipped * BLOCK_BYTES : used * BLOCK_BYTES]))


def _sampled_end(file: RemoteFile, guess: int) -> int:
    """Return the end of the last block with data, in a file that is written from its begin and ends with zeros.

    A binary search that begins at a guess: a block of zeros between data would end it.
    Raises: UnreadableFile, FileChanged.
    """
    low, high, place = 0, file.size_bytes, guess
    while low < high:
        length = high - low if high - low <= _SEARCHED_WHOLE_BYTES else _SAMPLE_BYTES
        begin = max(low, min(place - length // 2, high - length)) // BLOCK_BYTES * BLOCK_BYTES
        data = file.fetch(begin, min(high - begin, length + BLOCK_BYTES))
        file.handle.known.keep(begin // BLOCK_BYTES, data)
        used = min(_used_blocks(data) * BLOCK_BYTES, len(data))
        if not used:
            high = begin
        elif used == len(data):
            low = begin + used
        else:
            return begin + used
        place = (low + high) // 2
    return low


def _used_blocks(data: memoryview) -> int:
    """Return the number of blocks up to the last one that is not zeros."""
    zeros = bytes(BLOCK_BYTES)
    count = -(-len(data) // BLOCK_BYTES)
    while count and (block := data[(count - 1) * BLOCK_BYTES : count * BLOCK_BYTES]) == zeros[: len(block)]:
        count -= 1
    return count
