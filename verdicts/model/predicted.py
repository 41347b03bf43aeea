"""The future of each half copy: what the next start and the check of its broker do next, and when they discard it.

The deadline of a transaction is the prediction for its copies as one value, in the form that pages use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Bools, Int64s, no_numbers, rows_where
from rmqtx.readers.model.findings import Finding
from rmqtx.verdicts.model.verdict_words import OPEN_AGAIN_FLAG, Advice, AnswerEffect, NextEvent, State

#: The default file reservation of 72 hours, at a round every 30 seconds, ends every half before this.
ROUNDS_MAX = 10_000
#: The most halves that are played one by one, which is necessary if a record hinders the check.
PLAYED_HALVES_MAX = 5_000


class Why(NamedTuple):
    """Why nothing will discard a transaction; without `is_known`: why there is no prediction, though it may happen."""

    text: str
    is_known: bool = True


NOT_BEFORE = Why("the check will reach no readable copy of it")
OUT_OF_REACH = Why("the check is stopped at this half message or at an earlier message")
NEVER_DISCARDED = Why("brokers 3.0 and 3.1 check it without a limit and never discard it")
NO_SLOT = Why("it has no slot of its own in the state table: the broker neither checks nor discards it")
NEVER_ASKED = Why("brokers from 3.2 on have no check for prepared records: they neither check nor discard it")
SLAVE = Why("this broker is a slave: its master checks it, and may discard it", is_known=False)
CUT_OFF = Why("the next start of its broker cuts it off the log first")
ENDLESS = Why(f"the check would put it back at least {ROUNDS_MAX} times")
PASSED = Why("the check passes its slot of the half queue without reading it")
REFUSED = Why(
    "its broker does not start on this store (rmqtx verify STORE gives the file), so nothing happens", is_known=True
)
PAST = Why("deadlines are not predicted for a past time", is_known=False)
NO_CURSOR = Why("the check cursor is unknown", is_known=False)
ROCKSDB_QUEUES = Why(
    "its half queue is in RocksDB, and its slots after the next start are not known (rmqtx simulate STORE gives the "
    "reason)", is_known=False,
)
DIVERTED = Why(
    "it has a delay or timer property: each copy of it waits in another topic first, which is not simulated",
    is_known=False,
)
UNPLAYED = Why("the table of its check was not read (rmqtx verify STORE gives the reason)", is_known=False)
TOO_MANY = Why(
    f"a record hinders the check and more than {PLAYED_HALVES_MAX} halves are open, which takes long to predict: run "
    "rmqtx simulate STORE --show transactions", is_known=False,
)


#: The time of what never happens.
NEVER = -1


class Event(IntEnum):
    """What happens to a half copy next.

    ASKED: a producer is asked about it (half topics: after a copy of it is put back). PUT_BACK: only put back: it is in
    its immunity time, or it does not name a producer group and a topic. EXPIRED: discarded without asking, older than
    fileReservedTime. SPENT: discarded, its checks are used up. DROPPED: removed from RocksDB or unreadable there.
    SKIPPED: never read, because its slot or one before it is a filler.
    STOPPED: the check ends before it in every round. CUT: the next start cuts it off the log. ENDED: an op ends
    it, so nothing happens. UNREAD: no slot that the check reads leads to it, because queue or slots are missing or
    damaged. UNKNOWN: it cannot be predicted.
    """

    ASKED = 0
    PUT_BACK = 1
    EXPIRED = 2
    SPENT = 3
    DROPPED = 4
    SKIPPED = 5
    STOPPED = 6
    CUT = 7
    ENDED = 8
    UNREAD = 9
    UNKNOWN = 10


#: Events in the column `next_event`.
WORDS: dict[Event, NextEvent] = {
    Event.ASKED: NextEvent.ASKED, Event.PUT_BACK: NextEvent.PUT_BACK, Event.EXPIRED: NextEvent.EXPIRED,
    Event.SPENT: NextEvent.DISCARDED, Event.DROPPED: NextEvent.DROPPED, Event.SKIPPED: NextEvent.SKIPPED,
    Event.STOPPED: NextEvent.STOPPED, Event.CUT: NextEvent.CUT, Event.UNREAD: NextEvent.SKIPPED,
    Event.UNKNOWN: NextEvent.UNKNOWN,
}
#: The values of the column `next_event`, and what they mean.
EVENTS: dict[NextEvent, str] = {
    NextEvent.ASKED: "a producer is asked",
    NextEvent.PUT_BACK: "a copy is put back, no producer is asked",
    NextEvent.EXPIRED: "discarded without asking, because of its age",
    NextEvent.DISCARDED: "discarded without asking, because its checks are used up",
    NextEvent.DROPPED: "dropped from RocksDB without asking",
    NextEvent.SKIPPED: "never read by the check",
    NextEvent.STOPPED: "not reached: the check stops before it",
    NextEvent.CUT: "cut off the log when the broker starts",
    NextEvent.UNKNOWN: "not predicted: rmqtx show ID gives the reason",
    NextEvent.NONE: "nothing: the check has no copy of it before it",
}
#: The values of the column `answer_effect`, and what they mean.
EFFECTS: dict[AnswerEffect, str] = {
    AnswerEffect.DELIVER: "the answer COMMIT delivers it",
    AnswerEffect.DELIVER_AGAIN: "the answer COMMIT delivers it once more",
}
#: The events with which the check ends a transaction without asking a producer.
UNASKED_ENDS = (Event.EXPIRED, Event.SPENT, Event.DROPPED)
#: The events of copies that the check reads.
READ_EVENTS = (Event.ASKED, Event.PUT_BACK, Event.EXPIRED, Event.SPENT)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the next start and the check of one broker do with the half copies that the check has not reached yet.

    Shape: `offsets` are the commit-log offsets of the copies that the check has before it, ascending; the other arrays
           have the same order: the next event and its time; how many times a producer is asked before the end; the time
           of the discard, whether the copy's age is its cause, and whether it may happen one round later. Times are
           NEVER where nothing happens. `whys`: by commit-log offset, why a copy is not discarded; `why`: the same for
           all other copies. `is_whole`: the check of all half queues was played, so a half copy that is not here has no
           slot that leads to it. `fillers`: the half slots without a record, by queue. `hidden_until`: the end of the
           log, and the place of it up to which new half copies get no slot, if that is behind the end. `cuts`: the half
           and op queues that the next start cuts because of their own slots. `log_cut`: where the next start cuts the
           log off, if it does. `assumed`: what was assumed, of ASSUMED. `differing`: if the start of the possible
           releases lead to different events, a release and a summary of its events for each future. `refusals`: why its
           broker does not start. `left_out`: the files of the log that it does not load. `start_ms`: when a stopped
           broker is assumed to start. `unread`: the file that could not be read, so that nothing is predicted.
           `passes_ops`: the check passes op messages that no slot leads to, or that are behind slots without a record;
           `may_pass_ops`: it may, because no request shows these slots.
    """

    is_running: bool = False
    begin_ms: int = 0
    offsets: Int64s = field(default_factory=no_numbers)
    events: Int64s = field(default_factory=no_numbers)
    event_times_ms: Int64s = field(default_factory=no_numbers)
    times_ms: Int64s = field(default_factory=no_numbers)
    checks_to_come: Int64s = field(default_factory=no_numbers)
    are_expired: Bools = field(default_factory=lambda: np.empty(0, np.bool_))
    may_be_later: Bools = field(default_factory=lambda: np.empty(0, np.bool_))
    whys: Mapping[int, Why] = field(default_factory=dict, repr=False)
    why: Why = NOT_BEFORE
    is_whole: bool = False
    fillers: Mapping[int, Int64s] = field(default_factory=dict, repr=False)
    hidden_until: tuple[int, int] | None = None
    cuts: tuple[Finding, ...] = ()
    log_cut: int | None = None
    assumed: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()
    refusals: tuple[Finding, ...] = ()
    left_out: tuple[Finding, ...] = ()
    unread: tuple[Finding, ...] = ()
    start_ms: int = 0
    passes_ops: bool = False
    may_pass_ops: bool = False

    def digest(self) -> str:
        """Return a digest of what happens to each copy next, without its times."""
        parts = (self.offsets, self.events, (self.checks_to_come > 0).astype(np.int64))
        what = f"{self.why.text}{self.is_whole}{self.is_running}{self.log_cut}"
        return sha256(b"".join(part.tobytes() for part in parts) + what.encode()).hexdigest()

    @property
    def passed_count(self) -> int:
        """The number of slots of half queues that lead to no half message, or that the check passes because of one."""
        fillers = sum(len(numbers) for numbers in self.fillers.values())
        return fillers + int((self.events == Event.SKIPPED).sum())

    def summary(self) -> str:
        """Return the number of half copies for each event in words."""
        if self.why == REFUSED:
            return "the broker does not start"
        events, counts = np.unique(self.events, return_counts=True)
        parts = [
            f"{count} {WORDS[Event(event)]}" for event, count in zip(events.tolist(), counts.tolist(), strict=True)
            if Event(event) in WORDS
        ]
        return ", ".join(parts) or "the check reaches no half message"

    def events_at(self, offsets: Int64s) -> tuple[Int64s, Int64s]:
        """Return the event of each of some copies, and the row of the copy here; -1 and -1 for copies that are not."""
        if not len(self.offsets):
            return np.full(len(offsets), -1, np.int64), np.full(len(offsets), -1, np.int64)
        rows = np.minimum(np.searchsorted(self.offsets, offsets), len(self.offsets) - 1)
        rows = np.where(self.offsets[rows] == offsets, rows, -1)
        return np.where(rows < 0, -1, self.events[rows]), rows

    def chosen(self, rows: Int64s | Bools) -> Prediction:
        """Return the prediction of some copies only."""
        return replace(self, **{name: getattr(self, name)[rows] for name in COPY_ARRAYS})


