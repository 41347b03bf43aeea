"""What became of the transactions that the last run of `rmqtx check` remembers."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from readers.log.properties import UNIQ_KEY
from readers.log.record_at import block_at
from readers.model.errors import SourceError
from rmqtx_cli.monitoring.numbers import Place
from rmqtx_cli.sources.files import FileSource

if TYPE_CHECKING:
    from readers.store.store import Store
    from rmqtx_cli.sources.source import Source


@dataclass(slots=True)
class Became:
    """What became of transactions that hung at the last run and do no more.

    Shape: `states` by id; `vanished`: the log does not hold their half messages any more though it reaches back that
           far; `unanswered`: it could not be found out, for the reason in `why`. Those that expired are in none.
    """

    states: dict[str, str] = field(default_factory=dict)
    vanished: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)
    why: str = ""


def remembered_places(before: Mapping[str, Any] | None) -> dict[str, Place | None]:
    """The transactions that hung at the last run, and where their newest half copies stood if that is known."""
    if before is None:
        return {}
    known = before.get("places") or {}
    return {identity: known.get(identity) for identity in before["hanging"]}


@functools.singledispatch
def what_became_of(source: Source, gone: Mapping[str, Place | None]) -> Became:
    """What became of some transactions: one look-up for all, but in files none for those that do not stand there.

    Raises: SourceError if a store cannot be read any more; Unreachable, NoAnswer, Refused.
    """
    rows = source.lookup(list(gone)).table()
    return Became(dict(zip(rows["transaction_id"].to_pylist(), rows["state"].to_pylist(), strict=True)))


@what_became_of.register
def _in_files(source: FileSource, gone: Mapping[str, Place | None]) -> Became:
    """One read for each where it stood, before the look-up."""
    became, stores = Became(), source.stores
    by_root = {store.root: store for store in stores}
    left = []
    for identity, place in gone.items():
        store = None if place is None else by_root.get(place["store"])
        if store is None or place is None:
            left.append(identity)
        elif (offset := place["commit_log_offset"]) >= store.log_begin_offset:  # else its half message has expired
            (left if _stands_at(store, offset, identity) else became.vanished).append(identity)
    if left:
        rows = source.lookup(left).table()
        became.states = dict(zip(rows["transaction_id"].to_pylist(), rows["state"].to_pylist(), strict=True))
    if not any(store.log_begin_offset for store in stores):  # nothing has expired yet
        became.vanished += [identity for identity in left if identity not in became.states]
    return became


def _stands_at(store: Store, offset: int, identity: str) -> bool:
    """Whether the record at a place of the log bears an id; where that cannot be read, the look-up says so."""
    log = store.log()
    try:
        block = block_at(log, offset)
    except SourceError:
        return True
    finally:
        log.close()
    if block is None:
        return False
    return identity in (*block.properties.text(UNIQ_KEY).to_pylist(), *block.message_ids().to_pylist())
