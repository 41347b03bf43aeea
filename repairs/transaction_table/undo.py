"""The undo file of changed rows of a database table: each row as it was, with all its columns.

It is on the disk before the first row is changed. JSON lines: the first says which table it is of and whose receipts it
bears, each other is a step with the row that it takes out.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from readers.ledger.table_values import number_of, value_text
from readers.model.errors import BadRequest, BadText
from readers.old_tables.transaction_table import TableAddress
from repairs.changes.file_operations import FileOperations, told
from repairs.transaction_table.plan import VERSION, TableStep, address_of, address_row, read_lines, step_rows, steps_of
from verdicts.audit.provenance import tool

KIND = "rmqtx-table-undo"
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TableUndo:
    """What an undo file holds.

    Shape: `rows` is for each step the whole row that it takes out; None for one that it puts in. `receipts`: ids.
    """

    address: TableAddress
    steps: tuple[TableStep, ...]
    rows: tuple[Row | None, ...]
    receipts: tuple[str, ...]

    def is_of(self, steps: Sequence[TableStep], address: TableAddress) -> bool:
        """Whether it was written for certain steps."""
        return self.address == address and self.steps == tuple(steps)


def undo_text(undo: TableUndo, made_ms: int) -> str:
    """An undo file's text.

    Raises: BadRequest for a value that it cannot hold.
    """
    head = {
        "kind": KIND, "version": VERSION, "made_by": tool(), "made_time_ms": made_ms, "receipts": list(undo.receipts),
        "transaction_table": address_row(undo.address),
    }  # fmt: skip
    lines: list[dict[str, Any]] = [head]
    for step, row in zip(step_rows(undo.steps), undo.rows, strict=True):
        kept = None if row is None else {name: _kept(name, value) for name, value in row.items()}
        lines.append({**step, "row": kept})
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def read_undo(text: str, name: str) -> TableUndo:
    """What is in an undo file.

    Raises: BadText for what is none.
    """
    head, lines = read_lines(text, name, KIND)
    address = address_of(head)
    rows: list[Row | None] = []
    for line in lines:
        row = line.get("row")
        try:
            rows.append(None if row is None else {str(key): _given(value) for key, value in row.items()})
        except (AttributeError, TypeError, ValueError, ArithmeticError) as error:
            raise BadText(f"{name} has a row that cannot be put back: {json.dumps(line)[:120]}", file=name) from error
        if row is not None and not _is_row_of(rows[-1] or {}, line["half_commit_log_offset"], address):
            raise BadText(f"{name} has a row that is not that of its step: {json.dumps(line)[:120]}", file=name)
    return TableUndo(address, steps_of(lines), tuple(rows), tuple(head.get("receipts") or ()))


def _is_row_of(row: Row, offset: int, address: TableAddress) -> bool:
    """Whether a row that is put back is that of a step: the undo file may come from elsewhere."""
    wanted = address.offset_column.lower()
    values = [value for name, value in row.items() if name.lower() == wanted]
    return len(values) == 1 and number_of(value_text(values[0])) == offset


def _kept(name: str, value: object) -> object:
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return {"float": repr(value)}
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, datetime):
        return {"datetime": value.isoformat()}
    if isinstance(value, date):
        return {"date": value.isoformat()}
    raise BadRequest(
        f"column {name} holds {type(value).__name__}, which an undo file cannot keep",
        advice="delete such rows by the database's own means",
    )


_GIVEN: dict[str, Callable[[str], Any]] = {
    "float": float, "decimal": Decimal, "bytes": bytes.fromhex, "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
}  # fmt: skip


def _given(kept: Any) -> Any:
    if not isinstance(kept, dict):
        return kept
    ((kind, text),) = kept.items()
    if kind not in _GIVEN:
        raise ValueError(kind)
    return _GIVEN[kind](text)


def write_undo(file: Path, text: str, *, may_replace: bool) -> None:
    """Have an undo file on the disk, whole or not at all.

    `may_replace`: whether it may take the place of one that is there.
    Raises: BadRequest for a file that is there; UnwritableFile.
    """
    directory = file.absolute().parent
    with told(file):
        descriptor, temporary = tempfile.mkstemp(prefix=f".{file.name}.", dir=directory)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(text.encode())
                stream.flush()
                os.fsync(stream.fileno())
            if may_replace:
                Path(temporary).replace(file)
            else:
                os.link(temporary, file)  # unlike a rename it takes no name that is there
        except FileExistsError as error:
            raise taken(file) from error
        finally:
            Path(temporary).unlink(missing_ok=True)
    FileOperations().sync_directory(directory)


def taken(file: Path) -> BadRequest:
    """What to say of a file that is there, and is no undo file of the same steps."""
    return BadRequest(f"{file} is there already", advice="--undo names a file that is not there yet")
