"""Shell completion: words to explain, actions, guards, columns, names of stores, ids of pending transactions.

A completion prints no errors and takes at most a second: what is not found by then is not offered.
"""

from __future__ import annotations

import importlib
import re
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import typer

from rmqtx.readers.model.errors import BadRequest, RmqtxError
from rmqtx.readers.model.own_process import begin_own_process
from rmqtx.repairs.receipts.act_words import PLANNED
from rmqtx_cli.options.configuration import configuration, own_store

#: At most this many ids are offered, if they are found within this time.
IDS_MAX = 50
_PATIENCE_SECONDS = 1.0


def words(incomplete: str) -> list[str]:
    """Return the words of `explain`."""
    known = dict.fromkeys(_offers().words())
    return [word for word in known if word.lower().startswith(incomplete.lower()) and " " not in word]


def actions(incomplete: str) -> list[str]:
    """Return the actions of `plan`, and `show`."""
    return _beginning([*PLANNED, "show"], incomplete)


def guards(incomplete: str) -> list[str]:
    """Return the names of guards."""
    return _beginning(_offers().guards(), incomplete)


def tables(incomplete: str) -> list[str]:
    """Return the names of the tables of `schema`."""
    return _beginning(_offers().tables(), incomplete)


def hold_guards(incomplete: str) -> list[str]:
    """Return the names of the guards of a release that can be overridden."""
    return _beginning(_offers().hold_guards(), incomplete)


def fields(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return columns of the command's rows, for the last of several names separated by commas."""
    return _last_of(incomplete, ",", _columns(ctx))


def sort_fields(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the same, each with an optional sign."""
    return _last_of(incomplete, ",-", _offers().sort_columns(ctx.info_name or ""))


def condition_fields(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the same where a condition can contain a name: at its begin, after `and`, `or`, `not` and `(`."""
    before = re.fullmatch(r"(?s)(.*(?:\(|\b(?:and|or|not)\s))?\s*\w*", incomplete)
    return [] if before is None else _last_of(incomplete, " (", _columns(ctx))


def stores(incomplete: str) -> list[str]:
    """Return the names of stores in the configuration file; the shell completes paths itself."""
    try:
        return _beginning(configuration().stores, incomplete)
    except BadRequest:
        return []


def transaction_ids(incomplete: str) -> list[str]:
    """Return ids of pending transactions in the store that is read if none is given."""
    begin_own_process()
    try:
        with _in_time():
            return _beginning(_pending_ids(), incomplete)[:IDS_MAX]
    except (RmqtxError, OSError, _TooLateError):
        return []


def _pending_ids() -> list[str]:
    named = own_store()
    return [] if named is None else _offers().pending_ids(configuration().place_of(named.place))


class _TooLateError(Exception):
    """The time is over. Not an OSError, which readers report as a file that cannot be read."""


@contextmanager
def _in_time() -> Iterator[None]:
    """Raise an error in the block if it takes too long; only in a process that a shell started for completion."""

    def late(_number: int, _frame: Any) -> None:
        raise _TooLateError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, _PATIENCE_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _offers() -> Any:
    """Return the module that computes what is offered. It imports what the commands import, the help must not."""
    return importlib.import_module("rmqtx_cli.commands.offers")


def _columns(ctx: typer.Context) -> list[str]:
    """Return the names of the columns of a command's rows."""
    columns: list[str] = _offers().columns(ctx.info_name or "")
    return columns


def _beginning(names: Iterable[str], begin: str) -> list[str]:
    return [name for name in names if name.startswith(begin)]


def _last_of(text: str, separators: str, names: Iterable[str]) -> list[str]:
    """Return the text completed with each name that begins with its last word."""
    place = max(text.rfind(separator) for separator in separators) + 1
    return [text[:place] + name for name in _beginning(names, text[place:])]
