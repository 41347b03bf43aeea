"""Edits: the steps of a change set applied to the existing files, each with its content before and after."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rmqtx.readers.model.errors import BadRequest, StoreChanged, UnsafeStore, UnwritableFile
from rmqtx.readers.model.findings import as_text
from rmqtx.readers.storage.places import naming_unreadable
from rmqtx.readers.store.store_roots import leads_out
from rmqtx.repairs.changes.change_sets import Change, ChangeSet, CreateFile, RemoveFile, ReplaceFile, WriteAt
from rmqtx.repairs.changes.file_operations import CHUNK_BYTES, Attributes, attributes_of

WRITE, CREATE, REPLACE, REMOVE = "write", "create", "replace", "remove"
KINDS = (WRITE, CREATE, REPLACE, REMOVE)


class Image(Protocol):
    """The content of a file, or of a part of it.

    Units: `size_bytes` and positions count from the begin of the image.
    """

    @property
    def size_bytes(self) -> int:
        """Its length."""

    def read(self, begin: int, end: int) -> bytes:
        """The bytes from one position to another."""

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Ranges that may contain bytes other than zero, in order; everything else is zero."""


@dataclass(frozen=True, slots=True)
class GivenImage:
    """Bytes that a step gives, and zeros to its size."""

    data: bytes
    size_bytes: int

    def read(self, begin: int, end: int) -> bytes:
        """The bytes from one position to another."""
        return self.data[begin:end].ljust(min(end, self.size_bytes) - begin, b"\0")

    def ranges(self) -> Iterator[tuple[int, int]]:
        """The range of the given bytes."""
        if self.data:
            yield 0, len(self.data)


