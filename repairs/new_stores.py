"""New stores: a directory that gets its name when everything in it is on the disk, and before that says that it is not.

Files are made full length and sparse: a segment of a gibibyte costs what is written into it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from readers.errors import BadRequest, UnreadableFile, UnwritableFile
from readers.findings import as_text
from readers.partition_files import on_disk
from readers.places import is_uri
from readers.store import Store

UNFINISHED_SUFFIX = ".rmqtx-unfinished"
_COPIED_BYTES = 4 << 20


@contextmanager
def new_store(target: Path) -> Iterator[Path]:
    """A directory to build a store in; it becomes `target` at the end, and is removed where that is not reached.

    Raises: BadRequest where the target is there already, and is not an empty directory; UnwritableFile.
    """
    target = target.absolute()
    if target.is_dir() and not target.is_symlink() and not any(target.iterdir()):
        target.rmdir()
    if target.exists() or target.is_symlink():
        raise BadRequest(f"{as_text(target)} is there already", advice="--to names a directory that is not there yet")
    building = target.with_name(target.name + UNFINISHED_SUFFIX)
    try:
        building.mkdir(parents=True)
    except FileExistsError as error:
        raise BadRequest(
            f"{as_text(building)} is there: another run works on it, or was killed", advice="remove it, if nobody does"
        ) from error
    except OSError as error:
        raise unwritable(building, error) from error
    try:
        yield building
        on_disk_whole(building)
        building.rename(target)
        on_disk(target.parent)
    except OSError as error:
        shutil.rmtree(building, ignore_errors=True)
        raise unwritable(target, error) from error
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise


def unwritable(path: Path, error: OSError) -> UnwritableFile:
    """That something cannot be written, in one line."""
    name = as_text(error.filename or path)
    return UnwritableFile(f"cannot write {name}: {error.strerror or error}", file=name)


def on_disk_whole(root: Path) -> None:
    """Every file and directory below a directory is durable.

    Raises: OSError.
    """
    for directory, _, files in os.walk(root):
        for name in files:
            on_disk(Path(directory) / name)
        on_disk(Path(directory))


def refuse_within(target: Path, stores: Iterable[Store]) -> None:
    """A new store lies in no other one, nor the other way round.

    Raises: BadRequest.
    """
    place = Path(os.path.realpath(target))
    for store in stores:
        for directory in (store.root, *store.commit_log_directories):
            root = Path(os.path.realpath(directory))
            if not is_uri(directory) and (place.is_relative_to(root) or root.is_relative_to(place)):
                raise BadRequest(f"{as_text(target)} and the store {store.root} lie in each other")


def copy_tree(source: Path, target: Path, without: frozenset[str] = frozenset()) -> None:
    """Copy what lies in a directory into another one; `without`: names right below `source` that are left out.

    Holes stay holes; times and modes are kept. What is no file, directory or link is left out.
    Raises: UnreadableFile; OSError where the target cannot be written.
    """
    target.mkdir(parents=True, exist_ok=True)
    try:
        entries = sorted(os.scandir(source), key=lambda entry: entry.name)
    except OSError as error:
        raise UnreadableFile(f"cannot read {as_text(source)}: {error.strerror}", file=as_text(source)) from error
    for entry in entries:
        if entry.name in without:
            continue
        place = target / entry.name
        if entry.is_dir():
            copy_tree(Path(entry.path), place)
        elif entry.is_file():
            copy_file(Path(entry.path), place)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file, its holes as holes.

    Raises: UnreadableFile; OSError where the target cannot be written.
    """
    try:
        reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise UnreadableFile(f"cannot open {as_text(source)}: {error.strerror}", file=as_text(source)) from error
    try:
        about = os.fstat(reading)
        with target.open("wb") as writing:
            for begin, end in _data_ranges(reading, about.st_size):
                _copy_range(reading, writing.fileno(), begin, end, source)
            writing.truncate(about.st_size)
        os.utime(target, ns=(about.st_atime_ns, about.st_mtime_ns))
        target.chmod(about.st_mode & 0o7777)
    finally:
        os.close(reading)


def _data_ranges(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    position = 0
    while position < size:
        try:
            begin = os.lseek(descriptor, position, os.SEEK_DATA)
            position = os.lseek(descriptor, begin, os.SEEK_HOLE)
        except OSError:  # no data behind (ENXIO)
            return
        yield begin, min(position, size)


def _copy_range(reading: int, writing: int, begin: int, end: int, source: Path) -> None:
    while begin < end:
        try:
            data = os.pread(reading, min(_COPIED_BYTES, end - begin), begin)
        except OSError as error:
            raise UnreadableFile(f"cannot read {as_text(source)}: {error.strerror}", file=as_text(source)) from error
        if not data:
            return
        written = 0
        while written < len(data):
            written += os.pwrite(writing, data[written:], begin + written)
        begin += len(data)


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
