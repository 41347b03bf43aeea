"""A copy of a store that is then changed: by reference where the file system can, else byte by byte, holes as holes.

It is made under another name beside its place, and gets its name when it and every change in it is on the disk; so what
bears the name is whole. Files that are not changed keep their times, so a comparison by names, lengths and times finds
just what was.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from readers.errors import BadRequest, FileChanged, UnreadableFile, UnwritableFile
from repairs.edits import data_ranges
from repairs.file_operations import CHUNK_BYTES, FileOperations, attributes_of, told
from repairs.fingerprints import directories_below, files_below
from repairs.store_lock import store_shared

#: Added to the name as long as the copy is not complete.
UNFINISHED_SUFFIX = ".unfinished"
#: Where segments of a commit log go that lies outside of the store's root: there a broker looks by default.
COMMIT_LOG = "commitlog"

#: ioctl that makes one file's blocks another's too; btrfs, XFS, bcachefs. Source: linux/fs.h.
_FICLONE = 0x40049409
#: A copy by reference or by the kernel is not offered here.
_NOT_OFFERED = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.ETXTBSY)

Progress = Callable[[int, int], None]


@contextmanager
def cloned(
    root: str | os.PathLike[str], target: str | os.PathLike[str], *, commit_log_directories: Sequence[str] = (),
    files: FileOperations | None = None, progress: Progress | None = None,
) -> Iterator[Path]:
    """A copy of a store, to be changed while the block runs; it gets its name when the block ends without an error.

    `commit_log_directories`: where the log is if it is outside of the root; its segments come into `commitlog/`.
    `progress`: called with bytes done, bytes in all.
    Raises: StoreInUse, FileChanged where somebody writes into the store meanwhile; UnwritableFile; BadRequest for a
            target that is there already, or is inside the store. Nothing is left of the copy then.
    """
    source, place = Path(os.path.realpath(root)), Path(os.path.realpath(target))
    files = files or FileOperations()
    _check_target(source, place)
    unfinished = place.with_name(place.name + UNFINISHED_SUFFIX)
    with store_shared(source):
        parts = _parts(source, commit_log_directories)
        _check_room(parts, place.parent)
        _make_unfinished(unfinished)
        try:
            _copy(source, unfinished, parts, progress)
            _check_unchanged(source, commit_log_directories, parts)
            yield unfinished
            _sync_directories(unfinished, files)
            files.rename(unfinished, place)
            files.sync_directory(place.parent)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise


def _make_unfinished(place: Path) -> None:
    """The directory of a copy, from here on ours alone.

    Raises: BadRequest where it is there; UnwritableFile.
    """
    try:
        with told(place):
            place.mkdir(mode=0o700)
    except UnwritableFile as error:
        if not place.exists():
            raise
        raise BadRequest(
            f"{place} is there: another rmqtx is making it, or was interrupted",
            advice="if none is, remove it and try again",
        ) from error


def _check_target(source: Path, place: Path) -> None:
    if place.is_relative_to(source) or source.is_relative_to(place):
        raise BadRequest(f"{place} and the store {source} lie in each other", advice="name another directory")
    if os.path.lexists(place) and (not place.is_dir() or any(place.iterdir())):
        raise BadRequest(f"{place} is there already and is not empty", advice="name a directory that is not there")
    if not place.parent.is_dir():
        raise BadRequest(f"{place.parent} is no directory", advice="make it first")


# -- what is copied ---------------------------------------------------------------------------------------------------

#: Path in the copy, where the file is, its status when it was listed.
_Part = tuple[str, Path, os.stat_result]


def _parts(source: Path, commit_log_directories: Sequence[str]) -> list[_Part]:
    """Every file with its path in the copy.

    Raises: BadRequest where two segments have one name.
    """
    parts = {path: (path, file, status) for path, file, status in files_below(source)}
    lock = source / "lock"
    if lock.is_file():  # nobody holds one that lies in a copy
        parts["lock"] = ("lock", lock, lock.stat())
    for directory in _outside(source, commit_log_directories):
        for name, file, status in files_below(directory):
            path = f"{COMMIT_LOG}/{name}"
            if path in parts:
                raise BadRequest(f"{file} and {parts[path][1]} would be one file in the copy")
            parts[path] = (path, file, status)
    return [parts[path] for path in sorted(parts)]


def _outside(source: Path, directories: Sequence[str]) -> list[Path]:
    places = [Path(os.path.realpath(directory)) for directory in directories]
    return [place for place in places if not place.is_relative_to(source)]


def _check_room(parts: Sequence[_Part], directory: Path) -> None:
    """Refuse before a byte is copied what cannot fit; nobody knows before whether it can be copied by reference.

    Raises: UnwritableFile.
    """
    if any(status.st_dev == directory.stat().st_dev for _, _, status in parts):
        return  # blocks may be shared; where they are not, the disk says so
    needed_bytes = sum(status.st_blocks * 512 for _, _, status in parts)
    free = os.statvfs(directory)
    free_bytes = free.f_bavail * free.f_frsize
    if needed_bytes > free_bytes:
        raise UnwritableFile(
            f"{directory} has room for {free_bytes} bytes, the store takes {needed_bytes}", file=directory,
            advice="make room or name a directory elsewhere",
        )


def _check_unchanged(source: Path, commit_log_directories: Sequence[str], parts: Sequence[_Part]) -> None:
    """Refuse a copy of what was written to meanwhile: its files would be of different times.

    Raises: FileChanged.
    """
    def stamps(some: Sequence[_Part]) -> dict[str, tuple[int, int]]:
        return {path: (status.st_size, status.st_mtime_ns) for path, _, status in some}

    before, now = stamps(parts), stamps(_parts(source, commit_log_directories))
    changed = sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))
    if changed:
        raise FileChanged(
            f"{source} was written to while it was copied: {changed[0]}", file=source / changed[0],
            advice="stop its broker, then try again",
        )


# -- copying ----------------------------------------------------------------------------------------------------------


def _copy(source: Path, target: Path, parts: Sequence[_Part], progress: Progress | None) -> None:
    """Copy the files, and every directory, empty ones too.

    Raises: UnwritableFile, FileChanged.
    """
    total_bytes = sum(status.st_size for _, _, status in parts)
    done_bytes = 0
    directories = dict(directories_below(source))
    with told(target):
        for prefix in filter(None, directories):
            (target / prefix).mkdir()
        for path, file, status in parts:
            copy = target / path
            if not copy.parent.exists():  # a commit log from outside
                copy.parent.mkdir(parents=True)
                directories[f"{copy.parent.relative_to(target)}/"] = file.parent
            _copy_file(file, copy, status)
            done_bytes += status.st_size
            if progress is not None:
                progress(done_bytes, total_bytes)
        for prefix, directory in reversed(directories.items()):
            _like(directory, target / prefix)


def _copy_file(file: Path, copy: Path, status: os.stat_result) -> None:
    with _opened(file) as reading:
        writing = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            if not _shared(reading, writing):
                os.ftruncate(writing, status.st_size)
                for begin, end in data_ranges(reading, 0, status.st_size):
                    _copy_range(reading, writing, begin, end)
            if os.fstat(writing).st_size != status.st_size:
                raise FileChanged(f"{file} became another length while it was copied", file=file)
            os.fchmod(writing, status.st_mode & 0o7777)
            if os.geteuid() == 0:
                os.fchown(writing, status.st_uid, status.st_gid)
            os.utime(writing, ns=(status.st_atime_ns, status.st_mtime_ns))
            os.fsync(writing)
        finally:
            os.close(writing)


@contextmanager
def _opened(file: Path) -> Iterator[int]:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise FileChanged(f"{file} vanished while the store was copied", file=file) from error
    except OSError as error:
        raise UnreadableFile(f"cannot read {file}: {error.strerror}", file=file) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _shared(reading: int, writing: int) -> bool:
    """Have the copy share its blocks with the original; gives whether the file system can."""
    try:
        fcntl.ioctl(writing, _FICLONE, reading)
    except OSError as error:
        if error.errno in _NOT_OFFERED:
            return False
        raise
    return True


def _copy_range(reading: int, writing: int, begin: int, end: int) -> None:
    """Copy a part of a file to the same place in another; fewer bytes where the file became shorter."""
    in_kernel = hasattr(os, "copy_file_range")
    while begin < end:
        if in_kernel:
            try:
                count_bytes = os.copy_file_range(reading, writing, min(end - begin, 1 << 30), begin, begin)
            except OSError as error:
                if error.errno not in _NOT_OFFERED:
                    raise
                in_kernel = False
                continue
        else:
            data = os.pread(reading, min(end - begin, CHUNK_BYTES), begin)
            count_bytes = os.pwrite(writing, data, begin) if data else 0
        if count_bytes == 0:
            return
        begin += count_bytes


def _like(one: Path, other: Path) -> None:
    """Give a directory the permissions, owner and times of another."""
    attributes = attributes_of(one)
    other.chmod(attributes.mode)
    if os.geteuid() == 0:
        os.chown(other, attributes.user, attributes.group)
    if attributes.modified_ns is not None:
        os.utime(other, ns=(attributes.modified_ns, attributes.modified_ns))


def _sync_directories(root: Path, files: FileOperations) -> None:
    for _, directory in directories_below(root):
        files.sync_directory(directory)
