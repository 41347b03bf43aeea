"""What an undo file holds, as a table."""

from __future__ import annotations

import pyarrow as pa

from readers.model.tables import column
from repairs.changes.edits import KINDS
from repairs.changes.undo_files import UndoFile

#: One change of one file.
EDITS = pa.schema(
    [
        column("path", pa.string(), "the file, below the store's root"),
        column("change", pa.string(), f"what was done to it: one of {', '.join(KINDS)}"),
        column("position_bytes", pa.int64(), "where in the file; null where all of it is meant"),
        column("before_bytes", pa.int64(), "how many bytes were there before; null where there was no file"),
        column("after_bytes", pa.int64(), "how many bytes are there after it; null where there is no file"),
        column("group", pa.int32(), "how many times everything had to be on the disk before this was begun"),
    ]
)


def table(undo_file: UndoFile) -> pa.Table:
    """The changes of an undo file.

    Shape: EDITS.
    Order: as they are made; undoing goes the other way.
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
