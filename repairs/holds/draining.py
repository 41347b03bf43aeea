"""After a drain began: wait until a broker can be stopped without losing what is known about a transaction.

An orderly stop writes no op message that waits in memory, and the next start then checks the decided half message
again. What was readable in the op queue before a stop was there after it (docs/drains.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from threading import Event

from rmqtx.readers.model import clock
from rmqtx.readers.store.store import HALF_TOPIC
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.live.lookups import pending
from rmqtx.remoting.protocol.errors import BadFrame, RemotingError
from rmqtx.repairs.holds.after_a_round import discarded_of, discarded_words
from rmqtx.repairs.holds.changes import CheckedChange
from rmqtx.repairs.holds.open_halves import UnsettledHalf, read_open_halves
from rmqtx.repairs.holds.standing_holds import REJECT
from rmqtx.repairs.receipts.act_words import ActOutcome
from rmqtx.repairs.receipts.journal import Journal

#: Between two readings of a broker.
_PAUSE_SECONDS = 1.0
#: A half message that the broker had accepted before it refused others is in its log after this time.
_UNDER_WAY_SECONDS = 2.0
#: A broker discards later than predicted by this time.
_LATE_MS = 5_000


class DrainEnd(StrEnum):
    """How the wait for one broker ended."""

    SAFE = "safe"
    TIME_OVER = "time_over"
    UNKNOWN = "unknown"
    CHANGED = "changed"
    LOST = "lost"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class WaitingHalf:
    """A half message that keeps a broker from being drained; `discard_ms`: when the check discards it, if it does."""

    half: UnsettledHalf
    discard_ms: int | None = None


@dataclass(slots=True)
class Drain:
    """One broker while it is drained, as last read.

    Shape: `waiting`: the half messages without a readable op message; None before the first reading. `unknown`: why
           there may be more. `error`: why the last reading failed. `moved`: settings that another operator changed.
           `stop`: where the check is stopped. `half_end`: the next number of the half queue. `lost`: what the check
           discarded meanwhile; `lost_unknown`: why it was not looked up. `end`: None while it is waited for.
           `_seen_empty`: the next number of the half queue, and the end of the log, after a reading that found nothing
           to wait for. Only a second such reading, of queues that reach that end, shows that no half message and no
           copy of the check was in the log and not yet in the half queue.
    """

    change: CheckedChange
    waiting: tuple[WaitingHalf, ...] | None = None
    unknown: str | None = None
    error: RemotingError | None = None
    moved: tuple[str, ...] = ()
    stop: str | None = None
    half_end: int = 0
    end: DrainEnd | None = None
    lost: list[str] = field(default_factory=list)
    lost_unknown: RemotingError | None = None
    _seen_empty: tuple[int, int] | None = None
    _may_be_lost: dict[str, int] = field(default_factory=dict)

    @property
    def root(self) -> str:
        """The broker: NAME@HOST:PORT."""
        return self.change.root

    @property
    def broker(self) -> Broker:
        """The broker."""
        assert self.change.broker is not None
        return self.change.broker

    @property
    def first_discard_ms(self) -> int | None:
        """When the check discards the first of the half messages that are waited for; None if it discards none."""
        return min((one.discard_ms for one in self.waiting or () if one.discard_ms is not None), default=None)

    @property
    def set_values(self) -> dict[str, str]:
        """The settings that the drain has set."""
        return {one.setting: one.after for one in self.change.changes}

    def look(self, *, is_settled: bool) -> None:
        """Read the broker. `is_settled`: what it had accepted before the drain is in its log by now."""
        try:
            self.error = None
            self._look(is_settled=is_settled)
        except RemotingError as error:
            self.error = error

    def _look(self, *, is_settled: bool) -> None:
        _, dispatched_end = _log_ends(self.broker)
        halves = read_open_halves(self.broker)
        self.moved = self._moved(halves.conf)
        self.half_end = halves.facts.half_end
        self.stop = next((stop.place for stop in halves.facts.check_stops), None)
        if halves.window is None:
            self.waiting, self.unknown = (), "the broker does not serve its op queue"
            return
        unsettled, unread = halves.unsettled()
        self.unknown = f"{unread} slots of the half queue cannot be read" if unread else None
        times = {one.transaction_id: one.discard_ms for one in halves.forecast({}).halves} if unsettled else {}
        self._note(
            [WaitingHalf(one, times.get(one.transaction_id)) for one in unsettled]
            + [WaitingHalf(UnsettledHalf(name, None, None)) for name in halves.unseen_ids]
        )
        if self.moved:
            self.end = DrainEnd.CHANGED
        elif self.waiting or self.unknown is not None or not is_settled:
            self._seen_empty = None
        elif self._seen_empty is None or self._seen_empty[0] != self.half_end:
            self._seen_empty = self.half_end, _log_ends(self.broker)[0]
        elif dispatched_end >= self._seen_empty[1] and self._is_confirmed():
            self.end = DrainEnd.SAFE

    def _is_confirmed(self) -> bool:
        """Whether the other way of reading finds no open transaction either, and nothing has changed meanwhile."""
        reading = pending([self.broker])
        rows = reading.table().select(["transaction_id", "producer_group", "topic", "discard_at_ms"]).to_pylist()
        self._note([WaitingHalf(UnsettledHalf(*list(row.values())[:3]), row["discard_at_ms"]) for row in rows])
        errors = [finding.line() for finding in reading.findings if finding.is_error]
        if reading.undecidable_count:
            self.unknown = f"{reading.undecidable_count} transactions are UNDECIDABLE"
        elif errors:
            self.unknown = errors[0]
        self.moved = self._moved(self.broker.config())
        if self.moved:
            self.end = DrainEnd.CHANGED
            return False
        return not rows and self.unknown is None and self.broker.max_offset(HALF_TOPIC) == self.half_end

    def _moved(self, conf: Mapping[str, str]) -> tuple[str, ...]:
        wanted = {REJECT: "true"} | self.set_values
        return tuple(
            f"{name} is {conf.get(name, 'not reported')}, and the drain set {value}"
            for name, value in wanted.items() if conf.get(name) != value
        )

    def _note(self, waiting: list[WaitingHalf]) -> None:
        self.waiting = tuple(waiting)
        self._may_be_lost |= {
            one.half.transaction_id: one.discard_ms for one in waiting if one.discard_ms is not None
        }

    def find_lost(self) -> None:
        """Look up what may have been discarded since it was waited for."""
        now_ms, kept = clock.now_ms(), {one.half.transaction_id for one in self.waiting or ()}
        late = [
            name for name, discard_ms in self._may_be_lost.items()
            if name not in kept and discard_ms <= now_ms + _LATE_MS + self.change.preview.interval_ms
        ]
        try:
            self.lost = discarded_of(self.broker, late)
        except RemotingError as error:
            self.lost_unknown = error

    def words(self) -> str:
        """Return how the wait ended, as a clause."""
        if self.end == DrainEnd.SAFE:
            up_to = f", up to half message {self.half_end - 1}" if self.half_end else ""
            return f"no transaction is open, and every decision can be read in the op queue{up_to}"
        if self.end == DrainEnd.CHANGED:
            return f"another operator changed a setting: {'; '.join(self.moved)}"
        if self.end == DrainEnd.LOST:
            return f"the broker could not be read: {self.error}"
        if self.end == DrainEnd.UNKNOWN:
            return f"unknown whether a transaction is open: {self.unknown}"
        why = "interrupted" if self.end == DrainEnd.INTERRUPTED else "the time is over"
        if self.waiting:
            return f"{why}: {len(self.waiting)} half messages without an op message"
        return f"{why}: the queues may lack half messages that the broker has accepted"


def wait_until_drained(
    changes: Sequence[CheckedChange], journal: Journal, for_ms: int, asked: Event, report: Callable[[Drain], None]
) -> list[Drain]:
    """Wait until each drained broker can be stopped, the time is over, or `asked` is set; the receipts get the result.

    `report`: called after each reading of a broker. Only brokers whose settings were read back are waited for.
    Order: that of the changes.
    """
    drains = [Drain(one) for one in changes if _is_drained(one)]
    begin = time.monotonic()
    while left := [drain for drain in drains if drain.end is None]:
        for drain in left:
            if asked.is_set():
                break
            drain.look(is_settled=time.monotonic() - begin >= _UNDER_WAY_SECONDS)
            report(drain)
        if asked.is_set():
            for drain in left:
                drain.end = drain.end or DrainEnd.INTERRUPTED
        elif time.monotonic() - begin >= for_ms / 1000:
            for drain in left:
                drain.end = drain.end or _end_of(drain)
        elif any(drain.end is None for drain in left):
            asked.wait(_PAUSE_SECONDS)
    for drain in drains:
        _record(drain, journal)
    return drains


def _log_ends(broker: Broker) -> tuple[int, int]:
    """Return where the log ends, and up to where its records are in the queues.

    Raises: BadFrame, Unreachable, NoAnswer, Refused.
    """
    runtime = broker.runtime()
    try:
        end = int(runtime["commitLogMaxOffset"])
        return end, end - int(runtime["dispatchBehindBytes"])
    except (KeyError, ValueError) as error:
        raise BadFrame(f"the runtime information of {broker.address} lacks a needed value: {error}") from error


def _is_drained(one: CheckedChange) -> bool:
    return one.is_needless or (one.receipt is not None and one.receipt.outcome == ActOutcome.PROVED)


def _end_of(drain: Drain) -> DrainEnd:
    if drain.error is not None:
        return DrainEnd.LOST
    return DrainEnd.TIME_OVER if drain.waiting or drain.unknown is None else DrainEnd.UNKNOWN


def _record(drain: Drain, journal: Journal) -> None:
    if drain.end != DrainEnd.INTERRUPTED:
        drain.find_lost()
    if (receipt := drain.change.receipt) is None:
        return
    receipt.notes.append(drain.words())
    if drain.lost:
        receipt.notes.append(discarded_words(drain.lost, "by the check meanwhile"))
    if drain.lost_unknown is not None:
        receipt.notes.append(f"unknown whether a half message was discarded meanwhile: {drain.lost_unknown}")
    if drain.end == DrainEnd.CHANGED:
        receipt.outcome = ActOutcome.CONTRADICTED
    journal.end(receipt)
