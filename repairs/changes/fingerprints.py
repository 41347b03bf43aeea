"""Fingerprint of everything in a store that a change does not touch, compared before the change is undone.

Every file counts with its name, length and time; small files, which a running broker rewrites, also with their content;
files that are changed in part also with the bytes around the changed parts, where a broker would continue to write.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rmqtx.readers.storage.places import is_uri, naming_unreadable
from rmqtx.readers.store.store import OWN_PREFIX
from rmqtx.readers.store.store_roots import leads_out
from rmqtx.repairs.changes.edits import Edit, FileImage, led_out
from rmqtx.repairs.changes.file_operations import CHUNK_BYTES

#: Belongs to the process that uses the store.
LOCK = "lock"
#: Files up to this length are compared whole: checkpoint, abort, everything in config/.
SMALL_BYTES = 1 << 20
#: How much before and after a changed place is compared.
BEFORE_BYTES = 1 << 16
BEHIND_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class FilePrint:
    """The fingerprint of an unchanged file, or of the bytes around the changes in a file.

    Shape: `modified_ns` is None where a part of the file is changed; `digest` None where the content is not compared.
    """

    path: str
    size_bytes: int
    modified_ns: int | None
    digest: str | None


def fingerprint(root: Path, edits: Sequence[Edit]) -> list[FilePrint]:
    """Return the fingerprints of everything in a store that the edits do not change.

    Order: by path.
    Raises: UnreadableFile.
    """
    whole = {edit.path for edit in edits if edit.position_bytes is None}
    partly: dict[str, list[Edit]] = {}
    for edit in edits:
        if edit.position_bytes is not None:
            partly.setdefault(edit.path, []).append(edit)
    entries = []
    for path, file, status in files_below(root):
        if path in partly:
            around = _surroundings(file, partly[path], status.st_size)
            entries.append(FilePrint(path, status.st_size, None, _digest(around)))
        elif path not in whole:
            is_small = status.st_size <= SMALL_BYTES
            digest = _digest([FileImage(file, 0, status.st_size)]) if is_small else None
            entries.append(FilePrint(path, status.st_size, status.st_mtime_ns, digest))
    return sorted(entries, key=lambda entry: entry.path)


def differences(then: Iterable[FilePrint], now: Iterable[FilePrint], *, times: bool = True) -> list[str]:
    """Return the differences, in a few words each; `times`: whether the times of files count."""
    before = {entry.path: entry for entry in then}
    after = {entry.path: entry for entry in now}
    found = []
    for path in sorted(before.keys() | after.keys()):
        one, other = before.get(path), after.get(path)
        if one is None:
            found.append(f"{path} is new")
        elif other is None:
            found.append(f"{path} is missing")
        elif one.size_bytes != other.size_bytes:
            found.append(f"{path} had {one.size_bytes} bytes and has {other.size_bytes}")
        elif one.digest != other.digest:
            found.append(f"{path} has changed")
        elif times and one.modified_ns != other.modified_ns:
            found.append(f"{path} has another time: it was written to, or is a copy")
    return found


def files_below(root: Path) -> Iterator[tuple[str, Path, os.stat_result]]:
    """Yield every file of a store except its lock and temporary files: path below the root, place, status.

    Raises: UnreadableFile; UnsafeStore for a link that leads out of the store.
    """
    real = Path(os.path.realpath(root))
    for prefix, directory in directories_below(root):
        with naming_unreadable(directory), os.scandir(directory) as entries:
            for entry in entries:
                path = prefix + entry.name
                if entry.is_symlink() and leads_out(real / path, real):
                    raise led_out(real / path)
                if entry.is_file() and path != LOCK and not entry.name.startswith(OWN_PREFIX):
                    yield path, Path(entry.path), entry.stat()


def directories_below(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield every directory of a store with the prefix of its files' paths; the root comes first, with an empty prefix.

    A link in the root to a directory of the store's own is followed, as a broker does; a link to another place in the
    store is skipped, because that place is listed anyway. Of two links to one directory the first by name is followed.
    Raises: UnreadableFile; UnsafeStore for a link that leads out of the store.
    """
    real = Path(os.path.realpath(root))
    seen: set[tuple[int, int]] = set()
    waiting = [("", root)]
    while waiting:
        prefix, directory = waiting.pop()
        with naming_unreadable(directory):
            status = directory.stat()
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(directory) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name, reverse=True):
                    if entry.is_dir() and (not entry.is_symlink() or _is_followed(real / prefix / entry.name, real)):
                        waiting.append((f"{prefix}{entry.name}/", Path(entry.path)))
        yield prefix, directory


def _is_followed(link: Path, root: Path) -> bool:
    """Whether a link leads to a directory of the store that is elsewhere. Raises: UnsafeStore."""
    if leads_out(link, root):
        raise led_out(link)
    return not Path(os.path.realpath(link)).is_relative_to(root)


def require_links_inside(root: str | os.PathLike[str]) -> None:
    """Refuse a store with a link that leads out of it, before anything is copied or changed.

    Raises: UnsafeStore, UnreadableFile.
    """
    if not is_uri(os.fspath(root)):
        for _ in files_below(Path(os.path.realpath(root))):
            pass


def _surroundings(file: Path, edits: Sequence[Edit], size_bytes: int) -> list[FileImage]:
    """The parts of a file around its changes, without the changes."""
    places = sorted(_place(edit) for edit in edits)
    parts = []
    reached = 0
    for (begin, end), following in zip(places, [*(place[0] for place in places[1:]), size_bytes], strict=True):
        first = max(reached, begin - BEFORE_BYTES)
        parts.append(FileImage(file, first, begin - first))
        reached = min(following, end + BEHIND_BYTES)
        parts.append(FileImage(file, end, reached - end))
    return parts


def _place(edit: Edit) -> tuple[int, int]:
    assert edit.position_bytes is not None
    assert edit.before is not None
    return edit.position_bytes, edit.position_bytes + edit.before.size_bytes


def _digest(images: Iterable[FileImage]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for image in images:
        for begin in range(0, image.size_bytes, CHUNK_BYTES):
            digest.update(image.read(begin, begin + CHUNK_BYTES))
    return digest.hexdigest()
