"""What a store looks like beside what is changed in it: to know it again before anything is undone.

Every file counts with its name, length and time; small files, which a running broker writes again and again, with
their content; of files that are changed in places also what surrounds these places, where a broker would write on.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from readers.model.errors import UnreadableFile
from readers.storage.places import is_uri
from readers.store.links import leads_out
from readers.store.store import OWN_PREFIX
from repairs.changes.edits import Edit, FileImage, led_out
from repairs.changes.file_operations import CHUNK_BYTES

#: It belongs to who uses the store.
LOCK = "lock"
#: Files up to this length are compared whole: checkpoint, abort, everything in config/.
SMALL_BYTES = 1 << 20
#: How much before and behind a changed place is compared.
BEFORE_BYTES, BEHIND_BYTES = 1 << 16, 1 << 20


@dataclass(frozen=True, slots=True)
class FilePrint:
    """A file that is not changed, or the surroundings of what is changed in one.

    Shape: `modified_ns` is None where a part of the file is changed; `digest` None where the content is not compared.
    """

    path: str
    size_bytes: int
    modified_ns: int | None
    digest: str | None


def fingerprint(root: Path, edits: Sequence[Edit]) -> list[FilePrint]:
    """All that is in a store but what the edits change.

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
    """What is not as it was, in a few words each; `times` says whether those count."""
    before = {entry.path: entry for entry in then}
    after = {entry.path: entry for entry in now}
    found = []
    for path in sorted(before.keys() | after.keys()):
        one, other = before.get(path), after.get(path)
        if one is None:
            found.append(f"{path} is new")
        elif other is None:
            found.append(f"{path} is not there any more")
        elif one.size_bytes != other.size_bytes:
            found.append(f"{path} was {one.size_bytes} bytes and is {other.size_bytes}")
        elif one.digest != other.digest:
            found.append(f"{path} has another content")
        elif times and one.modified_ns != other.modified_ns:
            found.append(f"{path} was written to, or is a copy: its time has changed")
    return found


def files_below(root: Path) -> Iterator[tuple[str, Path, os.stat_result]]:
    """Every file of a store but its lock and what is on its way: path below the root, where it is, its status.

    Raises: UnreadableFile; UnsafeStore for a link that leads out of the store.
    """
    real = Path(os.path.realpath(root))
    for prefix, directory in directories_below(root):
        with _readable(directory), os.scandir(directory) as entries:
            for entry in entries:
                path = prefix + entry.name
                if entry.is_symlink() and leads_out(real / path, real):
                    raise led_out(real / path)
                if entry.is_file() and path != LOCK and not entry.name.startswith(OWN_PREFIX):
                    yield path, Path(entry.path), entry.stat()


def directories_below(root: Path) -> Iterator[tuple[str, Path]]:
    """Every directory of a store with what its files' paths begin with; the root comes first, with nothing.

    A link in the root to a directory of the store's own is followed, as a broker does; one that leads to another place
    in the store is left out, for what is there is met there.
    Raises: UnreadableFile; UnsafeStore for a link that leads out of the store.
    """
    real = Path(os.path.realpath(root))
    seen: set[tuple[int, int]] = set()
    waiting = [("", root)]
    while waiting:
        prefix, directory = waiting.pop()
        with _readable(directory):
            status = directory.stat()
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.is_dir() and (not entry.is_symlink() or _is_followed(real / prefix / entry.name, real)):
                        waiting.append((f"{prefix}{entry.name}/", Path(entry.path)))
        yield prefix, directory


def _is_followed(link: Path, root: Path) -> bool:
    """Whether a link to a directory is one of the store's own that lies elsewhere.

    Raises: UnsafeStore.
    """
    if leads_out(link, root):
        raise led_out(link)
    return not Path(os.path.realpath(link)).is_relative_to(root)


def require_links_inside(root: str | os.PathLike[str]) -> None:
    """Refuse a store with a link that leads out of it, before anything of it is copied or changed.

    Raises: UnsafeStore, UnreadableFile.
    """
    if not is_uri(os.fspath(root)):
        for _ in files_below(Path(os.path.realpath(root))):
            pass


@contextmanager
def _readable(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnreadableFile(f"cannot read {directory}: {error.strerror}", file=directory) from error


def _surroundings(file: Path, edits: Sequence[Edit], size_bytes: int) -> list[FileImage]:
    """The parts of a file around what is changed in it, without that."""
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
