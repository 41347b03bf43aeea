"""What the last run of `rmqtx check` remembers, held against what is there now: transactions and ends that are gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from readers.log.properties import UNIQ_KEY
from readers.log.record_at import block_at
from readers.model.errors import SourceError
from verdicts.audit.lookups import lookup

if TYPE_CHECKING:
    from readers.store.store import Store
    from rmqtx_cli.monitoring.measure import StoreNumbers
    from verdicts.evidence.store_facts import SettingsOf

#: Where the newest half copy of a transaction stood: `store` and `commit_log_offset`.
Place = Mapping[str, Any]
#: What of a store's numbers says how far it went.
ENDS = ("half_max_offset", "half_last_commit_log_offset", "log_end_offset")


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


def what_became_of(gone: Mapping[str, Place | None], stores: list[Store], settings_of: SettingsOf) -> Became:
    """What became of some transactions: one read for each where it stood, and one look-up for all that are there.

    Raises: SourceError if a store cannot be read any more.
    """
    became = Became()
    by_root = {store.root: store for store in stores}
    left = []
    for identity, place in gone.items():
        store = None if place is None else by_root.get(place["store"])
        if store is None or place is None:
            left.append(identity)
        elif (offset := place["commit_log_offset"]) >= store.log_begin_offset:  # else its half message has expired
            (left if _stands_at(store, offset, identity) else became.vanished).append(identity)
    if left:
        rows = lookup(stores, settings_of, left).table()
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


def ends_gone(store: StoreNumbers, before: Mapping[str, Any] | None) -> list[str]:
    """How far a store went at an earlier run and does no more, as sentences; what has expired is not gone."""
    old = _numbers_of(store.store, before)
    sentences = []
    half_end, last_half = old.get("half_max_offset"), old.get("half_last_commit_log_offset")
    now = store.half_max_offset
    is_here = last_half is not None and last_half >= store.log_begin_offset  # else it has expired, and its queue may
    if half_end is not None and now is not None and now < half_end and is_here:
        sentences.append(f"the half queue went up to {half_end} and goes up to {now} now")
    log_end = old.get("log_end_offset")
    if log_end is not None and store.log_end_offset is not None and store.log_end_offset < log_end:
        sentences.append(f"the files of the log went up to {log_end} and go up to {store.log_end_offset} now")
    return sentences


def ends_kept(store: StoreNumbers, before: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the next run must know of an earlier one: a store that has lost its end is not well again by itself."""
    if not ends_gone(store, before):
        return {}
    old = _numbers_of(store.store, before)
    return {name: old[name] for name in ENDS if name in old}


def _numbers_of(name: str, before: Mapping[str, Any] | None) -> dict[str, Any]:
    """What an earlier run left of a store."""
    return {} if before is None else before["stores"].get(name, {})
