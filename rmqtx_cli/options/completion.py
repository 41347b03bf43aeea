"""What a shell can offer next: words to explain, actions, guards, columns, stores by name, ids of what hangs.

A completion never complains and never takes long: what cannot be known at once is not offered.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import typer

#: So many ids are offered, if they are found in this time.
IDS_MAX = 50
_PATIENCE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Offers:
    """What only those know that stand above the options: words of `explain`, and the columns of a command's rows."""

    words: Callable[[], Iterable[str]] = tuple
    columns: Callable[[str], Iterable[str]] = lambda _command: ()


_offers = [Offers()]


def offer(offers: Offers) -> None:
    """Have these offered from now on."""
    _offers[:] = [offers]


def words(incomplete: str) -> list[str]:
    """Words that `explain` knows."""
    known = dict.fromkeys(_offers[0].words())
    return [word for word in known if word.lower().startswith(incomplete.lower()) and " " not in word]


def actions(incomplete: str) -> list[str]:
    """What `plan` can plan, and `show`."""
    from repairs.receipts.plan_file import ACTIONS

    return _beginning([*ACTIONS, "show"], incomplete)


def guards(incomplete: str) -> list[str]:
    """Names of guards."""
    from repairs.acts.guards import GUARDS

    return _beginning((guard.name for guard in GUARDS), incomplete)


def fields(ctx: typer.Context, incomplete: str) -> list[str]:
    """Columns of the command's rows, for the last of some names with commas between them."""
    return _last_of(incomplete, ",", _columns(ctx))


def sort_fields(ctx: typer.Context, incomplete: str) -> list[str]:
    """The same, each perhaps with a sign."""
    return _last_of(incomplete, ",-", _columns(ctx))


def condition_fields(ctx: typer.Context, incomplete: str) -> list[str]:
    """The same, where the next name of a condition can stand: at its begin, after `and`, `or`, `not` and `(`."""
    before = re.fullmatch(r"(?s)(.*(?:\(|\b(?:and|or|not)\s))?\s*\w*", incomplete)
    return [] if before is None else _last_of(incomplete, " (", _columns(ctx))


def stores(incomplete: str) -> list[str]:
    """Names of stores in the configuration file; paths are the shell's own."""
    from readers.model.errors import BadRequest
    from rmqtx_cli.options.configuration import configuration

    try:
        return _beginning(configuration().stores, incomplete)
    except BadRequest:
        return []


def transaction_ids(incomplete: str) -> list[str]:
    """Ids of transactions that hang in the store that is read where none is named."""
    from readers.model.errors import RmqtxError
    from readers.model.pandas_left_out import leave_pandas_out

    leave_pandas_out()
    try:
        with _in_time():
            return _beginning(_pending_ids(), incomplete)[:IDS_MAX]
    except (RmqtxError, OSError, _TooLateError):
        return []


def _pending_ids() -> list[str]:
    from readers.storage.file_systems import expand
    from readers.store.broker_settings import broker_settings
    from readers.store.store import open_store
    from rmqtx_cli.options.configuration import configuration, own_store
    from verdicts.audit.lookups import pending

    named = own_store()
    if named is None:
        return []
    (place, *_) = expand([configuration().place_of(named)])
    found: list[str] = pending([open_store(place)], broker_settings).table()["transaction_id"].to_pylist()
    return found


class _TooLateError(Exception):
    """There is no answer in time. No OSError, which readers take for a file that cannot be read."""


@contextmanager
def _in_time() -> Iterator[None]:
    """A block that ends with an error where it takes too long; in a process that a shell started for this alone."""

    def late(_number: int, _frame: Any) -> None:
        raise _TooLateError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, _PATIENCE_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _columns(ctx: typer.Context) -> Iterable[str]:
    """Names that the rows of a command know."""
    return _offers[0].columns(ctx.info_name or "")


def _beginning(names: Iterable[str], begin: str) -> list[str]:
    return [name for name in names if name.startswith(begin)]


def _last_of(text: str, separators: str, names: Iterable[str]) -> list[str]:
    """What the text becomes with each name that its last word begins."""
    place = max(text.rfind(separator) for separator in separators) + 1
    return [text[:place] + name for name in _beginning(names, text[place:])]
