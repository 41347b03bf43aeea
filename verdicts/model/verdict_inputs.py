"""What a verdict rests on beside records: a store's cursors, settings and age, and what cannot be read of its log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from readers.model.identities import UInt64s
from readers.old_tables.beside_log import BesideLog
from readers.store.broker_settings import BrokerSettings
from verdicts.model.check_stop import CheckStop


@dataclass(frozen=True, slots=True)
class HiddenTopic:
    """Records of one topic that stood in missing bytes, as queues know them.

    Units: commit-log offsets of the first and the last one. `key_hashes` are those that the index has for them, of
    `topic#key`; None where it does not have each of them.
    """

    topic: str
    first_offset: int
    last_offset: int
    key_hashes: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class UnexplainedBytes:
    """Missing bytes of which no queue knows a record, and the topics of which it is proven that none stood there.

    Units: commit-log offsets in bytes.
    """

    begin_offset: int
    end_offset: int
    clear_topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HiddenRecords:
    """All that missing bytes can hide (`hidden_records.py` has the proof).

    Shape: `ended_offsets` are places of prepared records that COMMIT or ROLLBACK records there ended, by the redo log.
    """

    topics: tuple[HiddenTopic, ...]
    gaps: tuple[UnexplainedBytes, ...]
    ended_offsets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MissingRange:
    """Bytes of a commit log that cannot be read, and what is known of what stood there.

    Units: commit-log offsets in bytes. If `is_identified`, only transactions with one of the ids, a copy at one of the
    prepared offsets, or a copy with one of the op numbers can be concerned; else those that what is `hidden` can
    concern, or any whose verdict relies on absence where that is not known (`missing_rule.py`). `named_from_offset` is
    the first decision behind that names a record in it of which nothing tells the topic.
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


@dataclass(frozen=True, slots=True)
class ForeignDecision:
    """A COMMIT record that names a record outside the half topic: its op carries that record's queue offset.

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
    """A half copy, COMMIT record or discard copy whose id no other record bears, and which the index knows by another.

    Shape: `key_hashes` are those of `topic#id` that the index has at its place: its true id has one of them.
    """

    store: str
    commit_log_offset: int
    topic: str
    what: str
    key_hashes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DoubtfulEnd:
    """A COMMIT, ROLLBACK or op record inside the log that names no half record of its own: its name is damaged.

    Shape: `what` says so, for a reason. `transaction_ids`: the id that it bears; else `prepared_offsets`: the half
           records that say what it says. Where both are empty it may have ended any of its group that came before it.
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
    """What a store says beside its records.

    `half_cursors` and `op_cursors` are next queue offsets by queue; None where they are unknown, and `cursor_doubt` may
    say why. `reference_time_ms` is
    the moment up to which the store is known: now for a running broker, else the end of its log. `beside` is what the
    tables beside the log say; `is_interrupted`: the broker did not stop cleanly, or runs, so that they may be old.
    `was_killed`: it did not stop cleanly, and does not run.
    `later_hashes` are identities of half and discard copies that were written after `at_ms`, in no order.
    `now_ms` is the time by which a broker that started now would measure immunity: that of reading, or `at_ms`; None
    where it is the reference time. `booted_time_ms` is when a live broker started, None for files, which do not say it.
    `check_stops`: where the check of its half queues comes no further (`check_stops.py`); none for a time that is over.
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
    missing: tuple[MissingRange, ...] = ()
    foreign_decisions: tuple[ForeignDecision, ...] = field(default=(), repr=False)
    doubtful_ends: tuple[DoubtfulEnd, ...] = field(default=(), repr=False)
    doubtful_ids: tuple[DoubtfulId, ...] = field(default=(), repr=False)
    beside: BesideLog = field(default_factory=BesideLog, repr=False)
    is_interrupted: bool = False
    cursor_doubt: str | None = None
    was_killed: bool = False
    booted_time_ms: int | None = None
    check_stops: tuple[CheckStop, ...] = ()
