"""Changes of rows of a database table, in one transaction of the database, with the way back on the disk first.

The undo file has each row as it was. A crash before the database's commit leaves the table as it was, one after it the
table as planned: each row says which, so applying and undoing can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from readers.model.errors import BadRequest, BadText, StoreChanged, UnwritableFile
from readers.old_tables.transaction_table import TableAddress
from repairs.transaction_table.plan import ADD, DELETE, TableStep
from repairs.transaction_table.rows import Login, Rows, changed_rows
from repairs.transaction_table.undo import Row, TableUndo, read_undo, taken, undo_text, write_undo

#: How rows stand to steps.
BEFORE, AFTER, BETWEEN = "before", "after", "between"


def apply_steps(
    steps: Sequence[TableStep], address: TableAddress, login: Login, undo_file: Path, made_ms: int, *,
    receipts: Sequence[str] = (), begun: Callable[[], None] = lambda: None,
) -> None:
    """Have rows changed, all or none.

    `undo_file`: one that is there must be of the same steps, from a run that was interrupted. `receipts`: ids that it
    shall bear. `begun` is called when nothing but the database itself can stop it any more.
    Raises: StoreChanged where a row is not as planned, and nothing is done; BadRequest, UnreadableFile, UnwritableFile.
    """
    earlier = undo_of(undo_file, steps, address)
    with changed_rows(address, login) as rows:
        for step in steps:
            if not _is_before(step, rows):
                raise StoreChanged(
                    f"{address.name}: the row of offset {step.half_commit_log_offset} is not as planned",
                    advice="make the plan again",
                )
        whole = tuple(rows.whole(step.half_commit_log_offset) if step.action == DELETE else None for step in steps)
        every = (*(() if earlier is None else earlier.receipts), *receipts)
        text = undo_text(TableUndo(address, tuple(steps), whole, every), made_ms)
        write_undo(undo_file, text, may_replace=earlier is not None)
        begun()
        for step in steps:
            _make(step, rows)
    _prove(steps, address, login)


def undo_steps(text: str, name: str, login: Login) -> tuple[TableAddress, int]:
    """Have rows as they were before; gives the table, and how many rows had to be changed for that.

    Raises: StoreChanged where a row is neither as it was nor as it was planned: nothing is done then; BadRequest.
    """
    undo = read_undo(text, name)
    count = 0
    with changed_rows(undo.address, login) as rows:
        for step, row in zip(undo.steps, undo.rows, strict=True):
            if _is_before(step, rows):
                continue
            back = opposite(step)
            if not _is_before(back, rows):
                raise StoreChanged(
                    f"{undo.address.name}: the row of offset {step.half_commit_log_offset} was changed since",
                    advice="nothing was undone; look at the table",
                )
            _make(back, rows, row)
            count += 1
    _prove([opposite(step) for step in undo.steps], undo.address, login)
    return undo.address, count


def undo_of(file: Path, steps: Sequence[TableStep], address: TableAddress) -> TableUndo | None:
    """The undo file of an earlier run with the same steps; None where no file is there.

    Raises: BadRequest for another file.
    """
    try:
        undo = read_undo(file.read_text(encoding="utf-8"), str(file))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, BadRequest, BadText) as error:
        raise taken(file) from error
    if not undo.is_of(steps, address):
        raise taken(file)
    return undo


def standing_of_rows(steps: Sequence[TableStep], address: TableAddress, login: Login) -> str:
    """How a table's rows stand to steps: BEFORE or AFTER all of them, or BETWEEN.

    Raises: BadRequest, UnreadableFile, UnwritableFile.
    """
    with changed_rows(address, login) as rows:
        if all(_is_before(step, rows) for step in steps):
            return BEFORE
        return AFTER if all(_is_before(opposite(step), rows) for step in steps) else BETWEEN


def opposite(step: TableStep) -> TableStep:
    """The step that takes another back."""
    action = ADD if step.action == DELETE else DELETE
    return TableStep(action, step.half_commit_log_offset, step.producer_group, step.reason)


def _is_before(step: TableStep, rows: Rows) -> bool:
    there = rows.groups(step.half_commit_log_offset)
    return there == ([step.producer_group] if step.action == DELETE else [])


def _make(step: TableStep, rows: Rows, row: Row | None = None) -> None:
    if step.action == DELETE:
        rows.delete(step.half_commit_log_offset)
    elif row is not None:
        rows.restore(row)
    else:
        rows.add(step.half_commit_log_offset, step.producer_group)


def _prove(steps: Sequence[TableStep], address: TableAddress, login: Login) -> None:
    """Read back what was changed, in a transaction of its own.

    Raises: UnwritableFile where the database has it otherwise.
    """
    with changed_rows(address, login) as rows:
        for step in steps:
            if not _is_before(opposite(step), rows):
                raise UnwritableFile(
                    f"{address.name}: the row of offset {step.half_commit_log_offset} is not as it was written",
                    advice="look at the table; the undo file has each row as it was",
                )