#: The arrays of a prediction that have a value for each copy.
COPY_ARRAYS = (
    "offsets", "events", "event_times_ms", "times_ms", "checks_to_come", "are_expired", "may_be_later",
)
#: What a prediction may rest on without evidence: settings that were not given, a version that is not known, a log that
#: was not read.
ASSUMED_SETTINGS, ASSUMED_VERSION, UNREAD_LOG = "settings", "version", "log"
ASSUMED: dict[str, str] = {
    ASSUMED_SETTINGS: "the settings of the broker: add --broker-conf",
    ASSUMED_VERSION: "the release of the broker: add --broker-version",
    UNREAD_LOG: "a log without damage: rmqtx verify shows what the next start cuts off",
}


#: The flag of transactions that the check never reaches (`transactions/flags.py`).
NEVER_ASKED_FLAG = "never_asked"

#: The advice for decided or discarded transactions that the broker checks again.
_ASKED_ADVICE = (Advice.CLOSE, Advice.WAIT)


#: The next events of copies that the check reads.
_REACHED = (NextEvent.ASKED, NextEvent.PUT_BACK, NextEvent.EXPIRED, NextEvent.DISCARDED, NextEvent.DROPPED)


def _is_open(transaction: Mapping[str, Any]) -> bool:
    """The same rule as `is_open_row`, for one row; `next_event` may be missing."""
    is_asked = transaction["advice"] in _ASKED_ADVICE or transaction.get("next_event") in _REACHED
    return transaction["state"] == State.PENDING or is_asked


