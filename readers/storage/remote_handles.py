"""Open remote files: streams for many threads, reads that notice a short answer, and the memory of requests."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pyarrow import fs

from rmqtx.readers.storage.remote_cache import KnownBytes, Version
from rmqtx.readers.storage.remote_systems import opened

#: The most bytes that all requests under way may give.
_UNDER_WAY_BYTES_MAX = 64 << 20
_HANDLES_MAX = 256
#: Marks at the end of a buffer that remain after a short read; the file's bytes can be equal to only one of them.
_MARK = os.urandom(16)
_OTHER_MARK = bytes(byte ^ 0xFF for byte in _MARK)


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
    """A remote file with one opened stream for each thread that reads it."""

    def __init__(self, version: Version) -> None:
        self.known = KnownBytes(version)
        #: Whether a connection broke off each time that a long range was read.
        self.breaks_off = False
        self._system, self._path = opened(version.place)
        self._free = [self._system.open_input_file(self._path)]

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
        try:
            file = self._free.pop()
        except IndexError:  # other threads use them
            file = self._system.open_input_file(self._path)
        file.seek(position_bytes)
        count: int = file.readinto(view)
        self._free.append(file)
        return count

    def info(self) -> fs.FileInfo:
        """Return the file system's current information on the file."""
        return self._system.get_file_info(self._path)


_handles: OrderedDict[Version, Handle] = OrderedDict()


def handle_of(version: Version) -> Handle:
    """Return the open file of a version.

    Raises: ArrowException, OSError.
    """
    if version.modified_ns is None:  # versions cannot be distinguished
        return Handle(version)
    handle = _handles.get(version)
    if handle is None:
        handle = _handles[version] = Handle(version)
        if len(_handles) > _HANDLES_MAX:
            _handles.popitem(last=False)  # closed when its last reader releases it
    else:
        _handles.move_to_end(version)
    return handle


def without_handle(versions: Iterable[Version]) -> list[Version]:
    """Return the versions that are not open."""
    return [version for version in versions if version not in _handles]


def add_handle(handle: Handle) -> None:
    """Keep a file open for later readers."""
    _handles[handle.known.version] = handle
    if len(_handles) > _HANDLES_MAX:
        _handles.popitem(last=False)
