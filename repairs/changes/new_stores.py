"""New stores: a directory that gets its name when everything in it is on the disk, and before that says that it is not.

Files are made full length and sparse: a segment of a gibibyte costs what is written into it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from readers.model.errors import BadRequest, UnwritableFile
from readers.model.findings import as_text
from readers.storage.places import is_uri
from repairs.changes.file_operations import FileOperations, told

#: Added to the name as long as the store is not complete.
UNFINISHED_SUFFIX = ".unfinished"
#: Called with bytes done, bytes in all.
Progress = Callable[[int, int], None]


@contextmanager
def new_store(
    target: str | os.PathLike[str], *, mode: int = 0o777, files: FileOperations | None = None
) -> Iterator[Path]:
    """A directory to build a store in; it becomes `target` at the end, and is removed where that is not reached.

    `mode`: who may look into it, as for `mkdir`.
    Raises: BadRequest where the target is there already, and is not an empty directory; UnwritableFile.
    """
    place = Path(os.path.realpath(target))
    files = files or FileOperations()
    if os.path.lexists(place) and (not place.is_dir() or any(place.iterdir())):
        raise BadRequest(f"{as_text(place)} is there already", advice="--to names a directory that is not there yet")
    if not place.parent.is_dir():
        raise BadRequest(f"{as_text(place.parent)} is no directory", advice="make it first")
    building = place.with_name(place.name + UNFINISHED_SUFFIX)
    _make(building, mode)
    try:
        with told(place):
            yield building
        _sync(building, files)
        files.rename(building, place)
        files.sync_directory(place.parent)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise


def _make(place: Path, mode: int) -> None:
    """A directory that is ours alone from here on.

    Raises: BadRequest where it is there; UnwritableFile.
    """
    try:
        with told(place):
            place.mkdir(mode=mode)
    except UnwritableFile as error:
        if not place.exists():
            raise
        raise BadRequest(
            f"{as_text(place)} is there: another rmqtx is making it, or was interrupted",
            advice="if none is, remove it and try again",
        ) from error


def _sync(root: Path, files: FileOperations) -> None:
    for directory, _, names in os.walk(root):
        for name in names:
            files.sync_file(Path(directory) / name)
        files.sync_directory(Path(directory))


def refuse_within(
    target: str | os.PathLike[str], root: str | os.PathLike[str], commit_log_directories: Sequence[str] = ()
) -> None:
    """A new store lies in no other one, nor the other way round.

    Raises: BadRequest.
    """
    place = Path(os.path.realpath(target))
    for directory in (os.fspath(root), *commit_log_directories):
        other = Path(os.path.realpath(directory))
        if not is_uri(directory) and (place.is_relative_to(other) or other.is_relative_to(place)):
            raise BadRequest(
                f"{as_text(place)} and the store {as_text(root)} lie in each other", advice="name another directory"
            )


def write_at(path: Path, size_bytes: int, position_bytes: int, data: bytes) -> None:
    """Write into a file that is made full length, sparse, if it is not there.

    Raises: OSError.
    """
    is_new = not path.exists()
    if is_new:
        path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb" if is_new else "r+b") as file:
        if is_new:
            file.truncate(size_bytes)
        file.seek(position_bytes)
        file.write(data)
