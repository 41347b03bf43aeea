"""The changes of an undo file as a table."""

from __future__ import annotations

import pyarrow as pa

from rmqtx.readers.model.tables import column
from rmqtx.repairs.changes.edits import KINDS
from rmqtx.repairs.changes.undo_files import UndoFile

#: One change of one file.
EDITS = pa.schema(
    [
        column("path", pa.string(), "the file, below the store's root"),
        column("change", pa.string(), f"the change: one of {', '.join(KINDS)}"),
        column("position_bytes", pa.int64(), "position in the file; null for a whole file"),
        column("before_bytes", pa.int64(), "number of bytes before the change; null where there was no file"),
        column("after_bytes", pa.int64(), "number of bytes after the change; null where there is no file"),
        column("group", pa.int32(), "number of barriers before the change: earlier groups were on disk first"),
    ]
)


def table(undo_file: UndoFile) -> pa.Table:
    """The changes of an undo file.

    Shape: EDITS.
    Order: as they are made; undo reverses it.
    """
    rows = [
        {
            "path": edit.path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"),
            "change": edit.kind, "position_bytes": edit.position_bytes,
            "before_bytes": None if edit.before is None else edit.before.size_bytes,
            "after_bytes": None if edit.after is None else edit.after.size_bytes, "group": edit.group,
        }
        for edit in undo_file.edits
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=EDITS)
