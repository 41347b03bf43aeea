"""The states of transactions that were pending at the last run of `rmqtx check` and no longer are."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from rmqtx.readers.log.properties import UNIQ_KEY
from rmqtx.readers.log.record_at import stored_block
from rmqtx.readers.model.errors import RmqtxError, SourceError
from rmqtx.verdicts.causes.strengths import cause_counts
from rmqtx.verdicts.model.predicted import is_open_row
from rmqtx.verdicts.model.verdict_words import State
from rmqtx_cli.monitoring.metrics import FLAG_COUNTERS, STATE_COUNTERS
from rmqtx_cli.monitoring.numbers import ENDED, Causes, Memory, Numbers, Place
from rmqtx_cli.sources.files import FileSource

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtx.readers.store.store import Store
    from rmqtx_cli.sources.source import Source


@dataclass(slots=True)
class Became:
    """The states of transactions that were pending at the last run and no longer are.

    Shape: `states` by id; `vanished`: the log no longer contains their half messages although it begins before them;
           `unanswered`: the look-up failed, for the reason in `why`. Expired transactions are in none of these.
           `causes`: as in `Numbers.causes_of`, of those that are lost, or discarded and no longer checked. `counts`: by
           store and counter of metrics.
    """

    states: dict[str, str] = field(default_factory=dict)
    vanished: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)
    why: str = ""
    causes: Causes = field(default_factory=Counter)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, rows: pa.Table) -> None:
        """Add the rows of a look-up."""
        for row in rows.select(["store", "state", "flags"]).to_pylist():
            names = {STATE_COUNTERS.get(row["state"]), *(FLAG_COUNTERS.get(flag) for flag in row["flags"])}
            self.counts.update((row["store"], name) for name in names if name is not None)
        self.states |= dict(zip(rows["transaction_id"].to_pylist(), rows["state"].to_pylist(), strict=True))
        is_over = pc.or_(pc.equal(rows["state"], State.LOST), pc.equal(rows["state"], State.DISCARDED))
        self.causes += cause_counts(rows.filter(pc.and_not(is_over, is_open_row(rows))))


def remembered_places(before: Memory | None) -> dict[str, Place | None]:
    """The transactions pending at the last run, each with the place of its newest half copy, if known."""
    if before is None:
        return {}
    known = before.get("places") or {}
    return {identity: known.get(identity) for identity in before["hanging"]}


def gone_since(numbers: Numbers, before: Memory | None) -> dict[str, Place | None]:
    """The transactions that were pending at the last run and no longer are."""
    places = remembered_places(before)
    return {identity: place for identity, place in places.items() if identity not in numbers.pending_ids}


def became_since(source: Source, numbers: Numbers, before: Memory | None) -> Became:
    """What became of the transactions that were pending at the last run; their causes are added to the numbers.

    A failed look-up leaves them unanswered: otherwise the next run would repeat the same look-up and fail again.
    """
    gone = gone_since(numbers, before)
    if not gone:
        return Became()
    try:
        became = what_became_of(source, gone)
    except RmqtxError as error:
        return Became(unanswered=list(gone), why=error.message)
    numbers.causes_of[ENDED] = became.causes
    return became


@functools.singledispatch
def what_became_of(source: Source, gone: Mapping[str, Place | None]) -> Became:
    """The states of some transactions, by one look-up; in files only of those whose record is still at its place.

    Raises: SourceError if a store can no longer be read; Unreachable, NoAnswer, Refused.
    """
    became = Became()
    became.add(source.lookup(list(gone)).table())
    return became


@what_became_of.register
def _in_files(source: FileSource, gone: Mapping[str, Place | None]) -> Became:
    """The same for files: one read at each remembered place, then the look-up."""
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
        became.add(source.lookup(left).table())
    if not any(store.log_begin_offset for store in stores):  # nothing has expired yet
        became.vanished += [identity for identity in left if identity not in became.states]
    return became


def _stands_at(store: Store, offset: int, identity: str) -> bool:
    """Whether the record at an offset has this id; True if it cannot be read, so that the look-up reports why."""
    try:
        block = stored_block(store, offset)
    except SourceError:
        return True
    if block is None:
        return False
    return identity in (*block.properties.text(UNIQ_KEY).to_pylist(), *block.message_ids().to_pylist())
