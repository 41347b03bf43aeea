"""Carry out a change set on the files of a store, undo it, or resume it after an interruption.

In place, the undo file is complete on disk before the first change. Every edit can be repeated without harm, and each
file is recognised as old, new, or partly written: so after any crash, `undo` ends in exactly the old files, and
`resume` in exactly the new ones.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rmqtx.readers.log.record_at import why_another
from rmqtx.readers.model.errors import BadRequest, NotAStore, RmqtxError, StoreChanged, StoreInUse, UnwritableFile
from rmqtx.readers.model.findings import few
from rmqtx.readers.store.store import Store
from rmqtx.repairs.changes.apply_edits import apply_or_revert, differs
from rmqtx.repairs.changes.change_sets import ChangeSet
from rmqtx.repairs.changes.clones import COMMIT_LOG, cloned
from rmqtx.repairs.changes.edits import planned, real_file, require_one_name
from rmqtx.repairs.changes.file_operations import FileOperations
from rmqtx.repairs.changes.fingerprints import fingerprint
from rmqtx.repairs.changes.in_progress_mark import (
    commands_to_finish,
    differences_since,
    put_mark,
    remove_mark,
    require_nothing_begun,
    times_to_keep,
)
from rmqtx.repairs.changes.store_lock import has_new_lock, leave_no_lock, store_locked, store_shared
from rmqtx.repairs.changes.undo_files import (
    APPLIED,
    APPLYING,
    UNDOING,
    UNDONE,
    PlannedChange,
    UndoFile,
    read_undo_file,
    write_undo_file,
)


class Interrupted(RmqtxError):
    """A change was interrupted, and must be completed or reverted."""

    status = 130


def execute(
    change_set: ChangeSet, root: str | os.PathLike[str], undo_path: str | os.PathLike[str], *,
    files: FileOperations | None = None, about: Sequence[str] = (), receipts: Sequence[str] = (),
) -> UndoFile:
    """Change a store in place, and return the undo file; when this returns, all changes are on disk.

    `about`: lines for people that describe the purpose of the changes; `receipts`: ids of the receipts of the changes.
    Raises: StoreInUse, StoreChanged, UnsafeStore, UnwritableFile and UnreadableFile before anything is changed; after
            that UnwritableFile or Interrupted, with the commands that revert and complete the changes.
    """
    place, file = Path(os.path.realpath(root)), Path(os.path.realpath(undo_path))
    files = files or FileOperations()
    if file.is_relative_to(place):
        raise BadRequest(
            f"the undo file {undo_path} is inside the store", advice="put it elsewhere, if possible on another disk"
        )
    with store_locked(place):
        require_nothing_begun(place)
        edits = planned(change_set, place)
        change = PlannedChange(place, edits, fingerprint(place, edits), about, receipts, has_new_lock(place))
        write_undo_file(file, change, files)
        with _locked(file):
            undo_file = read_undo_file(file)
            _apply_or_revert(undo_file, place, files, forward=True)
    return undo_file


def execute_on_copy(change_set: ChangeSet, root: str | os.PathLike[str]) -> None:
    """Change a copy that no other process uses; when this returns, all changes are on disk.

    Raises: StoreChanged, UnwritableFile; the copy is then unusable.
    """
    place = Path(os.path.realpath(root))
    apply_or_revert(planned(change_set, place), place, "copy", FileOperations(), forward=True)


def undo(
    undo_path: str | os.PathLike[str], root: str | os.PathLike[str] | None = None, *,
    files: FileOperations | None = None, times: bool = True,
) -> UndoFile:
    """Restore a store as it was before; changes that are already undone stay so.

    `root`: the store's present place, if it was moved. `times`: whether a file whose time has changed counts as
    changed; a copied store has other times.
    Raises: StoreInUse; StoreChanged if the store has changed otherwise since; UnsafeStore if changes of another undo
            file are incomplete; FormatError for a damaged undo file; UnwritableFile.
    """
    return _undo_or_resume(undo_path, root, files or FileOperations(), times, forward=False)


def resume(
    undo_path: str | os.PathLike[str], root: str | os.PathLike[str] | None = None, *,
    files: FileOperations | None = None, times: bool = True,
) -> UndoFile:
    """Complete changes that were interrupted, or repeat changes that were undone. Raises: as `undo`."""
    return _undo_or_resume(undo_path, root, files or FileOperations(), times, forward=True)


def state_and_differences(
    undo_path: str | os.PathLike[str], root: str | os.PathLike[str] | None = None, *, times: bool = True
) -> tuple[UndoFile, list[str]]:
    """Return an undo file, and the differences of the store since its last state; nothing is changed.

    Raises: StoreInUse, FormatError, UnreadableFile; StoreChanged if the directory is not the undo file's store.
    """
    undo_file = read_undo_file(Path(os.path.realpath(undo_path)))
    place = Path(os.path.realpath(root or undo_file.root))
    _require_its_store(undo_file, place)
    with store_shared(place):
        return undo_file, differences_since(undo_file, place, times=times)


def _undo_or_resume(
    undo_path: str | os.PathLike[str], root: str | os.PathLike[str] | None, files: FileOperations, times: bool, *,
    forward: bool,
) -> UndoFile:
    file = Path(os.path.realpath(undo_path))
    with _locked(file):
        undo_file = read_undo_file(file)
        place = Path(os.path.realpath(root or undo_file.root))
        _require_its_store(undo_file, place)
        if not (place / "lock").exists():  # locking creates the file, and nothing may be created in another store
            _require_unchanged(undo_file, place, times=times)
        with store_locked(place):
            require_nothing_begun(place, undo_file.undo_id)
            _require_unchanged(undo_file, place, times=times)
            if undo_file.state != (APPLIED if forward else UNDONE):
                _apply_or_revert(undo_file, place, files, forward=forward)
            else:
                remove_mark(place, undo_file, files)
            if undo_file.has_new_lock:  # an interrupted change leaves the lock
                leave_no_lock(place)
    return undo_file


def _require_its_store(undo_file: UndoFile, place: Path) -> None:
    """Refuse a directory that is not the undo file's store: the file may be forged, or of another store.

    Raises: StoreChanged, NotAStore, UnreadableFile.
    """
    try:
        why = why_another(undo_file.first_record, place)
    except NotAStore as error:
        error.advice = error.advice or f"if the store of {undo_file.path} was moved, give its place: --store STORE"
        raise
    if why is not None:
        raise StoreChanged(
            f"{place} is not the store of {undo_file.path}: {why}; nothing was changed", file=undo_file.path,
            advice="if the store was moved, give its place: --store STORE",
        )


def _require_unchanged(undo_file: UndoFile, place: Path, *, times: bool) -> None:
    """Refuse a store that has changed since the last state of an undo file. Raises: StoreChanged."""
    found = differences_since(undo_file, place, times=times)
    if found:
        advice = (
            "nothing was changed; if rmqtx changed the store later, undo that change first; if no broker has run on "
            "the store since, restore these files (move new ones away) and run the command again"
        )
        if times and not differences_since(undo_file, place, times=False):
            advice = (
                "nothing was changed; only times differ, as after another undo: if no broker has run on the store "
                "since, add --ignore-times, which compares the contents"
            )
        raise StoreChanged(
            f"{place} has changed since the last use of {undo_file.path}: {few(found, 3, '; ')}",
            file=undo_file.path,
            advice=advice,
        )


def _apply_or_revert(undo_file: UndoFile, root: Path, files: FileOperations, *, forward: bool) -> None:
    """Make the edits, or revert them, between two states of the undo file."""
    begun, done = (APPLYING, APPLIED) if forward else (UNDOING, UNDONE)
    for edit in undo_file.edits:
        if edit.position_bytes is not None:
            require_one_name(real_file(root, edit.path))
    try:
        if undo_file.state != begun:
            undo_file.mark(begun, files)
        with contextlib.nullcontext() if forward else contextlib.suppress(UnwritableFile):
            put_mark(root, undo_file, files)  # an undo must succeed without disk space for the mark
        apply_or_revert(undo_file.edits, root, undo_file.undo_id, files, forward=forward)
        wrong = [what for edit in undo_file.edits if (what := differs(edit, root, forward=forward))]
        if wrong:
            raise StoreChanged(f"another process writes to {root}: {wrong[0]}")
        undo_file.mark(done, files, times_to_keep(undo_file, root))
        remove_mark(root, undo_file, files)
    except RmqtxError as error:
        error.advice = " ".join(filter(None, [error.advice and error.advice + ";", commands_to_finish(undo_file.path)]))
        raise
    except KeyboardInterrupt as error:
        what = f"interrupted during the change of {root}"
        raise Interrupted(what, file=root, advice=commands_to_finish(undo_file.path)) from error
    except OSError as error:
        why, advice = error.strerror or str(error), commands_to_finish(undo_file.path)
        raise UnwritableFile(f"{root}: {why}", file=error.filename, advice=advice) from error


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Lock an undo file against other rmqtx processes while the block runs. Raises: StoreInUse."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield  # the next read reports why the file cannot be read
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreInUse(
                f"{file} is in use by another rmqtx process", file=file, advice="wait until it has ended"
            ) from error
        yield
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the changed store goes: to `copy`, a new directory, or in place, with an undo file `undo_file`."""

    copy: Path | None = None
    undo_file: Path | None = None

    @property
    def is_untouched(self) -> bool:
        """Whether there is no sign that a change was begun."""
        return self.undo_file is None or not self.undo_file.exists()


