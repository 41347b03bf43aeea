"""Open a file by its local path or its URI."""

from __future__ import annotations

from collections.abc import Iterable

from readers.storage.open_file import OpenFile
from readers.storage.places import is_uri

#: Length of the end of a remote file that is fetched when the file is opened.
_END_BYTES = 1 << 20


def open_file(file: str, size_bytes: int, modified_ns: int | None = None) -> OpenFile:
    """Return a local file, or the file of a URI, open for reading.

    Raises: UnreadableFile.
    """
    if not is_uri(file):
        return OpenFile(file, size_bytes)
    from readers.storage.remote_reads import RemoteFile

    return RemoteFile(file, size_bytes, modified_ns)


def open_together(files: Iterable[tuple[str, int, int | None]]) -> None:
    """Open remote files in parallel that will be read next from their ends; errors appear when they are read.

    Shape: for each file its URI, its size, and the time of its last change.
    """
    from readers.storage.remote_reads import open_together as open_remotely

    open_remotely(files, _END_BYTES)
