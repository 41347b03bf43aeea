"""Open databases with SQLAlchemy; a failure is one line with the message of the database or its driver."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rmqtx.readers.model.errors import BadRequest

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine


@contextmanager
def database(location: str, login: tuple[str | None, str | None]) -> Iterator[Engine]:
    """Open a database with SQLAlchemy; connections are closed at the end of the context.

    Raises: BadRequest for an invalid address, or if SQLAlchemy or the database's driver is not installed.
    """
    try:
        import sqlalchemy
        from sqlalchemy.engine import make_url
    except ImportError as error:
        raise BadRequest(
            "cannot read a database: SQLAlchemy is not installed",
            advice="pip install 'rmqtx[database]' and the database's driver, or give sqlite:///FILE, CSV or Parquet",
        ) from error
    try:
        url = make_url(location)
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
