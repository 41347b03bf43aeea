"""Logins of databases: user and password come from the environment, never from an address."""

from __future__ import annotations

import os
import re

JDBC = "jdbc:"
USER_VARIABLE, PASSWORD_VARIABLE = "RMQTX_LEDGER_USER", "RMQTX_LEDGER_PASSWORD"
_SECRET = re.compile(r"(?i)[?&;:,(](user|username|uid|password|passwd|pwd|[\w.]*(password|secret|token))\s*=")
_USER_INFO = re.compile(r"//[^/?;]*@|:[^/@:]+/[^/@]+@")


def holds_secret(location: str) -> bool:
    """Whether an address has a user or a password among its options."""
    return bool(_SECRET.search(location))


def holds_login(location: str) -> bool:
    """Whether an address of a database has a user or a password in it, as an option or before its host."""
    return holds_secret(location) or bool(_USER_INFO.search(location))


def login() -> tuple[str | None, str | None]:
    """Return user and password from the environment; they are only passed to the database."""
    return os.environ.get(USER_VARIABLE), os.environ.get(PASSWORD_VARIABLE)
