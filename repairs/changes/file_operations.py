"""The one place that opens files of a store for writing; whole copies are made in `repairs.changes.clones`.

A test hands in its own `FileOperations` that writes down what is done, or lets it fail.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from readers.model.errors import UnwritableFile

#: How much is held in memory of a file that is written, copied or compared.
CHUNK_BYTES = 1 << 20

_ADVICE = {
    errno.ENOSPC: "make room on that file system",
    errno.EDQUOT: "make room within the quota",
    errno.EROFS: "its file system is mounted read-only",
    errno.EACCES: "do it as the user that the broker runs as, or as root",
    errno.EPERM: "do it as the user that the broker runs as, or as root",
    errno.EEXIST: "it is there already",
    errno.ELOOP: "it is a link: nothing is written through one",
    errno.EIO: "the disk reports errors: copy the store elsewhere first (--to)",
}


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Make what the system refuses while the block runs an error of one line.

    Raises: UnwritableFile.
    """
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0)
        raise UnwritableFile(f"cannot write {path}: {error.strerror or error}", file=path, advice=advice) from error


@dataclass(frozen=True, slots=True)
class Attributes:
    """What a file has beside its content.

    Units: `mode` is the permission bits.
    """

    mode: int
    user: int
    group: int
    modified_ns: int | None = None

    def without_time(self) -> Attributes:
        """The same, whatever its time."""
        return replace(self, modified_ns=None)


class FileOperations:
    """Changes of files, each under its path.

    Raises: UnwritableFile, whatever the system refuses.
    """

    def create(self, path: Path, size_bytes: int) -> None:
        """A new file, all zeros, without taking room for them; nobody else may open it yet."""
        with told(path):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                os.ftruncate(descriptor, size_bytes)
            finally:
                os.close(descriptor)

    def write(self, path: Path, position_bytes: int, data: bytes) -> None:
        """Overwrite bytes, or write on at the end."""
        with told(path):
            descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                written = 0
                while written < len(data):
                    written += os.pwrite(descriptor, memoryview(data)[written:], position_bytes + written)
            finally:
                os.close(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        """Give a file its name; what had that name before is gone at the same instant."""
        with told(new):
            old.rename(new)

    def remove(self, path: Path) -> None:
        """Remove a file."""
        with told(path):
            path.unlink()

    def set_attributes(self, path: Path, attributes: Attributes) -> None:
        """Give a file its permissions, its owner and, where it is known, its time."""
        with told(path):
            now = path.stat()
            if (now.st_uid, now.st_gid) != (attributes.user, attributes.group):
                os.chown(path, attributes.user, attributes.group)
            if now.st_mode & 0o7777 != attributes.mode:
                path.chmod(attributes.mode)
            if attributes.modified_ns is not None and now.st_mtime_ns != attributes.modified_ns:
                os.utime(path, ns=(now.st_atime_ns, attributes.modified_ns))

    def sync_file(self, path: Path) -> None:
        """Have what is in a file on the disk."""
        with told(path):
            _sync(path, os.O_RDONLY)

    def sync_directory(self, path: Path) -> None:
        """Have the names in a directory on the disk."""
        with told(path):
            _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        if hasattr(fcntl, "F_FULLFSYNC"):  # macOS: fsync alone leaves it in the drive's cache
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        else:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_lock_file(path: Path) -> int:
    """The descriptor of a store's `lock`, made where it is not there.

    Brokers from 4.0 on write "lock" into it, those before have none: what we leave behind is empty, so that it does not
    pass for theirs.
    Raises: UnwritableFile.
    Source: store/DefaultMessageStore.java start.
    """
    with told(path):
        try:
            return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            pass
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            attributes = attributes_of_new(path.parent)
            os.fchmod(descriptor, attributes.mode)
            if os.geteuid() == 0:
                os.fchown(descriptor, attributes.user, attributes.group)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor


def attributes_of(path: Path) -> Attributes:
    """What a file has beside its content."""
    status = path.stat()
    return Attributes(status.st_mode & 0o7777, status.st_uid, status.st_gid, status.st_mtime_ns)


def attributes_of_new(directory: Path) -> Attributes:
    """What a new file in a directory gets: open to whom the directory is, and of the same owner.

    A broker that runs as another user than we do must be able to write to it; else it does not start.
    """
    status = directory.stat()
    mode = 0o600 | (status.st_mode & 0o066 & _spread(status.st_mode & 0o011))
    if os.geteuid() == 0:
        return Attributes(mode, status.st_uid, status.st_gid)
    group = status.st_gid if status.st_gid in (os.getegid(), *os.getgroups()) else os.getegid()
    return Attributes(mode, os.geteuid(), group)


def _spread(entering: int) -> int:
    """Read and write bits for whom the execute bit lets in."""
    return (0o060 if entering & 0o010 else 0) | (0o006 if entering & 0o001 else 0)
