"""A copy of a store that is then changed: by reference where the file system can, else byte by byte, holes as holes.

It is made under a temporary name beside its place, and gets its name when the copy and every change are on disk; so a
store with the final name is complete. Unchanged files keep their times, so a comparison by names, lengths and times
finds exactly the changed files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rmqtx.readers.model.errors import BadRequest, FileChanged, UnwritableFile
from rmqtx.repairs.changes.file_copies import copy_file
from rmqtx.repairs.changes.file_operations import FileOperations, attributes_of, writing
from rmqtx.repairs.changes.fingerprints import directories_below, files_below
from rmqtx.repairs.changes.new_stores import Progress, new_store, refuse_within
from rmqtx.repairs.changes.store_lock import store_shared

#: Directory in the copy for segments from outside the store's root: a broker's default.
COMMIT_LOG = "commitlog"



@contextmanager
def cloned(
    root: str | os.PathLike[str], target: str | os.PathLike[str], *, commit_log_directories: Sequence[str] = (),
    files: FileOperations | None = None, progress: Progress | None = None,
) -> Iterator[Path]:
    """A copy of a store, to change while the block runs; it gets its name when the block ends without an error.

    `commit_log_directories`: directories of the log outside the root; their segments are copied to `commitlog/`.
    `progress`: called with bytes done, bytes in all.
    Raises: StoreInUse, FileChanged if another process writes to the store meanwhile; UnwritableFile; BadRequest for a
            target that exists, or is inside the store. The copy is removed then.
    """
    source, place = Path(os.path.realpath(root)), Path(os.path.realpath(target))
    refuse_within(place, source, commit_log_directories)
    with store_shared(source), new_store(place, mode=0o700, files=files) as unfinished:
        parts = _parts(source, commit_log_directories)
        _check_room(parts, unfinished.parent)
        _copy(source, unfinished, parts, progress)
        _check_unchanged(source, commit_log_directories, parts)
        yield unfinished


# -- what is copied ---------------------------------------------------------------------------------------------------

#: Path in the copy, where the file is, its status when it was listed.
_Part = tuple[str, Path, os.stat_result]


def _parts(source: Path, commit_log_directories: Sequence[str]) -> list[_Part]:
    """Every file with its path in the copy.

    Raises: BadRequest where two segments have one name.
    """
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
    """Copy the files, and every directory, including empty ones.

    Raises: UnwritableFile, FileChanged.
    """
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
    attributes = attributes_of(one)
    other.chmod(attributes.mode)
    if os.geteuid() == 0:
        os.chown(other, attributes.user, attributes.group)
    if attributes.modified_ns is not None:
        os.utime(other, ns=(attributes.modified_ns, attributes.modified_ns))
