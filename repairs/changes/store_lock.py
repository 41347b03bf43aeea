"""The lock of a store, taken as a broker takes it and held during a change.

A broker takes an exclusive POSIX lock on byte 0 of `lock` at its start, after recovery of its log, and keeps it until
it ends. The lock of rmqtx conflicts with it, but belongs to the open file (Linux, F_OFD_SETLK): a POSIX lock is
released as soon as the process closes any other descriptor of the file, which every reading of the store does.

A store that had no `lock` (copies, brokers before 4.0) has none again afterwards, unless another process has opened it
meanwhile: a broker opens the file when it begins to start, and locks it later.

A broker before 4.0 takes no lock, but it maps the files of its log into memory. A broker that stopped cleanly has
removed `abort`, so only a store with that file needs this test. The test covers the processes of this machine, and can
read only those of its own user: a Java process of another user is reported.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rmqtx.readers.model.errors import NotAStore, StoreInUse, UnsafeStore, UnwritableFile
from rmqtx.readers.store.store import OWN_LOCKS, OWN_PREFIX, Store, lock_holder
from rmqtx.repairs.changes.file_operations import open_lock_file

_BUSY = (errno.EAGAIN, errno.EACCES)
_WITHOUT_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
_PROCESSES = Path("/proc")
#: How often a lock is opened again that its maker removed meanwhile.
_TRIES = 5
_guard = threading.RLock()
_held: set[tuple[int, int]] = set()
#: Locks held by this process, of stores that had none before.
_new: set[tuple[int, int]] = set()
_Identity = tuple[int, int, int]


@contextmanager
def store_locked(root: str | os.PathLike[str]) -> Iterator[None]:
    """Lock a store against brokers and other rmqtx processes while the block runs; can be nested within a process.

    Raises: StoreInUse where a broker runs, NotAStore, UnwritableFile.
    """
    place = Path(os.path.realpath(root)) / "lock"
    if not place.parent.is_dir():
        raise NotAStore(f"{os.fspath(root)} is not a directory", file=root)
    with _guard:
        is_locked_here = _known(place) is not None
    if is_locked_here:
        yield
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


def has_new_lock(root: str | os.PathLike[str]) -> bool:
    """Whether a store, which this process has locked, had no `lock` before."""
    with _guard:
        return _known(Path(os.path.realpath(root)) / "lock") in _new


def leave_no_lock(root: str | os.PathLike[str]) -> None:
    """Have the `lock` of a store, which this process has locked, removed with its release.

    One with content stays (`_remove`): a broker from 4.0 on has written it.
    """
    place = Path(os.path.realpath(root)) / "lock"
    with _guard:
        identity = _known(place)
        if identity is not None:
            _new.add(identity)


def _known(place: Path) -> tuple[int, int] | None:
    """Identity of a lock that this process already holds; None if it does not."""
    try:
        identity = _identity_of(place.stat())
    except OSError:
        return None
    return identity if identity in _held else None


def _open_to_read(place: Path) -> tuple[int, bool]:
    try:
        return os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), False
    except OSError as error:
        raise UnwritableFile(f"cannot open {place}: {error.strerror}", file=place) from error


@contextmanager
def _locked(place: Path, opened: Callable[[Path], tuple[int, bool]], kind: int) -> Iterator[None]:
    descriptor, is_new = _opened_and_taken(place, opened, kind)
    try:
        identity = _identity_of(os.fstat(descriptor))
        with _guard:
            _held.add(identity)
            OWN_LOCKS.add(identity)
            if is_new:
                _new.add(identity)
        try:
            yield
        finally:
            with _guard:
                _held.discard(identity)
                OWN_LOCKS.discard(identity)
                is_new = identity in _new
                _new.discard(identity)
            if is_new:
                _remove(place, identity)
    finally:
        os.close(descriptor)


def _opened_and_taken(
    place: Path, opened: Callable[[Path], tuple[int, bool]], kind: int
) -> tuple[int, bool]:
    """Return the descriptor of the lock, which is held, and whether the file is new.

    Raises: StoreInUse, UnwritableFile.
    """
    for _ in range(_TRIES):
        descriptor, is_new = opened(place)
        try:
            _require_file(descriptor, place)
            _take(descriptor, place, kind)
        except BaseException:
            os.close(descriptor)
            raise
        if _is_at(place, _identity_of(os.fstat(descriptor))):
            return descriptor, is_new
        os.close(descriptor)  # another rmqtx process has removed it since
    raise StoreInUse(
        f"{place.parent} is in use: other processes make and remove its lock", file=place.parent,
        advice="wait until the other rmqtx process has ended",
    )


def _require_file(descriptor: int, place: Path) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise UnwritableFile(
            f"{place} is not a file, so it is not a broker's lock", file=place, advice="remove it"
        )


def _remove(place: Path, identity: tuple[int, int]) -> None:
    """Remove a lock that is held and was new, unless another process has it open.

    That process could lock it later without any other process noticing it. The file is moved first, so that none opens
    it in between.
    """
    aside = place.with_name(f"{OWN_PREFIX}lock-{os.getpid()}")
    with suppress(OSError):
        if not _is_at(place, identity) or place.stat().st_size:
            return
        place.rename(aside)
        try:
            if _may_be_open_elsewhere(identity):
                place.hardlink_to(aside)
        finally:
            aside.unlink()


def _may_be_open_elsewhere(identity: tuple[int, int]) -> bool:
    """Whether another process of this machine has a lock open; also where that cannot be found out."""
    if not _PROCESSES.is_dir():
        return True
    # Names, not paths: a host has tens of thousands of open files, and each as a Path costs ten times its look-up.
    for process in list(os.scandir(_PROCESSES)):
        if not process.name.isdecimal() or int(process.name) == os.getpid():
            continue
        try:
            files = list(os.scandir(f"{process.path}/fd"))
        except PermissionError:
            if command_of(Path(process)) == "java":
                return True
            continue
        except OSError:  # it has ended meanwhile
            continue
        for file in files:
            with suppress(OSError):
                if "lock" in os.readlink(file.path) and _identity_of(file.stat()) == identity:  # noqa: PTH115
                    return True
    return False


def _is_at(place: Path, identity: tuple[int, int]) -> bool:
    try:
        return _identity_of(place.stat()) == identity
    except OSError:
        return False


def _identity_of(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


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


def require_not_mapped(store: Store, processes: Path = _PROCESSES) -> None:
    """Refuse a store whose log a process has mapped, or a Java process of another user may have mapped.

    `processes`: the directory where the kernel lists processes.
    Raises: StoreInUse; UnsafeStore where this is unknown.
    """
    if not store.aborted:
        return
    if not processes.is_dir():
        raise UnsafeStore(
            f"cannot find out on this system whether the broker of {store.root} runs: it is older than 4.0, which "
            "takes no lock, and there is a file abort",
            advice="copy the store, and act on the copy on a machine with /proc",
        )
    wanted = set(_identities(store))
    hidden = []
    for directory in processes.iterdir():
        if not directory.name.isdecimal() or int(directory.name) == os.getpid():
            continue
        try:
            text = (directory / "maps").read_text(errors="replace")
        except PermissionError:
            if command_of(directory) == "java":
                hidden.append(directory.name)
            continue
        except OSError:  # it has ended meanwhile
            continue
        if wanted & set(_mapped(text)):
            raise StoreInUse(
                f"{store.root} is in use by process {directory.name}",
                advice="stop its broker first, or act live: -n HOST:PORT",
            )
    if hidden:
        raise UnsafeStore(
            f"cannot find out whether process {hidden[0]} (java of another user) runs on {store.root}: its broker is "
            "older than 4.0, which takes no lock, and there is a file abort",
            advice="run rmqtx as the broker's user, or as root",
        )


def _identities(store: Store) -> Iterator[_Identity]:
    for segment in store.commit_log:
        status = Path(segment.file).stat()
        yield os.major(status.st_dev), os.minor(status.st_dev), status.st_ino


def _mapped(text: str) -> Iterator[_Identity]:
    """The files of a process's memory map: address, permissions, offset, device, inode, path."""
    for line in text.splitlines():
        parts = line.split(maxsplit=5)
        if len(parts) < 6 or parts[4] == "0":
            continue
        major, _, minor = parts[3].partition(":")
        yield int(major, 16), int(minor, 16), int(parts[4])


def command_of(directory: Path) -> str:
    """Return the name of a process's program, by its directory in /proc; empty if it is unknown."""
    try:
        return (directory / "comm").read_text(errors="replace").strip()
    except OSError:
        return ""