def is_open_row(rows: pa.Table) -> pa.Array:
    """Which rows the check will still reach: PENDING, and decided or discarded ones of which it reads a copy again."""
    is_asked = pc.is_in(rows["advice"], value_set=pa.array(_ASKED_ADVICE))
    is_asked = pc.or_(is_asked, pc.is_in(rows["next_event"], value_set=pa.array(_REACHED)))
    return pc.or_(pc.equal(rows["state"], State.PENDING), is_asked)


def open_rows(rows: pa.Table) -> pa.Table:
    """Return the rows that the check will still reach: PENDING, and decided or discarded ones that it checks again.

    Of the latter some have nothing that would close them: a broker 3.1 that rebuilt its state table asks again and
    refuses every answer, so their advice is `none`.
    """
    flags = rows["flags"].combine_chunks()
    owners = pc.list_parent_indices(flags).filter(pc.equal(pc.list_flatten(flags), OPEN_AGAIN_FLAG))
    are_open = np.asarray(is_open_row(rows)).astype(np.bool_)
    are_open[np.asarray(owners)] = True
    return rows_where(rows, pa.array(are_open))


@dataclass(frozen=True, slots=True)
class Deadline:
    """The prediction for one transaction; without one, only `why` is set.

    Shape: `checks_to_come`: how many times the broker still asks the producer. `may_be_later`: it may happen one round
           later. `assumed`: what the prediction rests on without evidence, of ASSUMED.
    """

    discard_at_ms: int | None
    checks_to_come: int = 0
    is_expired: bool = False
    may_be_later: bool = False
    is_running: bool = False
    why: Why | None = None
    assumed: tuple[str, ...] = ()


def deadline_of(transaction: Mapping[str, Any], predicted: Mapping[str, Prediction]) -> Deadline | None:
    """Return the deadline of a row of TRANSACTIONS; None if the check will not reach it again."""
    if not _is_open(transaction):
        return None
    known = predicted.get(transaction["store"])
    if transaction.get("next_event") == NextEvent.CUT:
        assumed = () if known is None else known.assumed
        return Deadline(None, is_running=known is not None and known.is_running, why=CUT_OFF, assumed=assumed)
    if NEVER_ASKED_FLAG in transaction["flags"] and transaction["discard_at_ms"] is None:
        of_table = {NEVER_DISCARDED: NO_SLOT, NEVER_ASKED: NEVER_ASKED}
        return Deadline(
            None, is_running=known is not None and known.is_running, assumed=() if known is None else known.assumed,
            why=of_table.get(known.why if known else NOT_BEFORE, OUT_OF_REACH),
        )
    if known is None:
        return Deadline(None, why=NOT_BEFORE)
    offsets = [copy["commit_log_offset"] for copy in transaction["half_copies"]]
    if (time_ms := transaction["discard_at_ms"]) is None:
        why = next((known.whys[offset] for offset in offsets if offset in known.whys), known.why)
        if why == NOT_BEFORE and transaction.get("next_event") == NextEvent.UNKNOWN:
            why = UNPLAYED
        return Deadline(None, is_running=known.is_running, why=why, assumed=known.assumed)
    # Copies of one log are stores of their own: the broker of another one may discard it later.
    for root in dict.fromkeys([transaction["store"], *(copy["store"] for copy in transaction["half_copies"])]):
        if (one := predicted.get(root)) is None:
            continue
        places = np.flatnonzero(np.isin(one.offsets, offsets) & (one.times_ms == time_ms))
        if len(places):
            place = int(places[0])
            return Deadline(
                time_ms, int(one.checks_to_come[place]), bool(one.are_expired[place]), bool(one.may_be_later[place]),
                one.is_running, assumed=one.assumed,
            )
    return Deadline(time_ms, is_running=known.is_running, assumed=known.assumed)
