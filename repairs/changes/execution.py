"""Carries a change set out on the files of a store, undoes it, or goes on with it, whenever it was interrupted.

In place, the undo file is complete on the disk before the first change. Every edit is made so that doing it again does
no harm, and each file can be told apart as it was, as it shall be, or on its way between the two: so whatever a crash
left, `undo` and `resume` end in exactly the one or exactly the other.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from readers.log.store_identity import why_another
from readers.model.errors import BadRequest, NotAStore, RmqtxError, StoreChanged, StoreInUse, UnwritableFile
from repairs.changes.apply_edits import differs, make
from repairs.changes.change_sets import ChangeSet
from repairs.changes.edits import planned, real_file, require_one_name
from repairs.changes.file_operations import FileOperations
from repairs.changes.fingerprints import fingerprint
from repairs.changes.in_progress_mark import put_mark, remove_mark, require_nothing_begun, way_on
from repairs.changes.interruption import Interrupted
from repairs.changes.store_lock import store_locked, store_shared
from repairs.changes.undo_differences import differences_since, times_of
from repairs.changes.undo_files import APPLIED, APPLYING, UNDOING, UNDONE, UndoFile, read_undo_file, write_undo_file

#: How many differences a refusal names.
_SHOWN_MAX = 3


def execute(
    change_set: ChangeSet, root: str | os.PathLike[str], undo_path: str | os.PathLike[str], *,
    files: FileOperations | None = None, about: Sequence[str] = (),
) -> UndoFile:
    """Change a store in place; when this returns, all of it is on the disk. Gives the undo file.

    `about`: lines for people that say what the changes are for.
    Raises: StoreInUse, StoreChanged, UnsafeStore, UnwritableFile and UnreadableFile before anything is changed; after
            that UnwritableFile or Interrupted, with what brings it back and what completes it.
    """
    place, file = Path(os.path.realpath(root)), Path(os.path.realpath(undo_path))
    files = files or FileOperations()
    if file.is_relative_to(place):
        raise BadRequest(f"{undo_path} lies inside the store", advice="keep the undo file on another disk if you can")
    with store_locked(place):
        require_nothing_begun(place)
        edits = planned(change_set, place)
        write_undo_file(file, place, edits, fingerprint(place, edits), files, about)
        with _alone(file):
            undo_file = read_undo_file(file)
            _bring(undo_file, place, files, forward=True)
    return undo_file


def execute_on_copy(
    change_set: ChangeSet, root: str | os.PathLike[str], *, files: FileOperations | None = None
) -> None:
    """Change a copy that nobody else knows of; when this returns, all of it is on the disk.

    Raises: StoreChanged, UnwritableFile; the copy is then good for nothing.
    """
    place = Path(os.path.realpath(root))
    make(planned(change_set, place), place, "copy", files or FileOperations(), forward=True)


def undo(
    undo_path: str | os.PathLike[str], root: str | os.PathLike[str] | None = None, *,
    files: FileOperations | None = None, times: bool = True,
) -> UndoFile:
    """Bring a store back to what it was before; what was undone already stays so.

    `root`: where the store is now, if not where it was. `times`: whether a file whose time has changed counts as
    changed; a copied store has other times.
    Raises: StoreInUse; StoreChanged where anything but this undo file's changes was done since; UnsafeStore where those
            of another were begun; FormatError for what is no whole undo file; UnwritableFile.
    """
    return _turn(undo_path, root, files or FileOperations(), times, forward=False)


def resume(
    undo_path: str | os.PathLike[str], root: str | os.PathLike[str] | None = None, *,
    files: FileOperations | None = None, times: bool = True,
) -> UndoFile:
    """Complete changes that were interrupted, or make those again that were undone.

    Raises: as `undo`.
    """
    return _turn(undo_path, root, files or FileOperations(), times, forward=True)


def standing(
    undo_path: str | os.PathLike[str], root: str | os.PathLike[str] | None = None, *, times: bool = True
) -> tuple[UndoFile, list[str]]:
    """An undo file, and in what the store is not as it left it; nothing is changed.

    Raises: StoreInUse, FormatError, UnreadableFile; StoreChanged where the place is not the store that it is of.
    """
    undo_file = read_undo_file(Path(os.path.realpath(undo_path)))
    place = Path(os.path.realpath(root or undo_file.root))
    _require_its_store(undo_file, place)
    with store_shared(place):
        return undo_file, differences_since(undo_file, place, times=times)


def _turn(
    undo_path: str | os.PathLike[str], root: str | os.PathLike[str] | None, files: FileOperations, times: bool, *,
    forward: bool,
) -> UndoFile:
    file = Path(os.path.realpath(undo_path))
    with _alone(file):
        undo_file = read_undo_file(file)
        place = Path(os.path.realpath(root or undo_file.root))
        _require_its_store(undo_file, place)
        if not (place / "lock").exists():  # taking it makes it, and in a store that is another nothing is made
            _require_unchanged(undo_file, place, times=times)
        with store_locked(place):
            require_nothing_begun(place, undo_file.undo_id)
            _require_unchanged(undo_file, place, times=times)
            if undo_file.state != (APPLIED if forward else UNDONE):
                _bring(undo_file, place, files, forward=forward)
            else:
                remove_mark(place, undo_file, files)
    return undo_file


def _require_its_store(undo_file: UndoFile, place: Path) -> None:
    """Refuse a place that is not the store which an undo file is of: the file may be forged, or another store's.

    Raises: StoreChanged, NotAStore, UnreadableFile.
    """
    try:
        why = why_another(undo_file.first_record, place)
    except NotAStore as error:
        error.advice = error.advice or f"{undo_file.path} is of a store; if it was moved, say where it is with --store"
        raise
    if why is not None:
        raise StoreChanged(
            f"{place} is not the store that {undo_file.path} is of: {why}", file=undo_file.path,
            advice="nothing was done; if the store was moved, say where it is now with --store",
        )


def _require_unchanged(undo_file: UndoFile, place: Path, *, times: bool) -> None:
    """Refuse a store that is not as an undo file left it.

    Raises: StoreChanged.
    """
    found = differences_since(undo_file, place, times=times)
    if found:
        more = f" and {len(found) - _SHOWN_MAX} more" if len(found) > _SHOWN_MAX else ""
        raise StoreChanged(
            f"{place} is not as {undo_file.path} left it: {'; '.join(found[:_SHOWN_MAX])}{more}", file=undo_file.path,
            advice="nothing was done: what came since would be lost or contradicted",
        )


def _bring(undo_file: UndoFile, root: Path, files: FileOperations, *, forward: bool) -> None:
    """Make the edits, or unmake them, between two states of the undo file."""
    begun, done = (APPLYING, APPLIED) if forward else (UNDOING, UNDONE)
    for edit in undo_file.edits:
        if edit.position_bytes is not None:
            require_one_name(real_file(root, edit.path))
    try:
        if undo_file.state != begun:
            undo_file.mark(begun, files)
        with contextlib.nullcontext() if forward else contextlib.suppress(UnwritableFile):
            put_mark(root, undo_file, files)  # the way back must not need room for it
        make(undo_file.edits, root, undo_file.undo_id, files, forward=forward)
        wrong = [what for edit in undo_file.edits if (what := differs(edit, root, forward=forward))]
        if wrong:
            raise StoreChanged(f"somebody else writes into {root}: {wrong[0]}")
        undo_file.mark(done, files, times_of(undo_file.edits, root))
        remove_mark(root, undo_file, files)
    except RmqtxError as error:
        error.advice = " ".join(filter(None, [error.advice and error.advice + ";", way_on(undo_file.path)]))
        raise
    except KeyboardInterrupt as error:
        raise Interrupted(f"interrupted while {root} was changed", file=root, advice=way_on(undo_file.path)) from error
    except OSError as error:
        why, advice = error.strerror or str(error), way_on(undo_file.path)
        raise UnwritableFile(f"{root}: {why}", file=error.filename, advice=advice) from error


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Keeps others of us away from an undo file while the block runs.

    Raises: StoreInUse.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield  # whoever reads it next says why it cannot be read
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreInUse(f"{file} is in use by another rmqtx", file=file, advice="wait for it") from error
        yield
    finally:
        os.close(descriptor)
