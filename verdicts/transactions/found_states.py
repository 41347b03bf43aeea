"""The second step of a judgement: the state that all witnesses of a transaction show together.

A verdict states what the broker recorded and what it will do next. Order of judgement:

(a) a COMMIT record that names a half or discard copy, or has the id → COMMITTED;
(b) else an op mark on a half copy → ROLLED_BACK, unless a decision on a record outside the half topic explains the op;
(c) else a half copy, later than any discard copy, that the check has not reached yet → PENDING;
(d) else a discard copy, or used-up checks if the version writes none → DISCARDED;
(e) else LOST.

The other designs have the same order (`design_tables.py` determines what is open in them): a ROLLBACK record ends a
prepared record as an op message ends a half, and only a COMMIT or ROLLBACK record does; a half in RocksDB is open while
the broker's table contains it, and discarded without a copy when the table no longer does. There a resume creates
another half with its own place: each half is judged by its own op message, and the transaction has the state of the
half that is most open, unless a COMMIT record exists.

UNDECIDABLE replaces any of these if missing bytes could contain a record that changes it; the reason names the bytes.
Source: TransactionalMessageServiceImpl.check, EndTransactionProcessor; docs/formats/half_and_op.md#check,
docs/formats/half_and_op.md#failures, docs/formats/state_table.md#records, docs/formats/rocksdb_transactions.md#open,
docs/formats/end_transaction.md#repeats.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.log.header_doubts import has_port
from rmqtx.readers.log.offset_marks import is_rocksdb_mark
from rmqtx.readers.model.columns import Bools, Int64s, coalesced, int64s
from rmqtx.readers.model.identities import UInt64s, identities, identity_hashes
from rmqtx.readers.old_tables.beside_log import NONE
from rmqtx.readers.store.store import HALF_TOPIC
from rmqtx.verdicts.check.check_rules import age_may_equal
from rmqtx.verdicts.model.predicted import Event
from rmqtx.verdicts.model.state import State
from rmqtx.verdicts.model.verdict_inputs import StoreView
from rmqtx.verdicts.transactions.chains import Chains, Group
from rmqtx.verdicts.transactions.judged_copies import JudgedCopies
from rmqtx.verdicts.transactions.state_numbers import StateNumbers

_HIGHEST = np.iinfo(np.int64).max


class FoundStates(JudgedCopies):
    """The state of each transaction by its records, as if nothing were missing.

    Shape: every attribute has one value per transaction, or one per half copy where its name states this.
    """

    def __init__(self, chains: Chains, views: Mapping[str, StoreView]) -> None:
        super().__init__(chains, views)
        self._judge_witnesses()
        self._find_states()

    def _judge_witnesses(self) -> None:
        far = _HIGHEST
        halves, marks, finals, discards = self.halves, self.marks, self.finals, self.discards
        own = self.decides_per_mark
        named = self.chains.named_finals
        self.marks_count = marks.count_of(own)
        self.first_own_mark = marks.lowest(np.arange(len(marks)), len(marks), own)
        records = self.chains.offset_marks
        self.has_rollback_record = records.any_of(~np.asarray(is_rocksdb_mark(records.table)))
        self.commits_count = finals.count_of(named & ~self.chains.replicated_finals)
        self.first_mark_rank = marks.lowest(marks.rank, far, own)
        self.first_final_rank = finals.lowest(finals.rank, far)
        self.first_discard_rank = discards.lowest(discards.rank, far)
        self.last_discard_rank = discards.highest(discards.rank, -1)
        self.newest_half_rank = halves.highest(halves.rank, -1)
        later = halves.rank > self.last_discard_rank[halves.number]
        # The check puts back or discards only copies that it has not reached before: a later copy proves this.
        is_ahead = halves.any_of(self.is_ahead_per_copy & later)
        self.is_copied_later = halves.any_of(self._are_copied_later() & later) & ~is_ahead
        self.is_waiting = is_ahead | self.is_copied_later
        self.is_asked_again = halves.any_of(self.is_open_per_copy)
        self.checks_count = np.maximum(
            halves.highest(np.maximum(halves.integers("checks_count", 0), self.others.checks), 0),
            discards.highest(discards.integers("checks_count", 0), 0),
        )
        # Only the RocksDB table counts the checks of its halves: for a half that it does not contain, the number is
        # unknown. The timer of 3.0 and 3.1 counts nothing.
        is_counted = halves.highest(self.others.checks, NONE) != NONE
        self.has_unknown_checks = self.newest_is(self.others.is_rocksdb) & ~is_counted
        self.has_unknown_checks |= halves.any_of(self.others.is_uncounted)
        self.newest_checks = np.where(
            halves.has, halves.integers("checks_count", 0)[halves.last] if len(halves) else 0, 0
        )

    def _are_copied_later(self) -> Bools:
        """Which half copies belong to transactions with copies after the given time."""
        return self._are_of_half_topic_among({name: view.later_hashes for name, view in self.views.items()})

    @property
    def is_committed_later(self) -> Bools:
        """Whether a COMMIT record of a half in the half topic was written after the given time."""
        later = {name: view.later_commit_hashes for name, view in self.views.items()}
        return self.halves.any_of(self._are_of_half_topic_among(later))

    def _are_of_half_topic_among(self, hashes_of: Mapping[str, UInt64s]) -> Bools:
        """Which half copies of the half topic have one of the identities, given by store name as their hashes."""
        halves = self.halves
        found = np.zeros(len(halves), np.bool_)
        if not any(len(hashes) for hashes in hashes_of.values()):
            return found
        named = identities(halves.table)
        own = identity_hashes(named.combine_chunks() if isinstance(named, pa.ChunkedArray) else named)
        is_half: Bools = np.asarray(pc.equal(halves.table["topic"], HALF_TOPIC))
        for name, hashes in hashes_of.items():
            here: Bools = np.asarray(pc.equal(halves.table["store"], name))
            found |= here & is_half & np.isin(own, hashes)
        return found

    def per_transaction(self, value_of: Mapping[str, int]) -> Int64s:
        """Return a number of each transaction's store, given by store name."""
        table = np.array([value_of[name] for name in self.chains.stores] or [0], np.int64)
        return table[self._store_numbers]

    @cached_property
    def may_equal_immunity_per_copy(self) -> Bools:
        """Which half copies are immune also when their age equals their immunity time."""
        equal = {name: int(age_may_equal(view.settings, view.check_stops)) for name, view in self.views.items()}
        found: Bools = (self.per_transaction(equal)[self.halves.number] > 0) & ~self.others.is_rocksdb
        return found

    @cached_property
    def _store_numbers(self) -> Int64s:
        """The number of each transaction's store among `chains.stores`; 0 if it is unknown."""
        names = self.chains.stores
        if len(names) <= 1:
            return np.zeros(self.chains.count, np.int64)
        return int64s(pc.index_in(self.store, value_set=pa.array(names, pa.string())), 0)

    def are_in(self, group: Group, store: str) -> Bools:
        """Return which records of a group are in a store."""
        if len(self.chains.stores) == 1:
            return np.full(len(group), self.chains.stores[0] == store)
        return np.asarray(pc.fill_null(pc.equal(group.table["store"], store), False))

    def has_record_in(self, store: str) -> Bools:
        """Return which transactions have a half copy, a decision or a discard copy in a store."""
        found: Bools = np.logical_or.reduce([group.any_of(self.are_in(group, store)) for group in self._bearers])
        return found

    def has_copy_in(self, store: str) -> Bools:
        """Return which transactions have a half copy in a store; of those that have none, which have another record.

        `store` is the first of these stores.
        """
        found, is_left = (np.zeros(self.chains.count, np.bool_), np.ones(self.chains.count, np.bool_))
        for group in self._bearers:
            found |= is_left & group.any_of(self.are_in(group, store))
            is_left &= ~group.has
        return found

    @property
    def _bearers(self) -> tuple[Group, ...]:
        return self.halves, self.discards, self.finals, self.chains.offset_marks

    def _store_of_transaction(self) -> pa.Array:
        return coalesced(
            group.at("store", self._first_open() if group is self.halves else group.first)
            for group in self._bearers
        )

    def _first_open(self) -> Int64s:
        """Return the first half copy of each transaction; if the check of its store reaches none, but that of another
        store does, the first of these.

        A slave that acted as master, or a copy of the log that went on, has a check of its own.
        """
        halves, is_open = self.halves, self.is_open_per_copy
        if len(self.chains.stores) < 2 or not is_open.any():
            return halves.first
        stores = int64s(halves.table["store"].combine_chunks().dictionary_encode().indices)
        is_of_first = stores == stores[halves.first[halves.number]]
        others = halves.lowest(np.arange(len(halves)), len(halves), is_open)
        is_elsewhere = halves.any_of(is_open) & ~halves.any_of(is_open & is_of_first)
        return np.where(is_elsewhere, others, halves.first)

    def _find_states(self) -> None:
        halves, finals, discards = self.halves, self.finals, self.discards
        self.store = self._store_of_transaction()
        self.log_begin = self.per_transaction({name: view.log_begin_offset for name, view in self.views.items()})
        others = self.others
        self.is_committed = finals.has
        # An op ends one half in RocksDB; another half of the same transaction (resumed, or sent again) stays open.
        left = others.is_rocksdb & ~self.is_marked_per_copy
        self.is_reopened = halves.any_of(left & others.is_ahead)
        self.is_unread = halves.any_of(left & others.is_unknown)
        self.is_marked = (self.marks_count > 0) & ~self.is_reopened
        spent = self._spent_checks() | halves.any_of(others.is_dropped)
        self._choose_reason_copies(left)
        states = StateNumbers.chosen([
            (self.is_committed, State.COMMITTED), (self.is_marked, State.ROLLED_BACK), (self.is_waiting, State.PENDING),
            (discards.has | spent, State.DISCARDED),
        ], State.LOST)  # fmt: skip
        self.is_without_copy = spent & states.are(State.DISCARDED) & ~discards.has
        self.states = states

    def _choose_reason_copies(self, left: Bools) -> None:
        """Choose the half copy for the reason: the newest one, and of several in RocksDB the one that is most open."""
        halves, others = self.halves, self.others
        self.reason_copy = halves.last.copy()
        if not others.is_rocksdb.any():
            return
        for chosen in (others.is_dropped, others.is_unknown, others.is_ahead):
            rows = np.flatnonzero(left & chosen)
            np.put(self.reason_copy, halves.number[rows], rows)  # in log order: the newest stays

    def _spent_checks(self) -> Bools:
        """Whether the newest copy had all its checks, in a store whose version writes no discard copies.

        One that the check has not reached, and that it skips, was not discarded: fillers are in its slot.
        """
        limits, silent = {}, {}
        for name, view in self.views.items():
            settings = view.settings
            # transactionCheckMax is not in a store: unless given, the highest number of checks seen is used.
            limits[name] = (
                settings.transaction_check_max
                if settings.check_max_is_configured
                else min(settings.transaction_check_max, view.checks_seen_max or settings.transaction_check_max)
            )
            silent[name] = int(settings.writes_discard_copy is not True)
        limit, is_silent = self.per_transaction(limits), self.per_transaction(silent)
        spent: Bools = self.halves.has & (is_silent > 0) & (limit > 0) & (self.newest_checks >= limit)
        spent &= ~self.newest_is((self.event_per_copy == Event.SKIPPED) & self.is_numbered_ahead_per_copy)
        most = {name: view.settings.transaction_check_max for name, view in self.views.items()}
        self.depends_on_assumed_check_max = spent & (limit < self.per_transaction(most))
        return spent

    def real_topics(self) -> pa.Array:
        """Return the topic that each transaction's message is delivered to, as far as its records show."""
        marks = self.chains.offset_marks
        return coalesced(
            group.at(name, rows) for group, name, rows in (
                (self.halves, "real_topic", self.halves.first), (self.discards, "real_topic", self.discards.first),
                (self.finals, "topic", self.finals.last), (marks, "real_topic", marks.last),
            )
        )  # fmt: skip

    def names(self) -> tuple[pa.Array, pa.Array]:
        """Return the id of each transaction, and its business keys."""
        return self.identity(), self.first_of("keys")

    def _id_by_other_records(self) -> pa.Array:
        """Return the id of other records, if the index has another id for the first half copy; null otherwise."""
        halves, finals = self.halves, self.finals
        places = {one.commit_log_offset for view in self.views.values() for one in view.doubtful_ids}
        if not places or not len(halves):
            return pa.nulls(self.chains.count, pa.string())
        doubted = halves.has & np.isin(halves.integers("commit_log_offset")[halves.first], list(places))
        return finals.at("transaction_id", finals.last, doubted & finals.has)

    def _id_by_ends(self) -> pa.Array:
        """Return the id that ends have for a half copy, if the host that identifies it is damaged; null otherwise."""
        halves, finals, marks = self.halves, self.finals, self.chains.offset_marks
        if not len(halves):
            return pa.nulls(self.chains.count, pa.string())
        is_doubted = halves.has & ~has_port(halves.integers("store_host_number"))[halves.first]
        if not is_doubted.any():
            return pa.nulls(self.chains.count, pa.string())
        is_doubted &= np.asarray(pc.is_null(halves.at("transaction_id", halves.first)))
        return pc.coalesce(*(
            group.at("lone_prepared_id", group.first, is_doubted & group.has) for group in (finals, marks)
        ))

    def identity(self) -> pa.Array:
        """Return the id of each transaction."""
        halves, discards, marks = self.halves, self.discards, self.chains.offset_marks
        own = [(group, name) for group in (halves, discards) for name in ("transaction_id", "lone_message_id")]
        named = [(group, name) for group in (self.finals, marks) for name in ("transaction_id", "lone_prepared_id")]
        return coalesced(chain(
            (self._id_by_other_records(), self._id_by_ends()),
            (group.at(name, group.first) for group, name in [*own, *named]),
        ))  # fmt: skip

    def newest_is(self, copies: Bools) -> Bools:
        """Return which transactions have one of the given copies as their newest half copy."""
        halves = self.halves
        return halves.has & copies[halves.last] if len(halves) else np.zeros(self.chains.count, np.bool_)

    def first_of(self, name: str) -> pa.Array:
        """Return a column that halves, discard copies and finals have, of the transaction's first witness."""
        groups = (self.halves, self.discards, self.finals, self.chains.offset_marks)
        return coalesced(group.at(name, group.first) for group in groups)
