"""Temporary folders and files that name their owner, so that the next run removes what a killed run left.

A process that is killed by SIGKILL removes nothing. Each name therefore contains the owner: the boot and the space of
process numbers (a container has its own), the number of the process, and its start time, as numbers are used again.
Only owners of this boot and this space can be judged; what others left stays.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "rmqtx-"
_OWNER = r"(?P<place>[0-9a-f]{8})-(?P<process>\d+)-(?P<start>\d+)"
_FOLDER = re.compile(rf"{_PREFIX}(?:[a-z]+-)?{_OWNER}-\w+")
_FILE_END = re.compile(rf"{_OWNER}-[0-9a-f]+\.tmp")
#: The number of the field with the start time in /proc/PID/stat, after the name of the program.
_START_FIELD = 19


class RunFolder(tempfile.TemporaryDirectory[str]):
    """A temporary folder of this process, which also removes folders of dead runs beside it.

    `kind`: a word of its name, a to z. `directory`: where it is made; None: where temporary files are.
    """

    def __init__(self, kind: str = "", directory: str | None = None, *, ignore_cleanup_errors: bool = False) -> None:
        prefix = folder_prefix(kind, directory)
        super().__init__(prefix=prefix, dir=directory, ignore_cleanup_errors=ignore_cleanup_errors)


def folder_prefix(kind: str = "", directory: str | None = None) -> str:
    """Return the begin of the name of a temporary folder of this process; remove folders of dead runs there."""
    remove_dead_folders(Path(directory or tempfile.gettempdir()))
    return f"{_PREFIX}{kind}{'-' if kind else ''}{owner()}-"


@contextmanager
def temporary_files_in(directory: str | None) -> Iterator[None]:
    """Create temporary files of this process in a directory, if given, during the block."""
    before = tempfile.tempdir
    tempfile.tempdir = directory or before
    try:
        yield
    finally:
        tempfile.tempdir = before


def temporary_beside(file: Path) -> Path:
    """Return a name beside a file for its content while it is written; remove those that dead runs left for it."""
    remove_dead_files(file)
    return file.with_name(f".{file.name}.{owner()}-{os.urandom(4).hex()}.tmp")


def owner() -> str:
    """Return what identifies this process in names of files."""
    process = os.getpid()
    return f"{_place()}-{process}-{_own_start(process)}"


def is_dead(text: str) -> bool:
    """Whether a text of `owner` names a process that has ended for certain, of this boot and this space of numbers."""
    match = re.fullmatch(_OWNER, text)
    return match is not None and _has_ended(match)


def _has_ended(match: re.Match[str]) -> bool:
    start = int(match["start"])
    return bool(start) and match["place"] == _place() and _start_of(int(match["process"])) != start


def remove_dead_folders(directory: Path) -> None:
    """Remove the folders of dead runs of this user in a directory; what cannot be removed stays."""
    for name, match in _names(directory, _PREFIX, _FOLDER):
        path = directory / name
        if _has_ended(match) and _is_own(path) and path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)


def remove_dead_files(file: Path) -> None:
    """Remove the temporary files that dead runs left for a file."""
    begin = f".{file.name}."
    for name, match in _names(file.parent, begin, re.compile(re.escape(begin) + _FILE_END.pattern)):
        path = file.parent / name
        if _has_ended(match) and _is_own(path):
            with suppress(OSError):  # not a file: it stays
                path.unlink()


def _names(directory: Path, begin: str, pattern: re.Pattern[str]) -> list[tuple[str, re.Match[str]]]:
    try:
        # Each command looks here, and there may be thousands of names.
        names = [name for name in os.listdir(directory) if name.startswith(begin)]  # noqa: PTH208
    except OSError:
        return []
    matches = ((name, pattern.fullmatch(name)) for name in names)
    return [(name, match) for name, match in matches if match is not None]


def _is_own(path: Path) -> bool:
    """Whether a path is of this user: processes of others may be hidden, and so seem to have ended."""
    try:
        return path.lstat().st_uid == os.geteuid()
    except OSError:
        return False


@functools.cache
def _place() -> str:
    """Return what is different for another boot of a machine, and for another space of process numbers."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        space = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 -- the text of the link is not a path
    except OSError:  # no Linux: no name can be judged
        return "0" * 8
    return f"{zlib.crc32(f'{boot}{space}'.encode()):08x}"


@functools.lru_cache(maxsize=1)
def _own_start(process: int) -> int:
    """Return the start time of this process; by its number, because a forked process has another one."""
    return _start_of(process) or 0


def _start_of(process: int) -> int | None:
    """Return the start time of a process, in ticks since the boot; None if it has ended."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(errors="replace")
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[_START_FIELD])
