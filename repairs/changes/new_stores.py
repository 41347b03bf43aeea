"""New stores: a directory with a temporary name, which gets its name when everything in it is on disk.

Files are made full length and sparse: a segment of 1 GiB takes only the space of what is written.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rmqtx.readers.model.errors import BadRequest, UnwritableFile
from rmqtx.readers.model.findings import as_text
from rmqtx.readers.storage.places import is_uri
from rmqtx.repairs.changes.file_operations import UNFINISHED_SUFFIX, FileOperations, writing

#: Added to the name until the store is complete.
#: Called with bytes done, bytes in all.
Progress = Callable[[int, int], None]


@contextmanager
def new_store(target: str | os.PathLike[str], *, mode: int = 0o777) -> Iterator[Path]:
    """A directory to build a store in; it becomes `target` when the block ends, and is removed on an error.

    `mode`: its permissions, as for `mkdir`.
    Raises: BadRequest if the target exists and is not an empty directory; UnwritableFile.
    """
    place = Path(os.path.realpath(target))
    files = FileOperations()
    if os.path.lexists(place) and (not place.is_dir() or any(place.iterdir())):
        raise BadRequest(f"{as_text(place)} already exists", advice="give a directory that does not exist: --to DIR")
    if not place.parent.is_dir():
        raise BadRequest(f"{as_text(place.parent)} is not a directory", advice="create it first")
    building = place.with_name(place.name + UNFINISHED_SUFFIX)
    _make(building, mode)
    try:
        with writing(place):
            yield building
        _sync(building, files)
        files.rename(building, place)
        files.sync_directory(place.parent)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise


def _make(place: Path, mode: int) -> None:
    """Create a directory that no other process uses. Raises: BadRequest if it exists; UnwritableFile."""
    try:
        with writing(place):
            place.mkdir(mode=mode)
    except UnwritableFile as error:
        if not place.exists():
            raise
        raise BadRequest(
            f"{as_text(place)} exists: another rmqtx process is writing it, or was interrupted",
            advice="if no rmqtx process is running, remove it and run the command again",
        ) from error


def _sync(root: Path, files: FileOperations) -> None:
    for directory, _, names in os.walk(root):
        for name in names:
            files.sync_file(Path(directory) / name)
        files.sync_directory(Path(directory))


def refuse_within(
    target: str | os.PathLike[str], root: str | os.PathLike[str], commit_log_directories: Sequence[str] = ()
) -> None:
    """Refuse a new store within another store, or around one. Raises: BadRequest."""
    place = Path(os.path.realpath(target))
    for directory in (os.fspath(root), *commit_log_directories):
        other = Path(os.path.realpath(directory))
        if not is_uri(directory) and (place.is_relative_to(other) or other.is_relative_to(place)):
            raise BadRequest(
                f"one of {as_text(place)} and the store {as_text(root)} contains the other",
                advice="give another directory",
            )


def write_at(path: Path, size_bytes: int, position_bytes: int, data: bytes) -> None:
    """Write to a file, which is created full length and sparse if it is missing. Raises: OSError."""
    is_new = not path.exists()
    if is_new:
        path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb" if is_new else "r+b") as file:
        if is_new:
            file.truncate(size_bytes)
        file.seek(position_bytes)
        file.write(data)
