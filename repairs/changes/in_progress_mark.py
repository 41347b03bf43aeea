"""A mark in the root of a store whose files are being changed: where its undo file is, for whoever looks next.

The undo file lies elsewhere, and the journal may be another user's. The mark is on the disk before the first byte of
the store changes, and is removed when the undo file says that all is done, or undone. So a store without it, or whose
mark names an undo file that is through, is never half of anything. Brokers take no notice of it.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from readers.model.declared_json import JsonForm, needed
from readers.model.errors import BadText, FormatError, RmqtxError, UnreadableFile, UnsafeStore
from readers.storage.file_systems import files_of
from readers.store.store import BEGUN_MARK
from repairs.changes.file_operations import FileOperations, attributes_of_new
from repairs.changes.undo_differences import differences_since
from repairs.changes.undo_files import APPLYING, UNDOING, UndoFile, read_undo_file

_MARK_BYTES_MAX = 1 << 16
_FORM = JsonForm(
    "mark of changes that were begun", pa.struct([needed("undo_file", pa.binary()), needed("undo_id", pa.string())])
)


@dataclass(frozen=True, slots=True)
class BegunMark:
    """What a mark says: the undo file, and its id."""

    undo_file: Path
    undo_id: str


def way_on(path: Path) -> str:
    """What somebody can do whose changes were begun and not completed."""
    return f"rmqtx undo {path} then brings the store back, and with --resume completes the changes"


def put_mark(root: Path, undo_file: UndoFile, files: FileOperations) -> None:
    """Say in a store that changes of it are begun; it is on the disk when this returns.

    Raises: UnwritableFile.
    """
    wanted = BegunMark(undo_file.path, undo_file.undo_id)
    if read_mark(root) == wanted:
        files.sync_directory(root)  # a crash before may not have left it there for good
        return
    file = root / BEGUN_MARK
    if file.exists():
        files.remove(file)  # of one that is through, or torn
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
    """Remove the mark of an undo file that is through.

    Raises: UnwritableFile.
    """
    mark = read_mark(root)
    if mark is not None and mark.undo_id == undo_file.undo_id:
        files.remove(root / BEGUN_MARK)
        files.sync_directory(root)


def read_mark(root: Path) -> BegunMark | None:
    """The mark in a store; None without one, or for one that a crash tore: nothing was changed then yet.

    Raises: UnreadableFile.
    """
    file = root / BEGUN_MARK
    try:
        data = files_of(str(root), 0).content(str(file), _MARK_BYTES_MAX)
    except UnreadableFile:  # a pipe, say: none of ours
        return None
    except OSError as error:
        raise UnreadableFile(f"cannot read {file}: {error.strerror}", file=file) from error
    try:
        values = _FORM.read(data or b"", str(file))
    except BadText:
        return None
    return BegunMark(Path(values["undo_file"]), values["undo_id"])


def require_nothing_begun(root: Path, but: str | None = None) -> None:
    """Refuse a store that is half changed: who adds to it would act on what was done already.

    A broker that was started on it nevertheless has cut its log behind the last whole record, and nothing of the change
    can be taken back or completed any more: what is there then counts. `but`: the id of an undo file whose own changes
    may be the begun ones.
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
        raise _lost(f"{what}, and {mark.undo_file} is the way back from others", root, mark)
    if undo_file.state in (APPLYING, UNDOING) and not differences_since(undo_file, root, times=False):
        raise UnsafeStore(what, file=mark.undo_file, advice=way_on(mark.undo_file))


def _lost(what: str, root: Path, mark: BegunMark) -> UnsafeStore:
    return UnsafeStore(
        what, file=mark.undo_file,
        advice=f"find that undo file; if a broker has run on the store since, remove {root / BEGUN_MARK}",
    )
