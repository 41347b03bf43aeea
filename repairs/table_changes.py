"""Changes of rows of a database table, in one transaction of the database, with the way back on the disk first.

The undo file has each row as it was. A crash before the database's commit leaves the table as it was, one after it the
table as planned: each row says which, so undoing can be repeated.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from readers.custody import tool
from readers.errors import BadRequest, StoreChanged, UnreadableFile, UnwritableFile
from readers.ledger import SQLITE
from readers.transaction_table import TableAddress, chosen_columns, columns_of, database, first_line
from repairs.file_operations import FileOperations, told
from repairs.table_plans import ADD, DELETE, VERSION, TableStep, address_of, read_lines, step_rows, steps_of

UNDO_KIND = "rmqtx-table-undo"
Login = tuple[str | None, str | None]


class Rows(Protocol):
    """The rows of a table inside one transaction of its database."""

    def groups(self, offset: int) -> list[str | None]:
        """The producer groups of all rows with an offset."""

    def delete(self, offset: int) -> None:
        """Take the row with an offset out."""

    def add(self, offset: int, group: str | None) -> None:
        """Put a row in."""


def apply_steps(steps: Sequence[TableStep], address: TableAddress, login: Login, undo_file: Path, made_ms: int) -> None:
    """Have rows changed, all or none.

    Raises: StoreChanged where a row is not as planned, and nothing is done; BadRequest, UnreadableFile, UnwritableFile.
    """
    with changed_rows(address, login) as rows:
        for step in steps:
            if not _is_before(step, rows):
                raise StoreChanged(
                    f"{address.name}: the row of offset {step.half_commit_log_offset} is not as planned",
                    advice="make the plan again",
                )
        _write_undo(undo_file, steps, address, made_ms)
        for step in steps:
            _make(step, rows)
    _prove(steps, address, login)


def undo_steps(text: str, name: str, login: Login) -> tuple[TableAddress, int]:
    """Have rows as they were before; gives the table, and how many rows had to be changed for that.

    Raises: StoreChanged where a row is neither as it was nor as it was planned: nothing is done then; BadRequest.
    """
    head, lines = read_lines(text, name, UNDO_KIND)
    address, steps = address_of(head, name), steps_of(lines, name)
    count = 0
    with changed_rows(address, login) as rows:
        for step in steps:
            if _is_before(step, rows):
                continue
            back = opposite(step)
            if not _is_before(back, rows):
                raise StoreChanged(
                    f"{address.name}: the row of offset {step.half_commit_log_offset} was changed since",
                    advice="nothing was undone; look at the table",
                )
            _make(back, rows)
            count += 1
    _prove([opposite(step) for step in steps], address, login)
    return address, count


def opposite(step: TableStep) -> TableStep:
    """The step that takes another back."""
    action = ADD if step.action == DELETE else DELETE
    return TableStep(action, step.half_commit_log_offset, step.producer_group, step.reason)


def _is_before(step: TableStep, rows: Rows) -> bool:
    there = rows.groups(step.half_commit_log_offset)
    return there == ([step.producer_group] if step.action == DELETE else [])


def _make(step: TableStep, rows: Rows) -> None:
    if step.action == DELETE:
        rows.delete(step.half_commit_log_offset)
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


def _write_undo(file: Path, steps: Sequence[TableStep], address: TableAddress, made_ms: int) -> None:
    head: dict[str, Any] = {
        "kind": UNDO_KIND, "version": VERSION, "made_by": tool(), "made_time_ms": made_ms,
        "transaction_table": {
            "location": address.location, "table": address.table, "offset_column": address.offset_column,
            "group_column": address.group_column,
        },
    }  # fmt: skip
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in (head, *step_rows(tuple(steps))))
    if file.exists():
        raise BadRequest(f"{file} is there already", advice="--undo names a file that is not there yet")
    with told(file):
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(text.encode())
            stream.flush()
            os.fsync(stream.fileno())
    FileOperations().sync_directory(file.absolute().parent)


# --- databases --------------------------------------------------------------------------------------------------------


@contextmanager
def changed_rows(address: TableAddress, login: Login) -> Iterator[Rows]:
    """A table's rows in one transaction, which is committed at the end, and rolled back where that is not reached.

    Raises: BadRequest for a table that can only be read; UnreadableFile, UnwritableFile with the database's own word.
    """
    if address.location.startswith(SQLITE):
        with _sqlite(address) as rows:
            yield rows
        return
    if address.is_file or address.location.startswith("jdbc:"):
        raise BadRequest(
            f"{address.name} can only be read here", advice="give sqlite:///FILE, or a URL of SQLAlchemy with a driver"
        )
    with database(address.location, login) as engine:
        from sqlalchemy.exc import SQLAlchemyError

        try:
            offset, group = columns_of(address, engine)
            with engine.begin() as connection:
                yield _SqlAlchemyRows(address.table, offset, group, connection)
        except SQLAlchemyError as error:
            raise UnwritableFile(f"{address.name}: {first_line(error)}") from error


@contextmanager
def _sqlite(address: TableAddress) -> Iterator[Rows]:
    path = Path(address.location.removeprefix(SQLITE))
    if not path.is_file():
        raise UnreadableFile(f"{path} does not exist", file=path)
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        there = [row[1] for row in connection.execute(f"PRAGMA table_info({_quoted(address.table)})")]
        if not there:
            raise BadRequest(f"{path} has no table {address.table}", advice="--table names it")
        offset, group = chosen_columns(address, there)
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield _SqliteRows(address.table, offset, group, connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    except sqlite3.Error as error:
        raise UnwritableFile(f"{address.name}: {error}", file=path) from error
    finally:
        connection.close()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class _SqliteRows:
    """Rows of a SQLite file; an offset that is text is the number that it says."""

    def __init__(self, table: str, offset: str, group: str, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._table, self._offset, self._group = _quoted(table), _quoted(offset), _quoted(group)

    def groups(self, offset: int) -> list[str | None]:
        """See `Rows`."""
        statement = f"SELECT {self._group} FROM {self._table} WHERE CAST({self._offset} AS INTEGER) = ?"
        return [row[0] for row in self._connection.execute(statement, (offset,))]

    def delete(self, offset: int) -> None:
        """See `Rows`."""
        self._connection.execute(f"DELETE FROM {self._table} WHERE CAST({self._offset} AS INTEGER) = ?", (offset,))

    def add(self, offset: int, group: str | None) -> None:
        """See `Rows`."""
        names = f"{self._offset}, {self._group}"
        self._connection.execute(f"INSERT INTO {self._table} ({names}) VALUES (?, ?)", (offset, group))


class _SqlAlchemyRows:
    """Rows of a database that SQLAlchemy knows; names are quoted, for OFFSET is reserved in some."""

    def __init__(self, table: str, offset: str, group: str, connection: Any) -> None:
        from sqlalchemy import column as sql_column
        from sqlalchemy import table as sql_table
        from sqlalchemy.sql import quoted_name

        schema, _, name = table.rpartition(".")
        self._offset, self._group = (sql_column(quoted_name(one, quote=True)) for one in (offset, group))
        within = quoted_name(schema, quote=True) if schema else None
        self._table = sql_table(quoted_name(name, quote=True), self._offset, self._group, schema=within)
        self._connection = connection

    def groups(self, offset: int) -> list[str | None]:
        """See `Rows`."""
        from sqlalchemy import select

        statement = select(self._group).select_from(self._table).where(self._offset == offset)
        return [row[0] for row in self._connection.execute(statement)]

    def delete(self, offset: int) -> None:
        """See `Rows`."""
        self._connection.execute(self._table.delete().where(self._offset == offset))

    def add(self, offset: int, group: str | None) -> None:
        """See `Rows`."""
        self._connection.execute(self._table.insert().values({self._offset.name: offset, self._group.name: group}))
