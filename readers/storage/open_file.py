"""One local file, open for reading, with the length that it had in the snapshot; and how many small reads become few.

Close places of a file are read together, with the bytes between them, also of remote files. The reads are planned in
portions, so that memory does not grow with their number.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rmqtx.readers.model.errors import FileChanged, UnreadableFile
from rmqtx.readers.storage.places import not_a_file, unreadable

_Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Portion:
    """Reads of some places, one run of bytes after another in one buffer.

    Shape: `first` and `last` are the numbers of the first place and of the one after the last; `begins` and `ends` of
           the runs in the file; `starts` of each place in the buffer.
    Units: bytes.
    """

    first: int
    last: int
    begins: _Int64s
    ends: _Int64s
    starts: _Int64s


@dataclass(frozen=True, slots=True)
class Limits:
    """How the places of a source are read: each source has its own.

    `near_bytes`: two places with at most this distance are read together, because a read of its own costs more than the
    bytes between them. `portion_bytes`, `places_max`: the most bytes and places of a portion.
    """

    near_bytes: int
    portion_bytes: int
    places_max: int


#: A read of a local file costs as much as to copy some KiB.
LOCAL = Limits(near_bytes=8 << 10, portion_bytes=4 << 20, places_max=1 << 62)
#: A request of 50 ms, one of 32 under way, costs as much as to receive this number of bytes with 2.5 Gbit/s. A portion
#: must fit into the cache.
REMOTE = Limits(near_bytes=512 << 10, portion_bytes=16 << 20, places_max=2048)
#: Stretches of data between holes that are counted to find the last hole of a file; most files have one.
_STRETCHES_MAX = 8
#: A large read of a remote file is fetched in parts of about this size: one connection does not use all bandwidth.
REMOTE_PART_BYTES = 8 << 20


def portions(begins: _Int64s, ends: _Int64s, limits: Limits) -> Iterator[Portion]:
    """Plan the reads of places, in their order; places that overlap are read once.

    `begins`: usually ascending; where it is not, a new portion begins.
    Units: bytes.
    """
    falls = np.flatnonzero(np.diff(begins) < 0) + 1
    for low, high in zip([0, *falls.tolist()], [*falls.tolist(), len(begins)], strict=True):
        if low < high:
            yield from _ascending(low, begins[low:high], ends[low:high], limits)


def _ascending(first: int, begins: _Int64s, ends: _Int64s, limits: Limits) -> Iterator[Portion]:
    if len(begins) == 1:  # as most look-ups
        yield Portion(first, first + 1, begins, ends, np.zeros(1, np.int64))
        return
    reach = np.maximum.accumulate(ends)
    is_cut = np.append(True, begins[1:] > reach[:-1] + limits.near_bytes)
    added = np.where(is_cut, ends - begins, np.append(0, np.diff(reach)))
    portion_numbers = (np.cumsum(added) - added) // limits.portion_bytes
    inside = np.arange(len(begins)) - np.searchsorted(portion_numbers, portion_numbers)
    bounds = np.flatnonzero(np.append(True, (np.diff(portion_numbers) > 0) | (inside[1:] % limits.places_max == 0)))
    is_cut[bounds] = True
    cuts = np.flatnonzero(is_cut)
    run_begins, run_ends = begins[cuts], np.maximum.reduceat(ends, cuts)
    run_numbers = np.cumsum(is_cut) - 1
    places = np.cumsum(run_ends - run_begins) - (run_ends - run_begins)
    starts = places[run_numbers] + begins - run_begins[run_numbers]
    for low, high in zip(bounds.tolist(), [*bounds[1:].tolist(), len(begins)], strict=True):
        runs = slice(int(run_numbers[low]), int(run_numbers[high - 1]) + 1)
        yield Portion(
            first + low, first + high, run_begins[runs], run_ends[runs], starts[low:high] - places[run_numbers[low]]
        )


#: For reads that fail where the bytes must be loaded first.
_NOWAIT = os.RWF_NOWAIT
#: Runs that the system is asked to load at once: enough for a disk to work on many.
_LOADED_TOGETHER = 64


class OpenFile:
    """A file open for positioned reads within its length in the snapshot."""

    #: Whether a read is a network request: then it pays to prepare ranges that will be read.
    is_remote = False
    #: How places in the file are read.
    limits = LOCAL

    def __init__(self, file: str, size_bytes: int) -> None:
        self.file = file
        self.size_bytes = size_bytes
        try:
            self._descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would wait
            mode = os.fstat(self._descriptor).st_mode
        except OSError as error:
            raise unreadable(file, error, "open") from error
        if not stat.S_ISREG(mode) and not stat.S_ISBLK(mode):  # an image of a disk may be the disk
            os.close(self._descriptor)
            raise not_a_file(file)

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file descriptor."""
        os.close(self._descriptor)

    def read(self, position_bytes: int, length_bytes: int) -> bytes:
        """Return exactly the requested bytes, up to the snapshot's length.

        Raises: FileChanged if the file has become shorter; UnreadableFile if the system cannot read it.
        """
        wanted = max(0, min(length_bytes, self.size_bytes - position_bytes))
        parts: list[bytes] = []
        while wanted:
            try:
                part = os.pread(self._descriptor, wanted, position_bytes)
            except OSError as error:
                raise UnreadableFile(
                    f"cannot read {self.file}: {error.strerror}", file=self.file, position_bytes=position_bytes
                ) from error
            if not part:
                raise became_shorter(self.file, position_bytes)
            parts.append(part)
            wanted -= len(part)
            position_bytes += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_runs(self, runs: Sequence[tuple[int, int]], view: memoryview) -> None:
        """Read runs, given by begin and end, one after another into a buffer. No run ends after the snapshot's length.

        Where a run is not in the page cache, the system is asked to load the next ones at the same time.
        Raises: FileChanged, UnreadableFile.
        """
        place = asked = 0
        for number, (begin, end) in enumerate(runs):
            following = place + end - begin
            try:
                is_whole = os.preadv(self._descriptor, [view[place:following]], begin, _NOWAIT) == end - begin
            except OSError:
                is_whole = False
            if not is_whole:
                if number >= asked:
                    asked = number + _LOADED_TOGETHER
                    for first, last in runs[number:asked]:
                        os.posix_fadvise(self._descriptor, first, last - first, os.POSIX_FADV_WILLNEED)
                view[place:following] = self.read(begin, end - begin)  # or raises what is wrong
            place = following

    @property
    def data_end(self) -> int:
        """Where the data of the file ends, as far as that is known without reading all of it: before its last hole."""
        end = 0
        for _ in range(_STRETCHES_MAX):
            begin = self.next_data(end)
            if begin >= self.size_bytes:
                return min(end, self.size_bytes)
            try:
                end = os.lseek(self._descriptor, begin, os.SEEK_HOLE)
            except OSError:
                break
        return self.size_bytes

    def prepare(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Announce ranges (position, length) that will be read next; no effect for a local file."""

    def will_read_until(self, position_bytes: int) -> None:
        """Announce where a reading in order will end; no effect for a local file."""

    def fetch_ahead(self, position_bytes: int, length_bytes: int) -> None:
        """Begin to fetch a long range that will be read after the next work; no effect for a local file."""

    def next_data(self, position_bytes: int) -> int:
        """Return where the next bytes that are not a hole begin; the snapshot's length if there are none.

        Segments are preallocated and often sparse: a hole is zeros that need not be read.
        """
        try:
            return min(os.lseek(self._descriptor, position_bytes, os.SEEK_DATA), self.size_bytes)
        except OSError:  # no data after the position (ENXIO), or a file system without holes
            return self.size_bytes if _is_hole(self._descriptor, position_bytes) else position_bytes


def _is_hole(descriptor: int, position_bytes: int) -> bool:
    try:
        return os.lseek(descriptor, position_bytes, os.SEEK_HOLE) == position_bytes
    except OSError:
        return False


def became_shorter(file: str, position_bytes: int) -> FileChanged:
    """Return the error for a file that ends before the length that it had."""
    return FileChanged(
        f"{file} became shorter while it was read", file=file, position_bytes=position_bytes,
        advice="copy the store and read the copy, or run the command again",
    )
