"""Open databases with SQLAlchemy, and convert values of their tables, of any declared type and export format."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rmqtx.readers.model.errors import BadRequest

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine

_DECIMAL = re.compile(r"\s*\+?0*([0-9]{1,19})(?:\.0*)?\s*")
#: The form of large numbers in exported floating-point columns: 1.23456789012e+11.
_SCIENTIFIC = re.compile(r"\s*\+?[0-9]{1,20}(?:\.[0-9]{1,20})?[eE]\+?[0-9]{1,2}\s*")
_OFFSET_MAX = 2**63 - 1


@contextmanager
def database(location: str, login: tuple[str | None, str | None]) -> Iterator[Engine]:
    """Open a database with SQLAlchemy; connections are closed at the end of the context.

    Raises: BadRequest for an invalid address, or if SQLAlchemy or the database's driver is not installed.
    """
    try:
        import sqlalchemy
    except ImportError as error:
        raise BadRequest(
            "cannot read a database: SQLAlchemy is not installed",
            advice="pip install 'rmqtx[database]' and the database's driver, or give sqlite:///FILE, CSV or Parquet",
        ) from error
    try:
        url = sqlalchemy.make_url(location)
        if url.password is not None:
            raise BadRequest("--transaction-table contains a password, which other users of this machine could read")
        if login[0] is not None:
            url = url.set(username=login[0], password=login[1])
        engine = sqlalchemy.create_engine(url)
    except (sqlalchemy.exc.ArgumentError, sqlalchemy.exc.NoSuchModuleError) as error:
        advice = "give an address like mysql+pymysql://HOST/DATABASE"
        raise BadRequest(f"{location}: {first_line(error)}", advice=advice) from error
    except ImportError as error:
        raise BadRequest(f"{location}: {error}", advice="install the database's driver: pip install ...") from error
    sqlalchemy.event.listen(engine, "do_connect", functools.partial(_connected, location))
    try:
        yield engine
    finally:
        engine.dispose()


def _connected(location: str, dialect: Any, _record: Any, arguments: Any, named: Any) -> Any:
    """Open a connection.

    Raises: BadRequest if the driver fails before it connects: a package for the login is missing, or the password has
            characters that the driver cannot send (PyMySQL: none beyond Latin-1).
    """
    try:
        return dialect.connect(*arguments, **named)
    except (RuntimeError, UnicodeError) as error:
        advice = "install the package that the driver names, or use another driver"
        raise BadRequest(f"{location}: the driver cannot log in: {error}", advice=advice) from error


def first_line(error: Exception) -> str:
    """Return the first line of an error message of a database or its driver."""
    cause: Any = getattr(error, "orig", None) or error
    if len(cause.args) == 2 and isinstance(cause.args[1], str):  # drivers of MySQL: a number and a text
        cause = cause.args[1]
    return str(cause).strip().split("\n", 1)[0]


def number_of(text: str | None) -> int | None:
    """Return the number of a decimal text as databases and exports write it; None if it is not an offset."""
    found = _DECIMAL.fullmatch(text or "")
    if found is not None:
        number = int(found.group(1))
    elif text is not None and _SCIENTIFIC.fullmatch(text):
        value = Decimal(text.strip())
        number = int(value) if value == value.to_integral_value() else -1
    else:
        return None
    return number if 0 <= number <= _OFFSET_MAX else None


def column_texts(values: pa.Array | pa.ChunkedArray, name: str) -> list[str | None]:
    """Return the values of a column as text. Raises: BadRequest for lists and other nested types."""
    if pa.types.is_nested(values.type):
        raise BadRequest(f"{name}: a column has type {values.type}, which is neither an offset nor a group")
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    kind = values.type
    if pa.types.is_temporal(kind):
        values = values.cast(pa.string())
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        values = values.cast(pa.large_binary())  # texts in Parquet may be any bytes
    return [value_text(value) for value in values.to_pylist()]


def value_text(value: object) -> str | None:
    """Return a value of a database as text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return None if value is None else str(value)