@dataclass(frozen=True, slots=True)
class FileImage:
    """A part of an existing file, read on demand."""

    file: Path
    position_bytes: int
    size_bytes: int

    def read(self, begin: int, end: int) -> bytes:
        """The bytes from one position to another; fewer if the file became shorter. Raises: UnreadableFile."""
        with naming_unreadable(self.file), self.file.open("rb") as source:
            source.seek(self.position_bytes + begin)
            return source.read(min(end, self.size_bytes) - begin)

    def ranges(self) -> Iterator[tuple[int, int]]:
        """The ranges for which the file system has blocks. Raises: UnreadableFile."""
        with naming_unreadable(self.file), self.file.open("rb") as source:
            last = self.position_bytes + self.size_bytes
            for begin, end in data_ranges(source.fileno(), self.position_bytes, last):
                yield begin - self.position_bytes, end - self.position_bytes


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of one file.

    Shape: `position_bytes` is None for a whole file; an image is None where there is no file; `group`: number of
           barriers before it; `attributes`: the file's attributes before, None where there was no file.
    """

    kind: str
    path: str
    group: int
    position_bytes: int | None
    before: Image | None
    after: Image | None
    attributes: Attributes | None


def planned(change_set: ChangeSet, root: Path) -> list[Edit]:
    """Return the edits of a change set on the files as they are now.

    Order: that of the steps.
    Raises: StoreChanged if a file to change is missing, or a file to create exists; UnwritableFile, UnreadableFile.
    """
    return [
        _planned(change, group, root) for group, changes in enumerate(change_set.groups()) for change in changes
    ]


def _planned(change: Change, group: int, root: Path) -> Edit:
    file = real_file(root, change.path)
    there = file.is_file()
    if not there and os.path.lexists(file):
        raise StoreChanged(f"{file} is not a file", file=file)
    if not file.parent.is_dir():
        raise StoreChanged(f"cannot write {file}: {file.parent} is not a directory", file=file)
    if there or not isinstance(change, WriteAt):
        _check_may_write(file, there=there, is_whole=not isinstance(change, WriteAt))
    size_bytes = file.stat().st_size if there else 0
    attributes = attributes_of(file) if there else None
    whole = FileImage(file, 0, size_bytes) if there else None
    match change:
        case WriteAt(path, position_bytes, data):
            if not there or change.end_bytes > size_bytes:
                what = f"has {size_bytes} bytes" if there else "is missing"
                raise StoreChanged(f"{file} {what}, and byte {change.end_bytes} must be written", file=file)
            require_one_name(file)
            before = FileImage(file, position_bytes, len(data))
            return Edit(WRITE, path, group, position_bytes, before, GivenImage(data, len(data)), attributes)
        case CreateFile(path, new_size_bytes, data):
            if there:
                raise StoreChanged(f"{file} already exists", file=file)
            return Edit(CREATE, path, group, None, None, GivenImage(data, new_size_bytes), None)
        case ReplaceFile(path, data):
            return Edit(REPLACE, path, group, None, whole, GivenImage(data, len(data)), attributes)
        case RemoveFile(path):
            if not there:
                raise StoreChanged(f"{file} is missing", file=file)
            return Edit(REMOVE, path, group, None, whole, None, attributes)
    raise BadRequest(f"no such step: {change!r}")


def _check_may_write(file: Path, *, there: bool, is_whole: bool) -> None:
    """Refuse a file before any change if its write would fail later, or a broker could not write to it afterwards.

    Raises: UnwritableFile.
    """
    owner = (file if there else file.parent).stat().st_uid
    place = file.parent if is_whole else file
    is_refused = not os.access(place, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
    if is_refused or (is_whole and os.geteuid() not in (0, owner)):
        why = "permission denied" if is_refused else f"it belongs to user {owner}, and the new file would not"
        raise UnwritableFile(
            f"cannot write {file}: {why}", file=file, advice="run the command as the broker's user, or as root"
        )


def real_file(root: Path, path: str) -> Path:
    """Return the file of a path in a store; links to directories of the store on another disk are resolved.

    Raises: UnsafeStore where a link leads out of the store.
    """
    real = Path(os.path.realpath(root))
    if leads_out(real / path, real):
        raise led_out(real / path)
    return Path(os.path.realpath(real / path))


def led_out(place: Path) -> UnsafeStore:
    """Return the error for a link that leads out of a store."""
    return UnsafeStore(
        f"the link {as_text(place)} leads out of the store, to {as_text(os.path.realpath(place))}: rmqtx copies and "
        "changes nothing there", file=as_text(place),
        advice="remove the link, or replace it by its target; a link to a directory of the store on another disk is "
        "followed if that directory contains only what a broker puts there",
    )


def require_one_name(file: Path) -> None:
    """Refuse to write to a file that has hard links: the other names would change with it. Raises: UnsafeStore."""
    if file.is_file() and file.stat().st_nlink > 1:
        raise UnsafeStore(
            f"{as_text(file)} has {file.stat().st_nlink} hard links: a write would change all of them",
            file=as_text(file), advice="work on a copy (--to DIR), or replace the file by a copy first",
        )


def groups_of(edits: Sequence[Edit], *, backwards: bool = False) -> list[list[Edit]]:
    """The edits between barriers, in the order in which they are made, or undone."""
    numbers = sorted({edit.group for edit in edits}, reverse=backwards)
    ordered = list(reversed(edits)) if backwards else list(edits)
    return [[edit for edit in ordered if edit.group == number] for number in numbers]


def data_ranges(descriptor: int, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """The ranges within a part of a file that are not holes."""
    while begin < end:
        try:
            first = os.lseek(descriptor, begin, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
            raise
        begin = min(os.lseek(descriptor, first, os.SEEK_HOLE), end)
        if first < begin:
            yield first, begin


def chunks(*images: Image) -> Iterator[tuple[int, int]]:
    """The pieces in which images are read, in order: all ranges that are not zero in at least one image, each once."""
    reached = 0
    for begin, end in sorted(found for image in images for found in image.ranges()):
        for position in range(max(begin, reached), end, CHUNK_BYTES):
            reached = min(position + CHUNK_BYTES, end)
            yield position, reached


def is_same(one: Image, other: Image) -> bool:
    """Whether two images have the same content."""
    return one.size_bytes == other.size_bytes and all(
        one.read(begin, end) == other.read(begin, end) for begin, end in chunks(one, other)
    )


_ZEROS = bytes(CHUNK_BYTES)


def is_zero(data: bytes) -> bool:
    """Whether all bytes are zero; `data` is at most a chunk."""
    return data == _ZEROS[: len(data)]
