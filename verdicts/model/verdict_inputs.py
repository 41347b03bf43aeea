"""The inputs of a verdict other than records: cursors, settings and age of a store, unreadable parts of its log, and
half queue offsets that do not identify one half message (`ends/taken_numbers.py` finds these).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from rmqtx.readers.model.columns import Int64s, no_numbers
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.identities import UInt64s
from rmqtx.readers.model.releases import Version
from rmqtx.readers.old_tables.beside_log import BesideLog
from rmqtx.readers.store.broker_settings import BrokerSettings
from rmqtx.verdicts.model.predicted import Prediction

#: No slot of the half queue leads to a half message, and none will: the check never reads it. The slot with its number
#: belongs, or will belong, to another half message.
NO_SLOT = -1
#: No slot leads to it either, and the slot with its number is a filler, or before the begin of the queue.
FILLER_SLOT = -3
#: Which of several half messages with one queue offset has the slot is unknown: no half queue was read.
UNKNOWN_SLOT = -2
#: No COMMIT record names a half message; no op message settles its slot.
NOWHERE = -1


@dataclass(frozen=True, slots=True)
class HalfNumbers:
    """The half messages of queue 0 of a store whose queue offset does not identify them; empty for nearly all stores.

    Shape: two tables, by column. Half messages that are not in the slot of their queue offset: `offsets` (of the
           commit log), `slots` (the slot that leads to each; NO_SLOT, FILLER_SLOT, UNKNOWN_SLOT), `settling_offsets`
           (the op message that the check reads and that names that slot; NOWHERE), `hiding_offsets` (the first op
           message that names that slot, also one that the check has passed; NOWHERE). Half messages that share their
           queue offset with another: `numbers`, `places` (commit-log offsets), `final_offsets` and `final_times_ms`
           (the first COMMIT record that names each; NOWHERE).
    Order: `offsets`; `numbers`, then `places`.
    Units: commit-log offsets in bytes; epoch milliseconds.
    """

    offsets: Int64s = field(default_factory=no_numbers)
    slots: Int64s = field(default_factory=no_numbers)
    settling_offsets: Int64s = field(default_factory=no_numbers)
    hiding_offsets: Int64s = field(default_factory=no_numbers)
    numbers: Int64s = field(default_factory=no_numbers)
    places: Int64s = field(default_factory=no_numbers)
    final_offsets: Int64s = field(default_factory=no_numbers)
    final_times_ms: Int64s = field(default_factory=no_numbers)

    def __bool__(self) -> bool:
        return bool(len(self.offsets) or len(self.numbers))

    @property
    def shifted(self) -> Int64s:
        """The half messages that are in another slot than their queue offset, by their commit-log offsets."""
        return self.offsets[self.slots >= 0]

    def digest(self) -> str:
        """Return a text that changes with any of the values; empty without values."""
        if not self:
            return ""
        parts = [getattr(self, name) for name in self.__dataclass_fields__]
        whole = b"".join(len(part).to_bytes(8, "big") + part.tobytes() for part in parts)
        return hashlib.blake2b(whole, digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class HiddenTopic:
    """Records of one topic that were in missing bytes, by its queues.

    Units: commit-log offsets of the first and the last one. `key_hashes`: their index hashes, of `topic#key`; None if
    the index does not have all of them.
    """

    topic: str
    first_offset: int
    last_offset: int
    key_hashes: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class UnexplainedBytes:
    """Missing bytes without a record in any queue, and the topics that are proven to have had no record there.

    Units: commit-log offsets in bytes.
    """

    begin_offset: int
    end_offset: int
    clear_topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HiddenRecords:
    """All records that missing bytes can hide (`hidden_records.py` has the proof).

    Shape: `ended_offsets`: places of prepared records that hidden COMMIT or ROLLBACK records ended, by the redo log.
    """

    topics: tuple[HiddenTopic, ...]
    gaps: tuple[UnexplainedBytes, ...]
    ended_offsets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MissingRange:
    """Bytes of a commit log that cannot be read, and what is known of their former content.

    Units: commit-log offsets in bytes. If `is_identified`, the range can only concern transactions with one of the ids,
    a copy at one of the prepared offsets, or a copy with one of the op numbers; otherwise those that the `hidden`
    records can concern, or, if these are unknown, any verdict that depends on absence (`missing_rule.py`).
    `named_from_offset`: the first later decision that names a record in the range whose topic is unknown.
    `copy_born_ms`: the range is one half copy whose id is unknown, born at this time: a copy that the check puts back
    keeps the time, so it can only concern transactions with another copy of it. `has_other_copies`: the log has one,
    also if it is judged elsewhere. `is_of_another_log`: the bytes can be read, and are records of another log.
    """

    store: str
    begin_offset: int
    end_offset: int
    what: str
    is_identified: bool = False
    transaction_ids: tuple[str, ...] = ()
    prepared_offsets: tuple[int, ...] = ()
    half_queue_offsets: tuple[int, ...] = ()
    hidden: HiddenRecords | None = None
    named_from_offset: int | None = None
    copy_born_ms: int | None = None
    has_other_copies: bool = False
    is_of_another_log: bool = False


@dataclass(frozen=True, slots=True)
class MisdirectedDecision:
    """A COMMIT record that names a record outside the half topic: its op has that record's queue offset.

    Source: EndTransactionProcessor (the record's topic is not tested, to 5.3.3);
            docs/formats/end_transaction.md#repeats.
    """

    store: str
    queue_id: int
    queue_offset: int
    final_offset: int
    final_time_ms: int


@dataclass(frozen=True, slots=True)
class DoubtfulId:
    """A half copy, COMMIT record or discard copy with an id that no other record has, and another id in the index.

    Shape: `key_hashes`: the index hashes of `topic#id` for its place: its true id has one of them.
    """

    store: str
    commit_log_offset: int
    topic: str
    what: str
    key_hashes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DoubtfulEnd:
    """A COMMIT, ROLLBACK or op record that names no half record of its own: its reference is damaged.

    Shape: `what`: the text for a reason. `transaction_ids`: the id of the record; else `prepared_offsets`: the half
           records with the same values. If both are empty, it may have ended any earlier transaction of its group.
    """

    store: str
    commit_log_offset: int
    is_commit: bool
    what: str
    transaction_ids: tuple[str, ...] = ()
    prepared_offsets: tuple[int, ...] = ()
    producer_group: str | None = None


@dataclass(frozen=True, slots=True)
class StoreView:
    """The facts of a store other than its records.

    `half_cursors` and `op_cursors`: next queue offsets by queue; None if unknown, `cursor_doubt` may have the cause.
    `reference_time_ms`: the time up to which the store is known: now for a running broker, else the end of its log, or
    `at_ms` if that is earlier.
    `beside`: the tables beside the log; `is_interrupted`: the broker did not stop cleanly, or runs, so they may be old.
    `killed_time_ms`: the end of the log of a broker that did not stop cleanly, and does not run, also if `at_ms` is
    earlier: it was killed then or later. None for other brokers.
    `later_hashes`: identities of half and discard copies that were written after `at_ms`, in no order;
    `later_commit_hashes`: those of COMMIT records.
    `now_ms`: the time by which a broker that started now would measure immunity: that of reading, or `at_ms`; None if
    it is the reference time. `booted_time_ms`: when a live broker started, None for files, which do not contain it.
    `check_stops`: where the check of its half queues is stopped (`check_stops.py`); none for a past time.
    `future`: what its next start and its check do with half copies (`deadlines/predicting.py`); None for a past time.
    `half_numbers`: the half messages that their half queue offset does not identify (`taken_numbers.py`).
    `idle_ops`: commit-log offsets of op messages that the check passes over: those without their tag.
    `replaced`: ranges of commit-log offsets, begin and end, in which a copy of its log has the records and this store
    has damage: its own records there, if any are left, do not count.
    `log`: which log it has, as the root of the first given store with the same log; None where that was not compared.
    `uncompared_logs`: other logs, named in this way, that have no part in common with it: whether they are copies is
    unknown.
    """

    store: str
    settings: BrokerSettings
    half_cursors: Mapping[int, int] | None
    op_cursors: Mapping[int, int] | None
    log_begin_offset: int
    reference_time_ms: int
    at_ms: int | None = None
    now_ms: int | None = None
    checks_seen_max: int = 0
    later_hashes: UInt64s = field(default_factory=lambda: np.empty(0, np.uint64), repr=False, compare=False)
    later_commit_hashes: UInt64s = field(default_factory=lambda: np.empty(0, np.uint64), repr=False, compare=False)
    missing: tuple[MissingRange, ...] = ()
    misdirected_decisions: tuple[MisdirectedDecision, ...] = field(default=(), repr=False)
    doubtful_ends: tuple[DoubtfulEnd, ...] = field(default=(), repr=False)
    doubtful_ids: tuple[DoubtfulId, ...] = field(default=(), repr=False)
    beside: BesideLog = field(default_factory=BesideLog, repr=False)
    is_interrupted: bool = False
    cursor_doubt: str | None = None
    killed_time_ms: int | None = None
    booted_time_ms: int | None = None
    check_stops: tuple[CheckStop, ...] = ()
    future: Prediction | None = field(default=None, repr=False, compare=False)
    half_numbers: HalfNumbers = field(default_factory=HalfNumbers, repr=False, compare=False)
    idle_ops: tuple[int, ...] = field(default=(), repr=False)
    replaced: tuple[tuple[int, int], ...] = field(default=(), repr=False)
    log: str | None = None
    uncompared_logs: frozenset[str] = frozenset()

    @property
    def present_ms(self) -> int:
        """`now_ms`; without it, the time up to which the store is known."""
        return self.reference_time_ms if self.now_ms is None else self.now_ms


def idle_ops(findings: Iterable[Finding]) -> tuple[int, ...]:
    """Return the commit-log offsets of the op messages that the check passes over, by the findings about them."""
    places = {one.commit_log_offset for one in findings if one.code == "op-without-effect"}
    return tuple(sorted(place for place in places if place is not None))


@dataclass(frozen=True, slots=True)
class CheckStop:
    """A message at which every round of the check of one half queue ends.

    Shape: `place` is the place as text: "half 140". The check reaches only half copies with a queue offset below
           `reach_end`. `why` names the broker and the cause: "broker 4.5.0 cannot read it". `since_ms` is the store
           time of the message, or when the check that does not run was due to reach it: no round has passed it since;
           None if unknown. `transaction_id` and `commit_log_offset`
           are those of the message, if known; `queue_offset` its place in the half queue, or in the op queue (`is_op`).
           `is_readable`: the message can be read, but the check does not run. `lacks_room`: it can be read, but its
           properties leave no room for those that the check adds. `version`: the broker's version by whose
           rules the message ends the round; None if it is not known, or makes no difference. `is_lost`: the log has no
           file with its record, although it would be in the log.
    Units: queue offsets; epoch milliseconds.
    """

    store: str
    queue_id: int
    queue_offset: int
    is_op: bool
    reach_end: int
    why: str
    since_ms: int | None = None
    transaction_id: str | None = None
    commit_log_offset: int | None = None
    is_readable: bool = False
    lacks_room: bool = False
    version: Version | None = None
    is_lost: bool = False

    @property
    def place(self) -> str:
        """Return the place as text."""
        return f"{'op' if self.is_op else 'half'} {self.queue_offset}"
