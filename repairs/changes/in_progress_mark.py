"""A mark in the root of a store whose files are being changed: it names the undo file, for the next reader.

The undo file is elsewhere, and the journal may belong to another user. The mark is on disk before the first byte of the
store changes, and is removed when the undo file has the state done or undone. So a store without a mark, or with a mark
of a completed undo file, is never partly changed. Brokers ignore the mark.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from rmqtx.readers.model.declared_json import JsonForm, needed
from rmqtx.readers.model.errors import BadRequest, BadText, FormatError, RmqtxError, UnreadableFile, UnsafeStore
from rmqtx.readers.model.shell_words import quoted
from rmqtx.readers.storage.file_systems import files_of
from rmqtx.readers.store.store import BEGUN_MARK
from rmqtx.repairs.changes.apply_edits import differs, not_between
from rmqtx.repairs.changes.edits import Edit, real_file
from rmqtx.repairs.changes.file_operations import FileOperations, attributes_of_new
from rmqtx.repairs.changes.fingerprints import differences, files_below, fingerprint
from rmqtx.repairs.changes.undo_files import APPLIED, APPLYING, STATES, UNDOING, UndoFile, read_undo_file

_MARK_BYTES_MAX = 1 << 16
_FORM = JsonForm(
    "mark of changes that were begun", pa.struct([needed("undo_file", pa.binary()), needed("undo_id", pa.string())])
)


@dataclass(frozen=True, slots=True)
class BegunMark:
    """The content of a mark: the undo file, and its id."""

    undo_file: Path
    undo_id: str


def commands_to_finish(path: Path) -> str:
    """Advice for changes that were begun and not completed."""
    undo = f"rmqtx undo {quoted(str(path))}"
    return f"to revert the changes: {undo}; to complete them: {undo} --resume"


def put_mark(root: Path, undo_file: UndoFile, files: FileOperations) -> None:
    """Write the mark into a store; it is on disk when this returns. Raises: UnwritableFile."""
    wanted = BegunMark(undo_file.path, undo_file.undo_id)
    if read_mark(root) == wanted:
        files.sync_directory(root)  # after a crash the mark may not be durable yet
        return
    file = root / BEGUN_MARK
    if file.exists():
        files.remove(file)  # of a completed undo file, or torn
    text = json.dumps({"undo_file": str(wanted.undo_file), "undo_id": wanted.undo_id}, ensure_ascii=True)
    try:
        files.create(file, 0)
        files.write(file, 0, text.encode("ascii") + b"\n")
        files.set_attributes(file, attributes_of_new(root))
        files.sync_file(file)
    except RmqtxError:
        with contextlib.suppress(OSError):
            file.unlink()
        raise
    files.sync_directory(root)


def remove_mark(root: Path, undo_file: UndoFile, files: FileOperations) -> None:
    """Remove the mark of a completed undo file. Raises: UnwritableFile."""
    mark = read_mark(root)
    if mark is not None and mark.undo_id == undo_file.undo_id:
        files.remove(root / BEGUN_MARK)
        files.sync_directory(root)


def read_mark(root: Path) -> BegunMark | None:
    """Return the mark in a store; None without one, or for a torn mark, since nothing was changed then yet.

    Raises: UnreadableFile.
    """
    file = root / BEGUN_MARK
    try:
        data = files_of(str(root), 0).content(str(file), _MARK_BYTES_MAX)
    except UnreadableFile:  # for example a pipe, which rmqtx does not make
        return None
    except OSError as error:
        raise UnreadableFile(f"cannot read {file}: {error.strerror}", file=file) from error
    try:
        values = _FORM.read(data or b"", str(file))
    except BadText:
        return None
    return BegunMark(Path(values["undo_file"]), values["undo_id"])


def require_nothing_begun(root: Path, but: str | None = None) -> None:
    """Refuse a store that is partly changed: another act would be based on an incomplete change.

    If a broker was started on it anyway, it has cut its log after the last whole record, and the change can no longer
    be reverted or completed: the store counts as it is. `but`: the id of an undo file whose changes are accepted.
    Raises: UnsafeStore, which names the undo file; UnreadableFile.
    """
    mark = read_mark(root)
    if mark is None or mark.undo_id == but:
        return
    what = f"changes of {root} were begun and not completed"
    try:
        undo_file = read_undo_file(mark.undo_file)
    except (UnreadableFile, FormatError) as error:
        raise _lost(f"{what}, and {error.message}", root, mark) from error
    if undo_file.undo_id != mark.undo_id:
        raise _lost(f"{what}, and {mark.undo_file} is now the undo file of other changes", root, mark)
    if undo_file.state in (APPLYING, UNDOING) and not differences_since(undo_file, root, times=False):
        raise UnsafeStore(what, file=mark.undo_file, advice=commands_to_finish(mark.undo_file))


def _lost(what: str, root: Path, mark: BegunMark) -> UnsafeStore:
    return UnsafeStore(
        what, file=mark.undo_file,
        advice=f"find that undo file; or, if a broker has run on the store since, remove {root / BEGUN_MARK}",
    )


def differences_since(undo_file: UndoFile, root: Path, *, times: bool) -> list[str]:
    """Return the differences of a store since the last state of an undo file, in a few words each.

    `times`: whether a file whose time has changed counts as changed.
    Raises: UnreadableFile.
    """
    edits = undo_file.edits
    then = [
        one if one.modified_ns is None else replace(one, modified_ns=undo_file.times.get(one.path, one.modified_ns))
        for one in undo_file.fingerprint
    ]
    found = differences(then, fingerprint(root, edits), times=times)
    if undo_file.state in (APPLYING, UNDOING):
        return found + [what for edit in edits if (what := not_between(edit, root))]
    forward = undo_file.state == APPLIED
    found += [what for edit in edits if (what := differs(edit, root, forward=forward))]
    if times and not found:
        now, others = _times_of(edits, root), {one.path for one in then if one.modified_ns is not None}
        found += [
            f"{path} has another time: it was written to, or is a copy"
            for path, time_ns in undo_file.times.items() if path not in others and now.get(path) != time_ns
        ]
    return found


def times_to_keep(undo_file: UndoFile, root: Path) -> dict[str, int]:
    """Times of the changed files that exist, and of others that have a new time, which was accepted (`--ignore-times`).

    Units: nanoseconds.
    """
    planned = {one.path: one.modified_ns for one in undo_file.fingerprint if one.modified_ns is not None}
    others = {path: status.st_mtime_ns for path, _, status in files_below(root) if path in planned}
    return {
        **{path: time_ns for path, time_ns in others.items() if time_ns != planned[path]},
        **_times_of(undo_file.edits, root),
    }


def _times_of(edits: Sequence[Edit], root: Path) -> dict[str, int]:
    files = {edit.path: real_file(root, edit.path) for edit in edits}
    return {path: file.stat().st_mtime_ns for path, file in files.items() if file.exists()}


def undo_file_exists(file: Path) -> RmqtxError:
    """Return the error for a new undo file that exists already; it names the commands that finish begun changes."""
    try:
        state = read_undo_file(Path(os.path.realpath(file))).state
    except (FormatError, UnreadableFile):
        return BadRequest(f"{file} exists already", advice="give a new undo file")
    what = f"{file} exists already: {STATES[state]}"
    if state in (APPLYING, UNDOING):
        return UnsafeStore(what, file=file, advice=commands_to_finish(file))
    return BadRequest(what, advice="give a new undo file")
