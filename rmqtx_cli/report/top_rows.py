"""Keeps the few transactions that a report shows in full, in one pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.verdicts.model.verdict_words import State

#: Transactions of each kind that are shown in full.
SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class TopKind:
    """A kind of transactions: which ones, and which of them come first."""

    title: str
    note: str
    choose: Callable[[pa.RecordBatch], pa.Array]
    orders: tuple[tuple[str, str], ...]


def _has_flag(batch: pa.RecordBatch, flag: str) -> pa.Array:
    flags = batch["flags"]
    owners = pc.list_parent_indices(flags).filter(pc.equal(pc.list_flatten(flags), flag))
    return pc.is_in(pa.array(range(batch.num_rows), owners.type), value_set=owners)


_OLDEST = (("half_store_time_ms", "ascending"), ("store", "ascending"), ("transaction_id", "ascending"))
TOP_KINDS: dict[str, TopKind] = {
    "pending": TopKind(
        "Pending transactions", "the oldest first", lambda batch: pc.equal(batch["state"], State.PENDING), _OLDEST
    ),
    "lost": TopKind(
        "Lost transactions", "the oldest first", lambda batch: pc.equal(batch["state"], State.LOST), _OLDEST
    ),
    "delivered-twice": TopKind(
        "Transactions delivered more than once", "most deliveries first",
        lambda batch: _has_flag(batch, "duplicate_commit"), (("deliveries_count", "descending"), *_OLDEST),
    ),
}


@dataclass(slots=True)
class TopRows:
    """The first transactions of each kind among those seen so far, and how many there are."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOP_KINDS, 0))
    _kept: dict[str, pa.Table] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch) -> None:
        """Consider some transactions."""
        for name, kind in TOP_KINDS.items():
            rows = batch.filter(kind.choose(batch))
            if not rows.num_rows:
                continue
            self.counts[name] += rows.num_rows
            kept = [self._kept[name]] if name in self._kept else []
            found = pa.concat_tables([*kept, pa.Table.from_batches([rows])])
            first = pc.sort_indices(found, sort_keys=list(kind.orders)).slice(0, SHOWN_MAX)
            self._kept[name] = found.take(first).combine_chunks()

    def rows(self, name: str) -> pa.Table | None:
        """Return the first transactions of a kind; None if the batches had none."""
        return self._kept.get(name)

    def ids(self, name: str) -> list[Any]:
        """Return their ids."""
        return self._kept[name]["transaction_id"].to_pylist() if name in self._kept else []
