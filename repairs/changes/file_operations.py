"""The only module that opens files of a store for writing; whole copies are made in `rmqtx.repairs.changes.clones`.

A test passes its own `FileOperations`, which records the operations or lets them fail.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rmqtx.readers.model.errors import UnwritableFile

#: Size of the chunks in which files are written, copied and compared. Units: bytes.
CHUNK_BYTES = 1 << 20

_ADVICE = {
    errno.ENOSPC: "free some space on that file system",
    errno.EDQUOT: "free some space within the quota",
    errno.EROFS: "its file system is mounted read-only",
    errno.EACCES: "run the command as the broker's user, or as root",
    errno.EPERM: "run the command as the broker's user, or as root",
    errno.EEXIST: "the file already exists",
    errno.ELOOP: "it is a link, and rmqtx does not write through links",
    errno.EIO: "the disk reports errors: copy the store to another disk first (--to DIR)",
}
#: The permissions of user, group and others.
_PERMISSIONS = 0o777

#: Added to the name of a file or directory until it is complete.
UNFINISHED_SUFFIX = ".unfinished"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError of the block into an error of one line that names the path. Raises: UnwritableFile."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0)
        raise UnwritableFile(f"cannot write {path}: {error.strerror or error}", file=path, advice=advice) from error


@dataclass(frozen=True, slots=True)
class Attributes:
    """Permissions, owner and time of a file.

    Units: `mode`: permission bits, without the set-id bits and the sticky bit, which have no effect on a file of a
           store: an undo file that could set them could make a program of another user.
    """

    mode: int
    user: int
    group: int
    modified_ns: int | None = None

    def without_time(self) -> Attributes:
        """The same attributes without a time."""
        return replace(self, modified_ns=None)


class FileOperations:
    """Changes of files by their paths. Raises: UnwritableFile for any error of the system."""

    def create(self, path: Path, size_bytes: int) -> None:
        """Create a sparse file of zeros that other users cannot open yet."""
        with writing(path):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                os.ftruncate(descriptor, size_bytes)
            finally:
                os.close(descriptor)

    def write(self, path: Path, position_bytes: int, data: bytes) -> None:
        """Overwrite bytes, or append at the end."""
        with writing(path):
            descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                written = 0
                while written < len(data):
                    written += os.pwrite(descriptor, memoryview(data)[written:], position_bytes + written)
            finally:
                os.close(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file, replacing a file with the new name atomically."""
        with writing(new):
            old.rename(new)

    def remove(self, path: Path) -> None:
        """Remove a file."""
        with writing(path):
            path.unlink()

    def set_attributes(self, path: Path, attributes: Attributes) -> None:
        """Set the permissions, the owner and, if known, the time of a file."""
        with writing(path):
            now = path.stat()
            if (now.st_uid, now.st_gid) != (attributes.user, attributes.group):
                os.chown(path, attributes.user, attributes.group)
            if now.st_mode & _PERMISSIONS != attributes.mode:
                path.chmod(now.st_mode & 0o7777 & ~_PERMISSIONS | attributes.mode)
            if attributes.modified_ns is not None and now.st_mtime_ns != attributes.modified_ns:
                os.utime(path, ns=(now.st_atime_ns, attributes.modified_ns))

    def sync_file(self, path: Path) -> None:
        """Write a file's content to disk."""
        with writing(path):
            _sync(path, os.O_RDONLY)

    def sync_directory(self, path: Path) -> None:
        """Write a directory's names to disk."""
        with writing(path):
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


def open_lock_file(path: Path) -> tuple[int, bool]:
    """Open a store's `lock`, creating it if it is missing; return the descriptor, and whether the file is new.

    Brokers from 4.0 write "lock" into it, older brokers have none: the file that rmqtx creates is empty, so that it is
    not taken for a broker's.
    Raises: UnwritableFile.
    Source: store/DefaultMessageStore.java start.
    """
    with writing(path):
        try:
            return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), False
        except FileNotFoundError:
            pass
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileExistsError:  # another process has made it meanwhile; a link stays refused
            return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), False
        try:
            attributes = attributes_of_new(path.parent)
            os.fchmod(descriptor, attributes.mode)
            if os.geteuid() == 0:
                os.fchown(descriptor, attributes.user, attributes.group)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor, True


def attributes_of(path: Path) -> Attributes:
    """Return the permissions, owner and time of a file."""
    status = path.stat()
    return Attributes(status.st_mode & _PERMISSIONS, status.st_uid, status.st_gid, status.st_mtime_ns)


def attributes_of_new(directory: Path) -> Attributes:
    """Return the attributes for a new file in a directory: accessible to the users of the directory, same owner.

    A broker that runs as another user than rmqtx must be able to write to the file; else it does not start.
    """
    status = directory.stat()
    mode = 0o600 | (status.st_mode & 0o066 & _spread(status.st_mode & 0o011))
    if os.geteuid() == 0:
        return Attributes(mode, status.st_uid, status.st_gid)
    group = status.st_gid if status.st_gid in (os.getegid(), *os.getgroups()) else os.getegid()
    return Attributes(mode, os.geteuid(), group)


def _spread(entering: int) -> int:
    """Read and write bits for the users that have the directory's execute bit."""
    return (0o060 if entering & 0o010 else 0) | (0o006 if entering & 0o001 else 0)