def carried_out(
    changes: ChangeSet, store: Store, destination: Destination, about: Sequence[str], receipts: Sequence[str] = ()
) -> tuple[str, tuple[str, ...]]:
    """Change a store, and return the root of the changed store and the directories of its log.

    `about`: lines for people that describe the purpose of the changes; `receipts`: ids of the receipts of the changes.
    Raises: StoreInUse, StoreChanged, UnwritableFile, UnreadableFile, BadRequest.
    """
    directories = store.commit_log_directories
    if destination.copy is not None:
        with cloned(store.root, destination.copy, commit_log_directories=directories) as copy:
            execute_on_copy(changes, copy)
        root = str(destination.copy.absolute())
        return root, _copied(directories, store.root, root)
    assert destination.undo_file is not None
    execute(changes, store.root, destination.undo_file, about=about, receipts=receipts)
    return store.root, directories


def _copied(directories: Sequence[str], source: str, target: str) -> tuple[str, ...]:
    """Places of the directories of a log in a copy of its store."""
    root, copy = Path(source).resolve(), Path(target)
    places = [Path(directory).resolve() for directory in directories]
    found = [copy / (place.relative_to(root) if place.is_relative_to(root) else COMMIT_LOG) for place in places]
    return tuple(dict.fromkeys(str(place) for place in found))
