"""What the writers of folders share: an export, a folder of verdicts, and a table of verdicts that grows.

Data files have names `part-…` in folders like `day=2026-01-31`; what rmqtx keeps about them is below `_rmqtx`, which
readers of tables skip. A data file counts when a manifest names it: one that no manifest names is half written.
"""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rmqtx.readers.model.errors import BadRequest, UnreadableFile, UnwritableFile

if TYPE_CHECKING:
    from pyarrow import fs

#: The state of a folder; readers of tables skip names with this beginning.
STATE_DIRECTORY = "_rmqtx"
TEMPORARY_SUFFIX = ".tmp"
_LOCK = "lock"


def is_own_name(name: str) -> bool:
    """Whether a path below a folder has the form of a data file."""
    *directories, file = name.split("/")
    return file.startswith("part-") and not any(part in ("", ".", "..") or part.startswith("/") for part in directories)


def half_written(
    system: fs.FileSystem, top: str, names: Collection[str], before_ns: int | None = None
) -> Iterator[str]:
    """Yield the paths of data files that no manifest names: a run was killed before it could write the manifest.

    `names`: the files that manifests name, relative to the folder. `before_ns`: of an object store, only older ones.
    """
    is_local = system.type_name == "local"
    for path in _files_on_disk(top) if is_local else _objects(system, top, before_ns):
        name = path.removeprefix(f"{top}/")
        *directories, file = name.split("/")
        final = "/".join([*directories, file.removeprefix(".")])  # hidden while it is written
        if name not in names and is_own_name(final) and directories[:1] != [STATE_DIRECTORY]:
            yield path


def _files_on_disk(top: str) -> Iterator[str]:
    """Yield the files below a folder; links to other folders are not followed."""
    return (f"{place}/{file}" for place, _, files in os.walk(top) for file in files)


def _objects(system: fs.FileSystem, top: str, before_ns: int | None) -> Iterator[str]:
    from pyarrow.fs import FileSelector  # a journal imports this module, and opens no other file system

    for info in system.get_file_info(FileSelector(top, allow_not_found=True, recursive=True)):
        if info.is_file and (before_ns is None or info.mtime_ns < before_ns):
            yield info.path


@contextmanager
def locked(folder: Path, refused: BadRequest) -> Iterator[None]:
    """Lock a folder on a disk for a block. `refused`: the error if another run has the lock.

    Raises: BadRequest, OSError.
    """
    state = folder / STATE_DIRECTORY
    state.mkdir(parents=True, exist_ok=True)
    with open(state / _LOCK, "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise refused from None
        yield


def on_disk(path: Path) -> None:
    """Make the system write a file, or the names of a directory, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, facts: Mapping[str, Any]) -> None:
    """Write a small JSON file, completely or not at all."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}{TEMPORARY_SUFFIX}")
    with open(temporary, "w", encoding="utf-8") as stream:
        json.dump(facts, stream, ensure_ascii=True)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
    on_disk(path.parent)


@contextmanager
def writing(place: str) -> Iterator[None]:
    """Raise an error of the system or of Arrow in a block as UnwritableFile."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise UnwritableFile(f"cannot write {place}: {' '.join(str(error).split())}") from error


@contextmanager
def reading(place: str) -> Iterator[None]:
    """Raise an error of the system or of Arrow in a block as UnreadableFile."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise UnreadableFile(f"cannot read {place}: {' '.join(str(error).split())}", file=place) from error
