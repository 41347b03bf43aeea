"""What the live screen shows, without a terminal: from readings of stores or brokers to rows, rates and changes."""

from __future__ import annotations

import io
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from rmqtx.readers.model import clock
from rmqtx.verdicts.model.verdict_words import State
from rmqtx_cli.monitoring.measure import measured_rows
from rmqtx_cli.sources.transaction_page import write_page
from rmqtx_cli.words.text import escaped

if TYPE_CHECKING:
    from rmqtx_cli.monitoring.numbers import Numbers
    from rmqtx_cli.sources.source import Source, SourceOpener

#: Ended transactions that one reading looks up; each costs a live broker a request or two.
LOOKED_UP_MAX = 20
#: In place of a state: the log contains no record of the transaction.
GONE = "GONE"
_COLUMNS = ("store", "transaction_id", "state", "producer_group", "topic", "half_store_time_ms",
            "checks_count", "discard_at_ms", "flags")
#: A pending transaction younger than this is one that its producer is about to decide.
NEWS_AGE_MS = 10_000
CHANGES_MAX = 200
#: The later in the order, the nearer to the top of the screen: CHECKED is the most frequent change.
_ORDER = ("CHECKED", State.PENDING, State.COMMITTED, State.ROLLED_BACK, GONE, State.DISCARDED, State.LOST)
_WEIGHTS = {what: place for place, what in enumerate(_ORDER)}
#: Rates are those of the last snapshots, so that they do not jump with the rounds of the check.
_RATE_SNAPSHOTS = 7


