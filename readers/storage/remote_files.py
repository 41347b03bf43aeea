"""Files of any file system that `pyarrow.fs` opens, read in place: listings, small files whole, ranges of large ones.

Every call is a network request, so results are cached: listings for as long as a snapshot of a store is used, contents
of files as in `remote_reads.py`. Nothing is written, and nothing is stored on disk. Credentials come from the
environment or the cloud's default; no place, row, error or pickle contains them.
"""

from __future__ import annotations

import errno
import os
from pathlib import PurePosixPath

import pyarrow as pa
from pyarrow import fs

from rmqtx.readers.model.errors import UnreadableFile
from rmqtx.readers.storage.places import DirectoryEntry, joined, uri_of
from rmqtx.readers.storage.remote_systems import as_os_error, opened
from rmqtx.readers.storage.segments import open_file

_KEPT_CONTENT_BYTES_MAX = 4 << 20


class RemoteFiles:
    """One root on a remote file system, with the listings of one snapshot."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._listed: dict[str, dict[str, DirectoryEntry]] = {}
        self._whole: set[str] = set()
        self._contents: dict[str, bytes] = {}

    def entries(self, directory: str) -> list[DirectoryEntry]:
        """Return the entries of a directory. Order: name. Raises: OSError."""
        return list(self._children(directory).values())

    def list_whole(self, directory: str) -> None:
        """List everything below a directory with one request."""
        if directory in self._whole or not self._may_exist(directory):
            return
        self._whole.add(directory)
        system, path = opened(directory)
        self._listed[directory] = {}
        found = _listing(system, path, recursive=True)
        for info in sorted(found, key=lambda info: str(info.path)):
            names = info.path[len(path) :].strip("/").split("/")
            if not names[-1]:
                continue  # an empty object that represents the directory
            place = joined(directory, *names)
            parent = directory if len(names) == 1 else joined(directory, *names[:-1])
            self._listed.setdefault(parent, {})[names[-1]] = _entry(info, names[-1], place)
            if info.type == fs.FileType.Directory:
                self._listed.setdefault(place, {})

    def entry(self, place: str) -> DirectoryEntry | None:
        """Return the entry at a place; None if there is none. Raises: OSError."""
        uri = uri_of(place)
        path = PurePosixPath(uri.path)
        try:
            return self._children(uri.at("" if str(path.parent) == "/" else str(path.parent))).get(path.name)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def content(self, place: str, bytes_max: int) -> bytes | None:
        """Return the bytes of a small file, at most `bytes_max` + 1; None if the file does not exist."""
        entry = self.entry(place)
        if entry is None:
            return None
        if not entry.is_file:
            raise UnreadableFile(f"{place} is not a file", file=place)
        data = self._contents.get(place)
        if data is None or len(data) < min(bytes_max + 1, entry.size_bytes):
            with open_file(place, entry.size_bytes) as file:
                data = file.read(0, bytes_max + 1)
            if len(data) <= _KEPT_CONTENT_BYTES_MAX:
                self._contents[place] = data
        return data[: bytes_max + 1]

    def _children(self, directory: str) -> dict[str, DirectoryEntry]:
        found = self._listed.get(directory)
        if found is None:
            if not self._may_exist(directory):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), directory)
            system, path = opened(directory)
            infos = sorted(_listing(system, path, recursive=False), key=lambda info: str(info.base_name))
            found = {info.base_name: _entry(info, info.base_name, joined(directory, info.base_name)) for info in infos}
            if not found:
                _require_directory(system, path)
            self._listed[directory] = found
        return found

    def _may_exist(self, directory: str) -> bool:
        """Whether the directory may exist, as far as the cached listings show."""
        root, path = uri_of(self._root).path, uri_of(directory).path
        names = path[len(root) :].strip("/").split("/") if path.startswith(f"{root}/") else []
        place = self._root
        for name in names:
            listed = self._listed.get(place)
            if listed is None:
                return True
            if name not in listed or not listed[name].is_directory:
                return False
            place = joined(place, name)
        return True


def _listing(system: fs.FileSystem, path: str, *, recursive: bool) -> list[fs.FileInfo]:
    selector = fs.FileSelector(path or "/", recursive=recursive, allow_not_found=True)
    try:
        return list(system.get_file_info(selector))
    except (pa.ArrowException, OSError) as error:
        raise as_os_error(error) from error


def _require_directory(system: fs.FileSystem, path: str) -> None:
    """Raise if a path without entries is not an empty directory."""
    try:
        kind = system.get_file_info(path or "/").type
    except (pa.ArrowException, OSError) as error:
        raise as_os_error(error) from error
    if kind == fs.FileType.File:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if kind == fs.FileType.NotFound:
        bucket = path.partition("/")[0]
        is_bucket_missing = bool(bucket) and system.get_file_info(bucket).type == fs.FileType.NotFound
        reason = f"there is no bucket {bucket}" if is_bucket_missing else os.strerror(errno.ENOENT)
        raise FileNotFoundError(errno.ENOENT, reason)


def _entry(info: fs.FileInfo, name: str, place: str) -> DirectoryEntry:
    is_file = info.type == fs.FileType.File
    size_bytes = info.size if is_file and info.size is not None else 0
    return DirectoryEntry(name, place, info.type == fs.FileType.Directory, is_file, size_bytes, info.mtime_ns)
