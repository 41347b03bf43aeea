"""A copy of a store that is then changed: by reference where the file system can, else byte by byte, holes as holes.

It is made under a temporary name beside its place, and gets its name when the copy and every change are on disk; so a
store with the final name is complete. Unchanged files keep their times and modes, so a comparison by names, lengths and
times finds exactly the changed files.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rmqtx.readers.model.errors import BadRequest, FileChanged, UnreadableFile, UnwritableFile
from rmqtx.readers.model.findings import as_text
from rmqtx.readers.storage.places import naming_unreadable
from rmqtx.readers.store.store_roots import leads_out
from rmqtx.repairs.changes.edits import data_ranges, led_out
from rmqtx.repairs.changes.file_operations import CHUNK_BYTES, writing
from rmqtx.repairs.changes.fingerprints import directories_below, files_below
from rmqtx.repairs.changes.new_stores import Progress, new_store, refuse_within
from rmqtx.repairs.changes.store_lock import store_shared

#: ioctl that shares one file's blocks with another file; btrfs, XFS, bcachefs. Source: linux/fs.h.
_FICLONE = 0x40049409
#: Errors of a system that does not support a copy by reference or by the kernel.
_NOT_OFFERED = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.ETXTBSY)
#: Directory in the copy for segments from outside the store's root: a broker's default.
COMMIT_LOG = "commitlog"


def copy_tree(
    source: Path, target: Path, without: frozenset[str] = frozenset(), *, root: Path | None = None
) -> None:
    """Copy the content of a directory to another one; `without`: names directly in `source` that are skipped.

    `root`: the store that contains `source`; None if `source` is the store. Links that lead out of it are not followed,
    and a link to a directory within it is skipped, because that directory is copied at its own place. Anything that is
    neither file nor directory is skipped.
    Raises: UnsafeStore for a link that leads out; UnreadableFile, FileChanged; OSError where the target cannot be
            written.
    """
    top = root or source
    real = Path(os.path.realpath(top))
    _copy_tree(real / source.relative_to(top), target, without, real)


def _copy_tree(source: Path, target: Path, without: frozenset[str], root: Path) -> None:
    """The same below a resolved root; `source` is the path below it."""
    target.mkdir(parents=True, exist_ok=True)
    with naming_unreadable(as_text(source)):
        entries = sorted(os.scandir(source), key=lambda entry: entry.name)
    for entry in entries:
        if entry.name in without:
            continue
        place = target / entry.name
        if entry.is_symlink():
            if leads_out(Path(entry.path), root):
                raise led_out(Path(entry.path))
            if entry.is_dir() and Path(os.path.realpath(entry.path)).is_relative_to(root):
                continue
        if entry.is_dir():
            _copy_tree(Path(entry.path), place, frozenset(), root)
        elif entry.is_file():
            copy_file(Path(entry.path), place, entry.stat())


def copy_file(file: Path, copy: Path, status: os.stat_result) -> None:
    """Copy a file to a place where there is none; `status`: its status when it was listed.

    Raises: UnreadableFile; FileChanged if its length has changed; OSError if the copy cannot be written.
    """
    with _opened(file) as reading:
        writing = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            if not _shared(reading, writing):
                os.ftruncate(writing, status.st_size)
                for begin, end in data_ranges(reading, 0, status.st_size):
                    _copy_range(reading, writing, begin, end, file)
            if os.fstat(writing).st_size != status.st_size:
                raise FileChanged(f"the length of {file} changed while it was copied", file=file)
            os.fchmod(writing, status.st_mode & 0o7777)
            if os.geteuid() == 0:
                os.fchown(writing, status.st_uid, status.st_gid)
            os.utime(writing, ns=(status.st_atime_ns, status.st_mtime_ns))
        finally:
            os.close(writing)


@contextmanager
def _opened(file: Path) -> Iterator[int]:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise FileChanged(f"{file} was removed while the store was copied", file=file) from error
    except OSError as error:
        raise UnreadableFile(f"cannot read {file}: {error.strerror}", file=file) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _shared(reading: int, writing: int) -> bool:
    """Share the blocks of the original with the copy, and return whether the file system supports it."""
    try:
        fcntl.ioctl(writing, _FICLONE, reading)
    except OSError as error:
        if error.errno in _NOT_OFFERED:
            return False
        raise
    return True


def _copy_range(reading: int, writing: int, begin: int, end: int, file: Path) -> None:
    """Copy a part of a file to the same place in another; fewer bytes if the file became shorter."""
    in_kernel = hasattr(os, "copy_file_range")
    while begin < end:
        if in_kernel:
            try:
                count_bytes = os.copy_file_range(reading, writing, min(end - begin, 1 << 30), begin, begin)
            except OSError as error:
                if error.errno not in (*_NOT_OFFERED, errno.EIO):  # EIO: of either disk, the copy by bytes shows which
                    raise
                in_kernel = False
                continue
        else:
            data = _read(reading, begin, min(end - begin, CHUNK_BYTES), file)
            count_bytes = os.pwrite(writing, data, begin) if data else 0
        if count_bytes == 0:
            return
        begin += count_bytes


def _read(reading: int, position_bytes: int, length_bytes: int, file: Path) -> bytes:
    with naming_unreadable(as_text(file)):
        return os.pread(reading, length_bytes, position_bytes)


@contextmanager
def cloned(
    root: str | os.PathLike[str], target: str | os.PathLike[str], *, commit_log_directories: Sequence[str] = (),
    progress: Progress | None = None,
) -> Iterator[Path]:
    """A copy of a store, to change while the block runs; it gets its name when the block ends without an error.

    `commit_log_directories`: directories of the log outside the root; their segments are copied to `commitlog/`.
    `progress`: called with bytes done, bytes in all.
    Raises: StoreInUse, FileChanged if another process writes to the store meanwhile; UnwritableFile; BadRequest for a
            target that exists, or is inside the store. The copy is removed then.
    """
    source, place = Path(os.path.realpath(root)), Path(os.path.realpath(target))
    refuse_within(place, source, commit_log_directories)
    with store_shared(source), new_store(place, mode=0o700) as unfinished:
        parts = _parts(source, commit_log_directories)
        _check_room(parts, unfinished.parent)
        _copy(source, unfinished, parts, progress)
        _check_unchanged(source, commit_log_directories, parts)
        yield unfinished


# -- what is copied ---------------------------------------------------------------------------------------------------

#: Path in the copy, where the file is, its status when it was listed.
_Part = tuple[str, Path, os.stat_result]


def _parts(source: Path, commit_log_directories: Sequence[str]) -> list[_Part]:
    """Every file with its path in the copy. Raises: BadRequest where two segments have one name."""
    parts = {path: (path, file, status) for path, file, status in files_below(source)}
    lock = source / "lock"
    if lock.is_file():  # no process holds the lock of a copy
        parts["lock"] = ("lock", lock, lock.stat())
    for directory in _outside(source, commit_log_directories):
        for name, file, status in files_below(directory):
            path = f"{COMMIT_LOG}/{name}"
            if path in parts:
                raise BadRequest(f"{file} and {parts[path][1]} would have the same path in the copy")
            parts[path] = (path, file, status)
    return [parts[path] for path in sorted(parts)]


def _outside(source: Path, directories: Sequence[str]) -> list[Path]:
    places = [Path(os.path.realpath(directory)) for directory in directories]
    return [place for place in places if not place.is_relative_to(source)]


def _check_room(parts: Sequence[_Part], directory: Path) -> None:
    """Refuse a copy that cannot fit, before a byte is copied; on the same file system it may share blocks.

    Raises: UnwritableFile.
    """
    if any(status.st_dev == directory.stat().st_dev for _, _, status in parts):
        return  # blocks may be shared; if they are not, a write fails
    needed_bytes = sum(status.st_blocks * 512 for _, _, status in parts)
    free = os.statvfs(directory)
    free_bytes = free.f_bavail * free.f_frsize
    if needed_bytes > free_bytes:
        raise UnwritableFile(
            f"{directory} has {free_bytes} bytes free, and the store needs {needed_bytes}", file=directory,
            advice="free some space, or give a directory on another file system",
        )


def _check_unchanged(source: Path, commit_log_directories: Sequence[str], parts: Sequence[_Part]) -> None:
    """Refuse a copy of a store that was written to meanwhile: its files would be of different times.

    Raises: FileChanged.
    """
    def stamps(some: Sequence[_Part]) -> dict[str, tuple[int, int]]:
        return {path: (status.st_size, status.st_mtime_ns) for path, _, status in some}

    before, now = stamps(parts), stamps(_parts(source, commit_log_directories))
    changed = sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))
    if changed:
        raise FileChanged(
            f"{source} was written to while it was copied: {changed[0]}", file=source / changed[0],
            advice="stop its broker, then run the command again",
        )


# -- copying ----------------------------------------------------------------------------------------------------------


def _copy(source: Path, target: Path, parts: Sequence[_Part], progress: Progress | None) -> None:
    """Copy the files, and every directory, including empty ones. Raises: UnwritableFile, FileChanged."""
    total_bytes = sum(status.st_size for _, _, status in parts)
    done_bytes = 0
    directories = dict(directories_below(source))
    with writing(target):
        for prefix in filter(None, directories):
            (target / prefix).mkdir()
        for path, file, status in parts:
            copy = target / path
            if not copy.parent.exists():  # a commit log from outside
                copy.parent.mkdir(parents=True)
                directories[f"{copy.parent.relative_to(target)}/"] = file.parent
            copy_file(file, copy, status)
            done_bytes += status.st_size
            if progress is not None:
                progress(done_bytes, total_bytes)
        for prefix, directory in reversed(directories.items()):
            _like(directory, target / prefix)


def _like(one: Path, other: Path) -> None:
    """Give a directory the permissions, owner and times of another."""
    status = one.stat()
    if os.geteuid() == 0:
        os.chown(other, status.st_uid, status.st_gid)
    other.chmod(status.st_mode & 0o7777)
    os.utime(other, ns=(status.st_mtime_ns, status.st_mtime_ns))
