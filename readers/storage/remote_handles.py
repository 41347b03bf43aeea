"""Open remote files: streams for many threads, reads that notice a short answer, and the memory of requests."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
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
    """Return the open file of a version.

    Raises: ArrowException, OSError.
    """
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
