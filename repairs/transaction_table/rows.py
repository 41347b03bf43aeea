"""The rows of a database table of open transactions (3.2 to 4.2) in one transaction of its database, to be changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from readers.ledger.databases import database, first_line
from readers.ledger.ledger import SQLITE
from readers.ledger.table_values import value_text
from readers.model.errors import BadRequest, UnreadableFile, UnwritableFile
from readers.old_tables.transaction_table import TableAddress, chosen_columns, column_names

Login = tuple[str | None, str | None]
#: Engines of MySQL and MariaDB that keep tables without transactions.
_WITHOUT_TRANSACTIONS = ("myisam", "aria", "memory", "csv", "archive")


class Rows(Protocol):
    """The rows of a table inside one transaction of its database."""

    def groups(self, offset: int) -> list[str | None]:
        """The producer groups of all rows with an offset; nobody else can change these rows until the end."""

    def whole(self, offset: int) -> dict[str, Any]:
        """The row with an offset, with all its columns as the database has them."""

    def delete(self, offset: int) -> None:
        """Take the row with an offset out."""

    def add(self, offset: int, group: str | None) -> None:
        """Put a row in."""

    def restore(self, row: Mapping[str, Any]) -> None:
        """Put a row in as `whole` gave it."""


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
            names = column_names(address, engine)
            with engine.begin() as connection:
                yield _SqlAlchemyRows(address, names, connection)
        except SQLAlchemyError as error:
            raise UnwritableFile(f"{address.name}: {first_line(error)}") from error


def kept_without_transactions(address: TableAddress, login: Login) -> str | None:
    """The engine that keeps a table, if it has no transactions: there a crash can leave some rows changed, others not.

    Raises: BadRequest, UnreadableFile.
    """
    if address.location.startswith(SQLITE) or address.is_file:
        return None
    with database(address.location, login) as engine:
        from sqlalchemy import inspect
        from sqlalchemy.exc import SQLAlchemyError

        schema, _, name = address.table.rpartition(".")
        try:
            options: Mapping[str, Any] = inspect(engine).get_table_options(name, schema=schema or None)
        except NotImplementedError:  # databases whose tables have no options
            return None
        except SQLAlchemyError as error:
            raise UnreadableFile(f"cannot read {address.name}: {first_line(error)}") from error
    kept_by = [str(value) for option, value in options.items() if option.endswith("_engine")]
    return next((one for one in kept_by if one.lower() in _WITHOUT_TRANSACTIONS), None)


class _SqlAlchemyRows:
    """Rows of a database that SQLAlchemy knows; names are quoted, for OFFSET is reserved in some."""

    def __init__(self, address: TableAddress, names: list[str], connection: Any) -> None:
        from sqlalchemy import column as sql_column
        from sqlalchemy import table as sql_table
        from sqlalchemy.sql import quoted_name

        schema, _, name = address.table.rpartition(".")
        columns = {one: sql_column(quoted_name(one, quote=True)) for one in names}
        offset, group = chosen_columns(address, names)
        self._columns, self._offset, self._group = columns, columns[offset], columns[group]
        within = quoted_name(schema, quote=True) if schema else None
        self._table = sql_table(quoted_name(name, quote=True), *columns.values(), schema=within)
        self._connection = connection

    def groups(self, offset: int) -> list[str | None]:
        """See `Rows`."""
        return [value_text(row[0]) for row in self._rows([self._group], offset)]

    def whole(self, offset: int) -> dict[str, Any]:
        """See `Rows`."""
        (row,) = self._rows(list(self._columns.values()), offset)
        return dict(zip(self._columns, row, strict=True))

    def _rows(self, columns: list[Any], offset: int) -> list[Any]:
        from sqlalchemy import select

        statement = select(*columns).select_from(self._table).where(self._offset == offset).with_for_update()
        return list(self._connection.execute(statement))

    def delete(self, offset: int) -> None:
        """See `Rows`."""
        self._connection.execute(self._table.delete().where(self._offset == offset))

    def add(self, offset: int, group: str | None) -> None:
        """See `Rows`."""
        self.restore({self._offset.name: offset, self._group.name: group})

    def restore(self, row: Mapping[str, Any]) -> None:
        """See `Rows`."""
        self._connection.execute(self._table.insert().values({str(name): value for name, value in row.items()}))


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
        chosen_columns(address, there)
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield _SqliteRows(address, there, connection)
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

    def __init__(self, address: TableAddress, names: list[str], connection: sqlite3.Connection) -> None:
        self._connection, self._names = connection, names
        self._offset, self._group = chosen_columns(address, names)
        self._table = _quoted(address.table)
        self._where = f"WHERE CAST({_quoted(self._offset)} AS INTEGER) = ?"

    def groups(self, offset: int) -> list[str | None]:
        """See `Rows`."""
        statement = f"SELECT {_quoted(self._group)} FROM {self._table} {self._where}"
        return [value_text(row[0]) for row in self._connection.execute(statement, (offset,))]

    def whole(self, offset: int) -> dict[str, Any]:
        """See `Rows`."""
        chosen = ", ".join(_quoted(name) for name in self._names)
        (row,) = self._connection.execute(f"SELECT {chosen} FROM {self._table} {self._where}", (offset,))
        return dict(zip(self._names, row, strict=True))

    def delete(self, offset: int) -> None:
        """See `Rows`."""
        self._connection.execute(f"DELETE FROM {self._table} {self._where}", (offset,))

    def add(self, offset: int, group: str | None) -> None:
        """See `Rows`."""
        self.restore({self._offset: offset, self._group: group})

    def restore(self, row: Mapping[str, Any]) -> None:
        """See `Rows`."""
        names, values = ", ".join(_quoted(name) for name in row), ", ".join("?" for _ in row)
        self._connection.execute(f"INSERT INTO {self._table} ({names}) VALUES ({values})", tuple(row.values()))
