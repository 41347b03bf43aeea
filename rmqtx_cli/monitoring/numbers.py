"""What `rmqtx check` measures of some stores at one moment, and what of it the next run remembers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

#: Where the newest half copy of a transaction stood: `store` and `commit_log_offset`.
Place = Mapping[str, Any]

#: What of a store's numbers says how far it went.
ENDS = ("half_max_offset", "half_last_commit_log_offset", "log_end_offset")


@dataclass(slots=True)
class StoreNumbers:
    """One store. Units: queue offsets; offsets of the log in bytes; None where it is not known.

    `first_discard_ms`: when the broker gives up on the first of what is pending; None where it gives up on nothing.
    `unforetold_count`: what is pending of which that is not known.
    `log_end_offset`: the end of the last file that holds anything; how far a file is written is not asked for.
    `check_stopped`: where the check comes no further and what to type next, in a sentence.
    """

    store: str
    is_in_use: bool
    pending_count: int = 0
    oldest_pending_ms: int | None = None
    commit_without_op_count: int = 0
    undecidable_count: int = 0
    half_next_offset: int | None = None
    half_max_offset: int | None = None
    discard_max_offset: int | None = None
    check_interval_ms: int = 0
    log_end_offset: int | None = None
    log_begin_offset: int = 0
    half_last_commit_log_offset: int | None = None
    never_asked_count: int = 0
    check_stopped: str | None = None
    first_discard_ms: int | None = None
    unforetold_count: int = 0

    @property
    def half_lag(self) -> int | None:
        """Half copies that the check has still before it."""
        if self.half_next_offset is None or self.half_max_offset is None:
            return None
        return max(0, self.half_max_offset - self.half_next_offset)


@dataclass(slots=True)
class Numbers:
    """All stores at one moment.

    `hanging`: ids of what hung at least REMEMBERED_AGE_MS, oldest first; `places`: where their newest half copies
    stand. `pending_ids`: all that hangs, however young. `oldest_of`: group and topic of the oldest, its
    store too where there are several. `first_discard_id`: what the brokers give up on first.
    `unforetold_why`: why that is not known of some.
    """

    taken_time_ms: int
    stores: list[StoreNumbers]
    hanging: list[str] = field(default_factory=list)
    oldest_id: str | None = None
    oldest_of: str = ""
    evidence_missing: list[str] = field(default_factory=list)
    places: dict[str, Place] = field(default_factory=dict)
    pending_ids: set[str] = field(default_factory=set)
    first_discard_id: str | None = None
    unforetold_why: str | None = None

    @property
    def pending_count(self) -> int:
        """Pending transactions of all stores."""
        return sum(store.pending_count for store in self.stores)

    @property
    def oldest_pending_ms(self) -> int | None:
        """Age of the oldest pending transaction."""
        return max((s.oldest_pending_ms for s in self.stores if s.oldest_pending_ms is not None), default=None)

    @property
    def first_discard(self) -> StoreNumbers | None:
        """The store whose broker gives up on something first."""
        known = [store for store in self.stores if store.first_discard_ms is not None]
        return min(known, key=lambda store: store.first_discard_ms or 0, default=None)

    @property
    def unforetold_count(self) -> int:
        """Pending transactions of which it is not known when their brokers give up on them."""
        return sum(store.unforetold_count for store in self.stores)

    @property
    def commit_without_op_count(self) -> int:
        """Transactions that were committed and will nevertheless be asked again."""
        return sum(store.commit_without_op_count for store in self.stores)

    def as_memory(self, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What the next run needs to know. `before`: what the last run left."""
        return {
            "taken_time_ms": self.taken_time_ms,
            "hanging": self.hanging,
            "places": self.places,
            "stores": {store.store: asdict(store) | ends_kept(store, before) for store in self.stores},
        }


def ends_kept(store: StoreNumbers, before: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the next run must know of an earlier one: a store that has lost its end is not well again by itself."""
    if not ends_gone(store, before):
        return {}
    old = _numbers_of(store.store, before)
    return {name: old[name] for name in ENDS if name in old}


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


def _numbers_of(name: str, before: Mapping[str, Any] | None) -> dict[str, Any]:
    """What an earlier run left of a store."""
    return {} if before is None else before["stores"].get(name, {})
