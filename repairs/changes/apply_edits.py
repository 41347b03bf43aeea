"""Making edits on disk, forward or backward, and comparing a file with its content before and after an edit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rmqtx.readers.model.errors import UnwritableFile
from rmqtx.readers.store.store import OWN_PREFIX
from rmqtx.repairs.changes.change_sets import is_segment_path
from rmqtx.repairs.changes.edits import Edit, FileImage, Image, chunks, groups_of, is_same, is_zero, real_file
from rmqtx.repairs.changes.file_operations import FileOperations, attributes_of_new


def apply_or_revert(edits: Sequence[Edit], root: Path, name: str, files: FileOperations, *, forward: bool) -> None:
    """Make edits, or revert them in reverse order; each group is on disk before the next begins.

    `name`: used in the temporary names of files.
    Raises: UnwritableFile, UnreadableFile.
    """
    _remove_waiting(edits, root, name, files)
    for group in groups_of(edits, backwards=not forward):
        directories: set[Path] = set()
        written: set[Path] = set()
        for edit in group:
            file = real_file(root, edit.path)
            if edit.position_bytes is None:
                waiting = _waiting(root, edit, name)
                _whole(edit, file, waiting, files, forward=forward)
                directories |= {file.parent, waiting.parent}
            else:
                _part(edit, file, files, forward=forward)
            if file.exists():
                written.add(file)
        for file in sorted(written):
            files.sync_file(file)
        for directory in sorted(directories):
            files.sync_directory(directory)


def _part(edit: Edit, file: Path, files: FileOperations, *, forward: bool) -> None:
    """Write the new content of a part of a file."""
    wanted = edit.after if forward else edit.before
    assert wanted is not None
    assert edit.position_bytes is not None
    now = FileImage(file, edit.position_bytes, wanted.size_bytes)
    for begin, end in chunks(wanted, now):
        data = wanted.read(begin, end)
        if now.read(begin, end) != data:
            files.write(file, edit.position_bytes + begin, data)
    if not forward and edit.attributes is not None:
        files.set_attributes(file, edit.attributes)


def _whole(edit: Edit, file: Path, waiting: Path, files: FileOperations, *, forward: bool) -> None:
    """Give a whole file its new content atomically."""
    wanted = edit.after if forward else edit.before
    if wanted is None:
        if file.exists():
            files.remove(file)
        return
    attributes = edit.attributes or attributes_of_new(file.parent)
    if forward:  # the file's time becomes that of the change
        attributes = attributes.without_time()
    if file.exists() and _is(file, wanted):
        files.set_attributes(file, attributes)
        return
    target = waiting if waiting.parent == file.parent or _is_same_disk(waiting.parent, file.parent) else file
    if target == file and file.exists():
        other = edit.before if forward else edit.after
        if other is not None:
            why = f"{file.parent} is a file system of its own, so there is no place for a temporary file outside it"
            raise UnwritableFile(f"cannot replace {file}: {why}", file=file)
        files.remove(file)  # written in part before a crash
    files.create(target, wanted.size_bytes)
    for begin, end in chunks(wanted):
        data = wanted.read(begin, end)
        if not is_zero(data):
            files.write(target, begin, data)
    files.set_attributes(target, attributes)
    files.sync_file(target)
    if target != file:
        files.rename(target, file)


def _is_same_disk(one: Path, other: Path) -> bool:
    """Whether a file can be renamed from one directory to another."""
    return one.stat().st_dev == other.stat().st_dev


def _waiting(root: Path, edit: Edit, name: str) -> Path:
    """Temporary place of a file: beside it, or in the root if a broker would load a temporary file beside it."""
    directory = root if is_segment_path(edit.path) else real_file(root, edit.path).parent
    number = edit.path.replace("/", "-")[-80:]
    return directory / f"{OWN_PREFIX}{name}-{number}"


def _remove_waiting(edits: Sequence[Edit], root: Path, name: str, files: FileOperations) -> None:
    """Remove temporary files that an interrupted attempt left."""
    directories = set()
    for edit in edits:
        if edit.position_bytes is None:
            waiting = _waiting(root, edit, name)
            directories.add(waiting.parent)
            if waiting.exists():
                files.remove(waiting)
    for directory in sorted(directories):
        files.sync_directory(directory)


# -- comparing --------------------------------------------------------------------------------------------------------


def differs(edit: Edit, root: Path, *, forward: bool) -> str | None:
    """How a file differs from its content after an edit, or before it; None where it does not."""
    file = real_file(root, edit.path)
    wanted = edit.after if forward else edit.before
    if wanted is None:
        return f"{edit.path} exists" if file.exists() else None
    if not file.is_file():
        return f"{edit.path} is missing"
    if edit.position_bytes is None:
        return None if _is(file, wanted) else f"{edit.path} has changed"
    now = FileImage(file, edit.position_bytes, wanted.size_bytes)
    return None if is_same(now, wanted) else f"{edit.path} has changed at byte {edit.position_bytes}"


def not_between(edit: Edit, root: Path) -> str | None:
    """Why a file cannot be the result of an interrupted edit; None where it can.

    A part that was being written has at each byte the old or the new content; a whole file is renamed atomically, but a
    file that had to be made under its final name may be incomplete.
    """
    file = real_file(root, edit.path)
    if edit.position_bytes is not None:
        if not file.is_file():
            return f"{edit.path} is missing"
        return None if _is_mixed(edit, file) else f"{edit.path} has changed at byte {edit.position_bytes}"
    if not file.exists():
        return None if edit.before is None or edit.after is None else f"{edit.path} is missing"
    images = [image for image in (edit.before, edit.after) if image is not None]
    if any(_is(file, image) for image in images):
        return None
    if len(images) == 1 and _is_part(file, images[0]):
        return None
    return f"{edit.path} has changed"


def _is(file: Path, image: Image) -> bool:
    """Whether a file has exactly this content."""
    return is_same(FileImage(file, 0, file.stat().st_size), image)


def _is_part(file: Path, image: Image) -> bool:
    """Whether a file has this content or zeros, and is not longer."""
    size_bytes = file.stat().st_size
    now = FileImage(file, 0, size_bytes)
    return size_bytes <= image.size_bytes and all(
        _fits(now.read(begin, end), image.read(begin, end), bytes(end - begin)) for begin, end in chunks(now)
    )


def _is_mixed(edit: Edit, file: Path) -> bool:
    assert edit.before is not None
    assert edit.after is not None
    assert edit.position_bytes is not None
    now = FileImage(file, edit.position_bytes, edit.after.size_bytes)
    return all(
        _fits(now.read(begin, end), edit.before.read(begin, end), edit.after.read(begin, end))
        for begin, end in chunks(now, edit.before, edit.after)
    )


def _fits(data: bytes, one: bytes, other: bytes) -> bool:
    """Whether each byte equals that of the one or that of the other."""
    if data in (one, other):
        return True
    return len(data) == len(one) and all(
        byte in pair for byte, pair in zip(data, zip(one, other, strict=True), strict=True)
    )
