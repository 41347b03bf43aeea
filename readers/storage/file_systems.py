"""The file system of each place, local or remote, and the expansion of patterns in paths."""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import stat
import time
from collections import OrderedDict
from collections.abc import Iterable

from rmqtx.readers.model.errors import NotAStore
from rmqtx.readers.storage.places import (
    DirectoryEntry,
    FileSystem,
    is_uri,
    joined,
    name_of,
    normalised,
    not_a_file,
    unreadable,
    uri_of,
)

_MAGIC = re.compile(r"[*?[]")


_SNAPSHOTS_MAX = 16
#: Directories of a store whose entries are kept; a store may have tens of thousands of queues.
_LISTINGS_MAX = 1_000


class LocalFiles:
    """The files of this machine."""

    def entries(self, directory: str) -> list[DirectoryEntry]:
        """Return the entries of a directory."""
        if "\0" in directory:  # a topic of damaged bytes: no file can have this name
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), directory)
        with os.scandir(directory) as found:
            entries = [entry for one in found if (entry := _local_entry(one)) is not None]
        return sorted(entries, key=lambda entry: entry.name)

    def list_whole(self, directory: str) -> None:
        """Do nothing: a local listing is cheap."""

    def entry(self, place: str) -> DirectoryEntry | None:
        """Return the entry at a place."""
        if "\0" in place:
            return None
        try:
            status = os.stat(place)  # noqa: PTH116  # a command asks for hundreds of files
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return None
            if error.errno == errno.ELOOP:
                return _broken_link(place)
            raise
        is_directory, is_file = stat.S_ISDIR(status.st_mode), stat.S_ISREG(status.st_mode)
        return DirectoryEntry(name_of(place), place, is_directory, is_file, status.st_size)

    def content(self, place: str, bytes_max: int) -> bytes | None:
        """Return the bytes of a small file."""
        try:
            descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would wait for a writer
        except FileNotFoundError:
            return None
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise not_a_file(place)
            return file.read(min(bytes_max, status.st_size) + 1)  # a read allocates the requested length


def _local_entry(entry: os.DirEntry[str]) -> DirectoryEntry | None:
    """Return an entry of a directory; None if it was deleted meanwhile: a running broker deletes expired files."""
    try:
        is_directory, is_file = entry.is_dir(), entry.is_file()
        size_bytes = entry.stat().st_size if is_file else 0
    except OSError as error:
        is_deleted = error.errno == errno.ENOENT and not entry.is_symlink()
        return None if is_deleted else _broken_link(entry.path)
    return DirectoryEntry(entry.name, entry.path, is_directory, is_file, size_bytes, is_link=entry.is_symlink())


def _broken_link(place: str) -> DirectoryEntry:
    """Return the entry of a link that leads to itself or nowhere: it exists, and is neither a file nor a directory."""
    return DirectoryEntry(name_of(place), place, is_directory=False, is_file=False, is_link=True)


class ListedOnce(LocalFiles):
    """The files of this machine, for a store that nothing changes: each directory is listed once."""

    def __init__(self) -> None:
        self._known: dict[str, list[DirectoryEntry]] = {}

    def __reduce__(self) -> tuple[type[ListedOnce], tuple[()]]:
        return ListedOnce, ()  # another process lists what it needs

    def entries(self, directory: str) -> list[DirectoryEntry]:
        """Return the entries of a directory."""
        known = self._known.get(directory)
        if known is None:
            known = super().entries(directory)
            if len(self._known) < _LISTINGS_MAX:
                self._known[directory] = known
        return list(known)


_LOCAL = LocalFiles()


_snapshots: OrderedDict[tuple[str, int], FileSystem] = OrderedDict()


def files_of(root: str, taken_time_ms: int) -> FileSystem:
    """Return the file system of a root; for a remote root, one with the listings cached for this snapshot."""
    if not is_uri(root):
        return _LOCAL
    key = root, taken_time_ms
    files = _snapshots.get(key)
    if files is None:
        from rmqtx.readers.storage.remote_files import RemoteFiles

        files = _snapshots[key] = RemoteFiles(root)
        if len(_snapshots) > _SNAPSHOTS_MAX:
            _snapshots.popitem(last=False)
    else:
        _snapshots.move_to_end(key)
    return files


def expand(paths: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Return the places that paths and patterns name; `*`, `?` and `[…]` match parts of one directory's name.

    Shape:  local paths and URIs, `file://` as local paths. A path without a pattern is returned whether it exists or
            not, and so is an existing local path that looks like a pattern.
    Order:  as given; the matches of a pattern by name.
    Raises: NotAStore for a pattern that nothing matches; BadRequest for credentials in a URI; UnreadableFile.
    """
    places: list[str] = []
    for path in paths:
        place = normalised(path)
        body = uri_of(place).path if is_uri(place) else place
        if not _MAGIC.search(body) or (not is_uri(place) and os.path.lexists(os.fspath(path))):
            places.append(place)
            continue
        found = _matches(place)
        if not found:
            raise NotAStore(f"{place} matches no directory", file=place)
        places.extend(found)
    return places


def _matches(pattern: str) -> list[str]:
    """Return the directories that match a pattern, part by part; parts before the first pattern are not listed."""
    is_remote = is_uri(pattern)
    parts = [part for part in (uri_of(pattern).path if is_remote else pattern).split("/") if part]
    fixed = next(number for number, part in enumerate(parts) if _MAGIC.search(part))
    top = uri_of(pattern).at("") if is_remote else "/" if pattern.startswith("/") else "."
    root = joined(top, *parts[:fixed])
    files = files_of(root, time.time_ns())  # a new snapshot, so that the listing is current
    found = [root]
    for part in parts[fixed:]:
        found = [place for directory in found for place in _step(files, directory, part)]
    return found


def _step(files: FileSystem, directory: str, part: str) -> list[str]:
    """Return the entries of a directory that match one part of a pattern."""
    try:
        entries = files.entries(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise unreadable(directory, error) from error
    matches_hidden = part.startswith(".")
    return [
        joined(directory, entry.name)
        for entry in entries
        if entry.is_directory
        and (matches_hidden or not entry.name.startswith("."))
        and fnmatch.fnmatchcase(entry.name, part)
    ]
