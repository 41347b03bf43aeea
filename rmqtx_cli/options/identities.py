"""Whom the IDs of a command line name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from readers.model.errors import BadRequest, NoSuchTransaction

if TYPE_CHECKING:
    from readers.model.reading import Reading


def identities(ids: Sequence[str], show: Callable[[str], Reading], where: str, arguments: str = "") -> list[str]:
    """The transaction ids that some ids, message ids or keys name, each once.

    `show`: rows of the transactions that have a name. `where`: where they were looked for. `arguments`: what makes a
    command look there too.
    Raises: NoSuchTransaction, with all that are not found; BadRequest where a key names several.
    """
    found: list[str] = []
    missing: list[str] = []
    for name in dict.fromkeys(ids):
        try:
            named = show(name).table()["transaction_id"].to_pylist()
        except NoSuchTransaction:
            missing.append(name)
            continue
        if len(named) > 1:
            raise BadRequest(
                f"{len(named)} transactions have the name {name!r}",
                advice=f"rmqtx show {name}{arguments} lists them; give a transaction id",
            )
        found += named
    if missing:
        raise NoSuchTransaction(
            f"no transaction {', '.join(missing)} {where}",
            advice="give a UNIQ_KEY, the message id of any of its records, or a business key",
        )
    return list(dict.fromkeys(found))
