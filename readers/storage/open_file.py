"""One local file, open for reading, with the length that it had in the snapshot."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from types import TracebackType

from rmqtx.readers.model.errors import FileChanged, UnreadableFile
from rmqtx.readers.storage.places import unreadable
from rmqtx.readers.storage.runs import LOCAL

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
            self._descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise unreadable(file, error, "open") from error

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
                raise FileChanged(
                    f"{self.file} became shorter while it was read",
                    file=self.file, position_bytes=position_bytes,
                    advice="copy the store and read the copy, or run the command again",
                )
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
        """Where the data of the file ends, as far as that is known without reading all of it."""
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
