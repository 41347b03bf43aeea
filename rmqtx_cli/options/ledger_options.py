"""The options with which commands name a business ledger, and how its rows are read; parsed by `ledgers.py`.

User and password of a database come from the environment, never from an address.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from rmqtx_cli.words.text import stored_text


def _expression(name: str, help_text: str) -> Any:
    return typer.Option(name, parser=stored_text, metavar="EXPR", help=help_text)


def done_option(then: str = "") -> Any:
    """Return the option --done. `then`: what the command does with the transaction."""
    condition = "Condition on a ledger row: the business action was done, like \"status = PAID\""
    return _expression("--done", condition + then)


def not_done_option(then: str = "") -> Any:
    """Return the option --not-done. `then`: what the command does with the transaction."""
    return _expression("--not-done", f"Condition on a ledger row: the business action was not done{then}")


MATCH_OPTION: Any = _expression(
    "--match",
    "How a transaction is matched with a ledger row: \"keys = order_id\" matches any word of keys; "
    "\"keys ~ '^order-([0-9]+)$' = id\" matches a part of it; join several with and",
)
LedgerTableOption = Annotated[
    str | None, typer.Option("--ledger-table", metavar="NAME", help="Table or view, if the ledger is a database")
]
MissingOption = Annotated[
    bool,
    typer.Option(
        "--missing-is-not-done",
        help="Treat a transaction without a ledger row as not done; only if each transaction that was done has a row "
        "and rows are never removed",
    ),
]


@dataclass(frozen=True, slots=True)
class LedgerAnswerOptions:
    """A ledger as a source of answers."""

    ledger: Annotated[
        str | None,
        typer.Option(
            "--ledger", metavar="PLACE",
            help="The ledger that has the answers: a Parquet or CSV file, or sqlite:///FILE"
        ),
    ] = None
    ledger_table: LedgerTableOption = None
    match: Annotated[str | None, MATCH_OPTION] = None
    done: Annotated[str | None, done_option(": answer commit")] = None
    not_done: Annotated[str | None, not_done_option(": answer rollback")] = None
    missing_is_not_done: MissingOption = False


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """The source of answers: a plan or a ledger."""

    plan: Annotated[
        Path | None,
        typer.Option("--plan", metavar="FILE", help="Answer what this plan commits or rolls back, and nothing else"),
    ] = None
    given: LedgerAnswerOptions = field(default_factory=LedgerAnswerOptions)


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
