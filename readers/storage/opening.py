"""Open a file by its local path or its URI."""

from __future__ import annotations

from collections.abc import Sequence

from rmqtx.readers.storage.open_file import OpenFile
from rmqtx.readers.storage.places import is_uri
from rmqtx.readers.storage.runs import LOCAL, REMOTE, Limits


def open_file(file: str, size_bytes: int, modified_ns: int | None = None) -> OpenFile:
    """Return a local file, or the file of a URI, open for reading.

    Raises: UnreadableFile.
    """
    if not is_uri(file):
        return OpenFile(file, size_bytes)
    from rmqtx.readers.storage.remote_reads import RemoteFile

    return RemoteFile(file, size_bytes, modified_ns)


def limits_of(file: str) -> Limits:
    """Return how the places of a file are read."""
    return REMOTE if is_uri(file) else LOCAL


def open_together(
    files: Sequence[tuple[str, int, int | None]], guessed_ends: Sequence[int | None] | None = None
) -> None:
    """Open remote files in parallel that will be read next from their ends; errors appear when they are read.

    `files`: URI, size, and time of the last change of each. `guessed_ends`: about where the data of each ends; then
    samples show where, and what follows is not read. None: the file is read.
    """
    from rmqtx.readers.storage.remote_reads import open_together as open_remotely

    open_remotely(files, guessed_ends)
