"""The lock of a store, taken as a broker takes it and held during a change.

A broker takes an exclusive POSIX lock on byte 0 of `lock` at its start, after recovery of its log, and keeps it until
it ends. The lock of rmqtx conflicts with it, but belongs to the open file (Linux, F_OFD_SETLK): a POSIX lock is
released as soon as the process closes any other descriptor of the file, which every reading of the store does.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rmqtx.readers.model.errors import NotAStore, StoreInUse, UnwritableFile
from rmqtx.readers.store.store import OWN_LOCKS, lock_holder
from rmqtx.repairs.changes.file_operations import open_lock_file

_BUSY = (errno.EAGAIN, errno.EACCES)
_WITHOUT_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
_guard = threading.RLock()
_held: dict[tuple[int, int], int] = {}


@contextmanager
def store_locked(root: str | os.PathLike[str]) -> Iterator[None]:
    """Lock a store against brokers and other rmqtx processes while the block runs; can be nested within a process.

    Raises: StoreInUse where a broker runs, NotAStore, UnwritableFile.
    """
    place = Path(os.path.realpath(root)) / "lock"
    if not place.parent.is_dir():
        raise NotAStore(f"{os.fspath(root)} is not a directory", file=root)
    with _guard:
        again = _known(place)
        if again is not None:
            _held[again] += 1
    if again is not None:
        try:
            yield
        finally:
            with _guard:
                _held[again] -= 1
        return
    with _locked(place, open_lock_file, fcntl.F_WRLCK):
        yield


@contextmanager
def store_shared(root: str | os.PathLike[str]) -> Iterator[None]:
    """Keep brokers from starting on a store that is only read, without changing anything in it.

    A store without the file `lock` was copied or never used: it cannot be locked.
    Raises: StoreInUse, UnwritableFile.
    """
    place = Path(os.path.realpath(root)) / "lock"
    with _guard:
        is_free = not place.exists() or _known(place) is not None
    if is_free:
        yield
        return
    with _locked(place, _open_to_read, fcntl.F_RDLCK):
        yield


def _known(place: Path) -> tuple[int, int] | None:
    """Identity of a lock that this process already holds; None if it does not."""
    try:
        status = place.stat()
    except OSError:
        return None
    identity = (status.st_dev, status.st_ino)
    return identity if identity in _held else None


def _open_to_read(place: Path) -> int:
    try:
        return os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UnwritableFile(f"cannot open {place}: {error.strerror}", file=place) from error


@contextmanager
def _locked(place: Path, opened: Callable[[Path], int], kind: int) -> Iterator[None]:
    descriptor = opened(place)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnwritableFile(
                f"{place} is not a file, so it is not a broker's lock", file=place, advice="remove it"
            )
        _take(descriptor, place, kind)
        status = os.fstat(descriptor)
        identity = (status.st_dev, status.st_ino)
        with _guard:
            _held[identity] = 1
            OWN_LOCKS.add(identity)
        try:
            yield
        finally:
            with _guard:
                del _held[identity]
                OWN_LOCKS.discard(identity)
    finally:
        os.close(descriptor)


def _take(descriptor: int, place: Path, kind: int) -> None:
    """Take the lock on byte 0, or raise an error that names its holder.

    Source: store/DefaultMessageStore.java start: FileChannel.tryLock(0, 1, false), fcntl F_SETLK on Linux.
    """
    question = struct.pack("hhqqi", kind, os.SEEK_SET, 0, 1, 0) + bytes(4)
    try:
        try:
            fcntl.fcntl(descriptor, getattr(fcntl, "F_OFD_SETLK", fcntl.F_SETLK), question)
        except OSError as error:
            if error.errno != errno.EINVAL:  # a file system or a system that has only the older kind
                raise
            fcntl.fcntl(descriptor, fcntl.F_SETLK, question)
    except OSError as error:
        if error.errno in _BUSY:
            process = lock_holder(str(place))
            holder = f"process {process}" if process is not None and process > 0 else "another process"
            raise StoreInUse(
                f"{place.parent} is in use: {holder} holds its lock", file=place.parent,
                advice="stop its broker first, or wait until the other rmqtx process has ended",
            ) from error
        if error.errno in _WITHOUT_LOCKS:
            raise StoreInUse(
                f"cannot lock {place} on its file system, so a running broker cannot be ruled out", file=place,
                advice="copy the store to a local file system",
            ) from error
        raise UnwritableFile(f"cannot lock {place}: {error.strerror}", file=place) from error
