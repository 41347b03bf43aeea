"""Open many remote files at once and fetch their ends: one round trip for all instead of one for each."""

from __future__ import annotations

from collections.abc import Sequence

from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.storage.remote_cache import BLOCK_BYTES, KEPT_BYTES_MAX, Version
from rmqtx.readers.storage.remote_handles import Handle, add_handle, without_handle
from rmqtx.readers.storage.remote_reads import RemoteFile, request_threads

#: A file of at most this length is fetched whole where files are opened together; of a longer one the end.
_WHOLE_BYTES_MAX, _END_BYTES = 8 << 20, 1 << 20


def open_together(files: Sequence[tuple[str, int, int | None]]) -> None:
    """Open files in parallel and fetch small ones whole, of others the end; errors appear when the files are read.

    Of each file the bytes before the zeros at its end are kept, as far as half of the cache has room for all files.
    `files`: place, size and time of change.
    """
    versions = without_handle(Version(*file) for file in files)
    share_bytes = KEPT_BYTES_MAX // 2 // max(1, len(versions))
    for version, handle, first, data in request_threads().map(lambda one: _with_end(one, share_bytes), versions):
        if handle is not None and version.modified_ns is not None:
            add_handle(handle)
            handle.known.keep(first, data)


def _with_end(version: Version, share_bytes: int) -> tuple[Version, Handle | None, int, memoryview]:
    """Open a file; return the blocks before the zeros at its end, with the number of the first one."""
    try:
        file = RemoteFile(*version)
        size = version.size_bytes
        first = 0 if size <= _WHOLE_BYTES_MAX else (size - _END_BYTES) // BLOCK_BYTES
        data = file.fetch(first * BLOCK_BYTES, size - first * BLOCK_BYTES) if size else memoryview(b"")
    except SourceError:
        return version, None, 0, memoryview(b"")
    used = _used_blocks(data)
    file.handle.known.zeros.add(min((first + used) * BLOCK_BYTES, size), size)
    skipped = max(0, used - share_bytes // BLOCK_BYTES)
    return version, file.handle, first + skipped, memoryview(bytes(data[skipped * BLOCK_BYTES : used * BLOCK_BYTES]))


def _used_blocks(data: memoryview) -> int:
    """Return the number of blocks up to the last one that is not zeros."""
    zeros = bytes(BLOCK_BYTES)
    count = -(-len(data) // BLOCK_BYTES)
    while count and (block := data[(count - 1) * BLOCK_BYTES : count * BLOCK_BYTES]) == zeros[: len(block)]:
        count -= 1
    return count
