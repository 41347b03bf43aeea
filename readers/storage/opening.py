"""A file opened by its name: local, or named by a URI."""

from __future__ import annotations

from collections.abc import Iterable

from readers.storage.open_file import OpenFile
from readers.storage.places import is_uri

#: How much of the end of a remote file is fetched with its opening.
_END_BYTES = 1 << 20


def open_file(file: str, size_bytes: int, modified_ns: int | None = None) -> OpenFile:
    """A local file, or one that a URI names, open for reading.

    Raises: UnreadableFile.
    """
    if not is_uri(file):
        return OpenFile(file, size_bytes)
    from readers.storage.remote_reads import RemoteFile

    return RemoteFile(file, size_bytes, modified_ns)


def open_together(files: Iterable[tuple[str, int, int | None]]) -> None:
    """Remote files that will be read next from their ends, opened side by side; errors are left to the reading.

    Shape: of each file its URI, its size, and when it was changed.
    """
    from readers.storage.remote_reads import open_together as open_remotely

    open_remotely(files, _END_BYTES)
