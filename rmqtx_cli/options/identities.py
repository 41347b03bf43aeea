"""The transactions that the IDs of a command line refer to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from readers.model.errors import BadRequest, NoSuchTransaction

if TYPE_CHECKING:
    from readers.model.reading import Reading


def identities(ids: Sequence[str], show: Callable[[str], Reading], where: str, arguments: str = "") -> list[str]:
    """Return the transaction ids for some ids, message ids or keys, each once.

    `show`: rows of the transactions with an id or key. `where`: where it reads, for messages. `arguments`: options that
    make another command read there.
    Raises: NoSuchTransaction, with all that are not found; BadRequest if a key matches several transactions.
    """
    found: list[str] = []
    missing: list[str] = []
    others = ""
    for name in dict.fromkeys(ids):
        try:
            named = show(name).table()["transaction_id"].to_pylist()
        except NoSuchTransaction as error:
            missing.append(name)
            others += str(error.actual or "")
            continue
        if len(named) > 1:
            raise BadRequest(
                f"{len(named)} transactions match {name!r}",
                advice=f"give a transaction id; list them: rmqtx show {name}{arguments}",
            )
        found += named
    if missing:
        raise NoSuchTransaction(
            f"no transaction {', '.join(missing)} {where}{others}",
            advice="give a UNIQ_KEY, the message id of any of its records, or a business key",
        )
    return list(dict.fromkeys(found))
