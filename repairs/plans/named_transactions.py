"""The transactions that some ids, message ids or business keys refer to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rmqtx.readers.model.errors import BadRequest, NoSuchTransaction
from rmqtx.readers.model.identities import NAMES_ADVICE
from rmqtx.readers.model.shell_words import quoted

if TYPE_CHECKING:
    from rmqtx.readers.model.reading import Reading

#: Completes a command that an error names, for example with the options of the command that failed.
Completed = Callable[[str], str]

_SHOWN_MAX = 3


def identities(
    ids: Sequence[str], show: Callable[[str, bool], Reading], where: str, arguments: str = "", *,
    completed: Completed = str,
) -> list[str]:
    """Return the transaction ids for some ids, message ids or keys, each once.

    `show`: rows of the transactions with an id or key, or, on request, with an id that begins or ends so.
    `where`: where it reads, for messages. `arguments`: options that make another command read there; `completed` adds
    others.
    Raises: NoSuchTransaction, with all that are not found; BadRequest for a part of an id, and if a key matches
            several transactions.
    """
    found: list[str] = []
    missing: list[str] = []
    others = ""
    for name in dict.fromkeys(ids):
        try:
            named = show(name, False).table()["transaction_id"].to_pylist()
        except NoSuchTransaction as error:
            missing.append(name)
            others += str(error.actual or "")
            continue
        if len(named) > 1:
            raise BadRequest(
                f"{len(named)} transactions match {name!r}",
                advice=f"give a transaction id; list them: {completed(f'rmqtx show {quoted(name)}{arguments}')}",
            )
        found += named
    for name in missing:
        _refuse_short(name, show)
    if missing:
        raise NoSuchTransaction(
            f"no transaction {', '.join(missing)} {where}{others}",
            advice=NAMES_ADVICE,
        )
    return list(dict.fromkeys(found))


def _refuse_short(name: str, show: Callable[[str, bool], Reading]) -> None:
    """Refuse a part of an id, as tables print it, with the whole id: an act on a guess would be final.

    Raises: BadRequest.
    """
    try:
        found = show(name, True).table()["transaction_id"].to_pylist()
    except NoSuchTransaction:
        return
    if len(found) == 1:
        raise BadRequest(f"{name!r} is a part of an id", advice=f"acts take whole ids, here it is: {found[0]}")
    shown = ", ".join(found[:_SHOWN_MAX]) + (f" and {len(found) - _SHOWN_MAX} more" if len(found) > _SHOWN_MAX else "")
    raise BadRequest(f"{name!r} is a part of {len(found)} ids", advice=f"acts take whole ids: {shown}")
