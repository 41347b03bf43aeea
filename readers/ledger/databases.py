"""Databases that SQLAlchemy knows; what cannot be reached or read is one line with the database's own word."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from readers.model.errors import BadRequest

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine


@contextmanager
def database(location: str, login: tuple[str | None, str | None]) -> Iterator[Engine]:
    """A database that SQLAlchemy knows; connections end with the context.

    Raises: BadRequest for what is no such address, or where SQLAlchemy or the database's driver is not installed.
    """
    try:
        import sqlalchemy
        from sqlalchemy.engine import make_url
    except ImportError as error:
        raise BadRequest(
            "a database is read through SQLAlchemy, which is not installed",
            advice="pip install 'rmqtx[database]' and the database's driver, or give sqlite:///FILE, CSV or Parquet",
        ) from error
    try:
        url = make_url(location)
        if url.password is not None:
            raise BadRequest("--transaction-table holds a password, which others could read")
        if login[0] is not None:
            url = url.set(username=login[0], password=login[1])
        engine = sqlalchemy.create_engine(url)
    except (sqlalchemy.exc.ArgumentError, sqlalchemy.exc.NoSuchModuleError) as error:
        advice = "write it like mysql+pymysql://HOST/DATABASE"
        raise BadRequest(f"{location}: {first_line(error)}", advice=advice) from error
    except ImportError as error:
        raise BadRequest(f"{location}: {error}", advice="install the database's driver: pip install ...") from error
    sqlalchemy.event.listen(engine, "do_connect", functools.partial(_connected, location))
    try:
        yield engine
    finally:
        engine.dispose()


def _connected(location: str, dialect: Any, _record: Any, arguments: Any, named: Any) -> Any:
    """A new connection.

    Raises: BadRequest for what drivers refuse in words of their own: a package that logging in wants, or a password
            with characters that they cannot send (PyMySQL: none beyond Latin-1).
    """
    try:
        return dialect.connect(*arguments, **named)
    except (RuntimeError, UnicodeError) as error:
        advice = "install what it names, or use another driver"
        raise BadRequest(f"{location}: its driver cannot log in: {error}", advice=advice) from error


def first_line(error: Exception) -> str:
    """What a database, or its driver, said."""
    said: Any = getattr(error, "orig", None) or error
    if len(said.args) == 2 and isinstance(said.args[1], str):  # drivers of MySQL: a number and a text
        said = said.args[1]
    return str(said).strip().split("\n", 1)[0]
