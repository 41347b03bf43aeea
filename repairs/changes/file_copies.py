"""Copies of files: by reference where the file system can, else byte by byte; holes, times and modes are kept."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rmqtx.readers.model.errors import FileChanged, UnreadableFile
from rmqtx.readers.model.findings import as_text
from rmqtx.readers.store.store_roots import leads_out
from rmqtx.repairs.changes.edits import data_ranges, led_out
from rmqtx.repairs.changes.file_operations import CHUNK_BYTES

#: ioctl that shares one file's blocks with another file; btrfs, XFS, bcachefs. Source: linux/fs.h.
_FICLONE = 0x40049409
#: Errors of a system that does not support a copy by reference or by the kernel.
_NOT_OFFERED = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.ETXTBSY)


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
    try:
        entries = sorted(os.scandir(source), key=lambda entry: entry.name)
    except OSError as error:
        raise UnreadableFile(f"cannot read {as_text(source)}: {error.strerror}", file=as_text(source)) from error
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
    try:
        return os.pread(reading, length_bytes, position_bytes)
    except OSError as error:
        raise UnreadableFile(f"cannot read {as_text(file)}: {error.strerror}", file=as_text(file)) from error