@dataclass(frozen=True, slots=True)
class Pending:
    """One pending transaction. Units: milliseconds since 1970; `discard_at_ms`: None where unknown or never.

    `starts_ms`: of a stopped broker, the time at which `discard_at_ms` assumes that it starts; None of a running one.
    """

    store: str
    transaction_id: str
    group: str
    topic: str
    stored_time_ms: int
    checks_count: int
    discard_at_ms: int | None
    is_never_asked: bool = False
    starts_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One reading. Shape: `pending` by transaction id; `ended`: states of some that were pending earlier, or GONE."""

    time_ms: int
    duration_ms: int
    pending: Mapping[str, Pending]
    numbers: Numbers
    ended: Mapping[str, str] = field(default_factory=dict)


def take(opener: SourceOpener, before: Collection[str]) -> Snapshot:
    """Read everything again. `before`: the ids whose end is looked up if they are not pending now.

    Raises: SourceError if a store cannot be read; Unreachable, NoAnswer, Refused.
    """
    begun = time.monotonic()
    now_ms = clock.now_ms()
    with opener.opened() as source:
        numbers, rows = measured_rows(source, now_ms)
        found = [row for row in rows.select(_COLUMNS).to_pylist() if row["state"] == State.PENDING]
        stopped = {one.store for one in numbers.stores if not one.is_in_use}
        pending = {row["transaction_id"]: _pending(row, now_ms, stopped) for row in found}
        ended = _states(source, [one for one in before if one not in pending][:LOOKED_UP_MAX])
    return Snapshot(now_ms, round(1000 * (time.monotonic() - begun)), pending, numbers, ended)


def _pending(row: Mapping[str, Any], now_ms: int, stopped: Collection[str]) -> Pending:
    return Pending(
        row["store"], row["transaction_id"], row["producer_group"] or "", row["topic"] or "",
        row["half_store_time_ms"], row["checks_count"] or 0, row["discard_at_ms"], "never_asked" in row["flags"],
        now_ms if row["store"] in stopped else None,
    )


def _states(source: Source, ids: list[str]) -> dict[str, str]:
    if not ids:
        return {}
    rows = source.lookup(ids).table()
    found = dict(zip(rows["transaction_id"].to_pylist(), rows["state"].to_pylist(), strict=True))
    return {identity: found.get(identity, GONE) for identity in ids}


def timeline(opener: SourceOpener, identity: str) -> list[str]:
    """Return the lines of `rmqtx show` for one transaction. Raises: the same, and NoSuchTransaction."""
    stream = io.BytesIO()
    write_page(opener, identity, stream)
    return [escaped(line) for line in stream.getvalue().decode().splitlines()]


class Sort(StrEnum):
    """The order of rows: most pending, oldest, or the nearest discard first."""

    PENDING = "pending"
    AGE = "age"
    DEADLINE = "deadline"


@dataclass(frozen=True, slots=True)
class Change:
    """Something that happened to one transaction between two snapshots. `what`: PENDING, CHECKED, or its new state."""

    time_ms: int
    what: str
    one: Pending


@dataclass(slots=True)
class GroupRow:
    """The pending transactions of a producer group and topic. Units: milliseconds since 1970.

    `first`: the one that is discarded first, if any is.
    """

    group: str
    topic: str
    count: int = 0
    oldest_time_ms: int = 1 << 62
    first: Pending | None = None
    checks_count: int = 0

    @property
    def discard_at_ms(self) -> int | None:
        """When the first one is discarded."""
        return None if self.first is None else self.first.discard_at_ms


@dataclass(frozen=True, slots=True)
class Rates:
    """What happens in a second; None until there are two snapshots, or where a cursor is unknown."""

    halves: float | None = None
    settled: float | None = None
    checks: float | None = None
    discards: float | None = None


@dataclass(slots=True)
class Model:
    """The snapshots, and how they are shown.

    Shape: `filter`: text that the group, topic or id contains. `changes`: newest last.
    """

    sort: Sort = Sort.PENDING
    filter: str = ""
    snapshots: deque[Snapshot] = field(default_factory=lambda: deque(maxlen=_RATE_SNAPSHOTS))
    changes: deque[Change] = field(default_factory=lambda: deque(maxlen=CHANGES_MAX))
    failure: str = ""
    _listed: dict[str, Pending] = field(default_factory=dict)
    _checks: deque[int] = field(default_factory=lambda: deque(maxlen=_RATE_SNAPSHOTS))

    @property
    def last(self) -> Snapshot | None:
        """The newest snapshot."""
        return self.snapshots[-1] if self.snapshots else None

    @property
    def awaited(self) -> list[str]:
        """The transactions whose end is a change: those that were listed as pending."""
        return sorted(self._listed)

    def add(self, snapshot: Snapshot) -> list[Change]:
        """Add a snapshot; return what changed since the one before. The first one lists what is pending already.

        Order: checks, then what became pending, then what ended; the worst end last.
        """
        found = sorted(self._changes(snapshot), key=lambda one: _WEIGHTS.get(one.what, 0))
        before = {} if self.last is None else self.last.pending
        self._checks.append(sum(
            one.checks_count - (before[identity].checks_count if identity in before else 0)
            for identity, one in snapshot.pending.items()
        ))
        self.snapshots.append(snapshot)
        self.changes.extend(found)
        self.failure = ""
        return found

    def _changes(self, new: Snapshot) -> Iterator[Change]:
        before = {} if self.last is None else self.last.pending
        for identity, state in new.ended.items():
            if identity in self._listed and state != State.PENDING:
                yield Change(new.time_ms, state, self._listed.pop(identity))
        for identity, one in new.pending.items():
            old = before.get(identity)
            if identity in self._listed:
                self._listed[identity] = one
            elif new.time_ms - one.stored_time_ms >= NEWS_AGE_MS:
                self._listed[identity] = one
                yield Change(new.time_ms, State.PENDING, one)
                continue
            if old is not None and one.checks_count > old.checks_count:
                yield Change(new.time_ms, "CHECKED", one)

    def next_sort(self) -> None:
        """Change the order to the next one."""
        orders = list(Sort)
        self.sort = orders[(orders.index(self.sort) + 1) % len(orders)]

    def groups(self) -> list[GroupRow]:
        """Return the rows of the first table, in order."""
        found: dict[tuple[str, str], GroupRow] = {}
        for one in self._filtered():
            row = found.setdefault((one.group, one.topic), GroupRow(one.group, one.topic))
            row.count += 1
            row.oldest_time_ms = min(row.oldest_time_ms, one.stored_time_ms)
            row.checks_count = max(row.checks_count, one.checks_count)
            row.first = first_discarded([one] if row.first is None else [row.first, one])
        by = {
            Sort.PENDING: lambda row: (-row.count, row.group, row.topic),
            Sort.AGE: lambda row: (row.oldest_time_ms, row.group, row.topic),
            Sort.DEADLINE: lambda row: (row.discard_at_ms or 1 << 62, row.group, row.topic),
        }
        return sorted(found.values(), key=by[self.sort])

    def transactions(self, group: str, topic: str) -> list[Pending]:
        """Return the pending transactions of a row, oldest or nearest discard first."""
        found = [one for one in self._filtered() if (one.group, one.topic) == (group, topic)]
        if self.sort is Sort.DEADLINE:
            return sorted(found, key=lambda one: (one.discard_at_ms or 1 << 62, one.transaction_id))
        return sorted(found, key=lambda one: (one.stored_time_ms, one.transaction_id))

    def _filtered(self) -> Sequence[Pending]:
        if self.last is None:
            return ()
        wanted = self.filter.casefold()
        return [
            one for one in self.last.pending.values()
            if wanted in f"{one.group}\0{one.topic}\0{one.transaction_id}".casefold()
        ]

    def rates(self) -> Rates:
        """Return the rates between the first and the last of the kept snapshots.

        A slot of the half queue is a half message or a copy that the check put back. So what was settled is the growth
        of the queue without these copies and without the growth of what is pending.
        """
        if len(self.snapshots) < 2:
            return Rates()
        first, last = self.snapshots[0], self.snapshots[-1]
        seconds = (last.time_ms - first.time_ms) / 1000
        grown = _growth(first, last, "half_max_offset")
        discarded = _growth(first, last, "discard_max_offset")
        if seconds <= 0:
            return Rates()
        checks = sum(list(self._checks)[1:])
        halves = None if grown is None else max(0, grown - checks)
        settled = None if halves is None else max(0, halves - len(last.pending) + len(first.pending))
        return Rates(
            None if halves is None else halves / seconds, None if settled is None else settled / seconds,
            max(0, checks) / seconds, None if discarded is None else discarded / seconds,
        )


def first_discarded(pending: Iterable[Pending]) -> Pending | None:
    """Return the transaction that is discarded first: by a running broker before those of stopped ones."""
    known = [one for one in pending if one.discard_at_ms is not None]
    return min(known, key=lambda one: (one.starts_ms is not None, one.discard_at_ms), default=None)


def _growth(first: Snapshot, last: Snapshot, name: str) -> int | None:
    before: dict[str, int | None] = {one.store: getattr(one, name) for one in first.numbers.stores}
    grown = 0
    for one in last.numbers.stores:
        old, new = before.get(one.store), getattr(one, name)
        if old is None or new is None:
            return None
        grown += max(0, new - old)
    return grown
