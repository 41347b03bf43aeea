"""The first result of a judgement: each half copy and each op mark by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Bools, Int64s, are_among, coalesced, int64s
from rmqtx.readers.model.identities import UInt64s, identities, identity_hashes
from rmqtx.readers.model.releases import DELAYED_HALVES_DROPPED
from rmqtx.readers.old_tables.beside_log import NONE
from rmqtx.readers.store.store import HALF_TOPIC, SCHEDULE_TOPIC
from rmqtx.verdicts.check.check_rules import age_may_equal
from rmqtx.verdicts.model.predicted import NEVER, READ_EVENTS, Event
from rmqtx.verdicts.model.verdict_inputs import FILLER_SLOT, UNKNOWN_SLOT, StoreView
from rmqtx.verdicts.transactions.chains import Chains, Group
from rmqtx.verdicts.transactions.design_tables import OtherDesigns
from rmqtx.verdicts.transactions.shared_numbers import (
    BY_MARKS,
    FINAL_SLACK_MS,
    SharedMarks,
    misplaced_copies,
    shared_marks,
)

ViewNumber = Callable[[StoreView], int]


@dataclass(frozen=True, slots=True)
class CopyEvents:
    """What the next start and the check do with each half copy, from the futures of the stores.

    Shape: one value per half copy. `event`: the number of an Event, -1 where it was not played; `event_ms`,
           `discard_ms`: when that is, and when the copy is discarded; `asks`: how many times a producer is asked until
           then. A copy in a half queue that was played whole, which is not there, has no slot.
    """

    event: Int64s
    event_ms: Int64s
    discard_ms: Int64s
    asks: Int64s

    @classmethod
    def of(cls, chains: Chains, is_in_half_topic: Bools) -> CopyEvents:
        """Return the events of the half copies of some chains."""
        halves, count = chains.halves, len(chains.halves)
        event, event_ms, discard_ms = np.full(count, -1), np.full(count, NEVER), np.full(count, NEVER)
        asks = np.zeros(count, np.int64)
        offsets, queue_ids, queue_offsets = (
            halves.integers(name) for name in ("commit_log_offset", "queue_id", "queue_offset")
        )
        for name, view in chains.views.items():
            future = view.future
            if future is None:
                continue
            rows = np.flatnonzero(halves.are_in([name]))
            events, places = future.events_at(offsets[rows])
            known, found = rows[places >= 0], places[places >= 0]
            event[rows] = events
            event_ms[known] = future.event_times_ms[found]
            discard_ms[known] = future.times_ms[found]
            asks[known] = future.checks_to_come[found]
            if future.is_whole and not future.is_running:
                unread = rows[(places < 0) & is_in_half_topic[rows]]
                event[unread] = Event.UNREAD
                for queue_id, fillers in future.fillers.items():
                    is_filler = (queue_ids[unread] == queue_id) & np.isin(queue_offsets[unread], fillers)
                    event[unread[is_filler]] = Event.SKIPPED
        cut = _are_cut(halves, chains.views)
        event[cut], asks[cut] = Event.CUT, 0
        event_ms[cut] = discard_ms[cut] = NEVER
        return cls(event, event_ms, discard_ms, asks)


@dataclass(frozen=True, slots=True)
class JudgedMarks:
    """Whose decision each op mark is.

    Shape: one value per op mark. `decides`: it settles its half copy: it neither belongs to another record, nor is in
           an op message that the check passes over, before it has reached the copy; `is_seen`: the check reads it;
           `is_misdirected`: it belongs to another record; `is_doubtful`: one of these that may be the half's own too;
           `shared`: those of half messages that share a number.
    """

    decides: Bools
    is_seen: Bools
    is_misdirected: Bools
    is_doubtful: Bools
    shared: SharedMarks

    @classmethod
    def of(cls, chains: Chains, is_ahead: Bools) -> JudgedMarks:
        """Judge the op marks of some chains. `is_ahead`: the half copies that the check will still reach."""
        marks, views = chains.marks, chains.views
        is_misdirected, is_doubtful = _misdirected_marks(chains)
        shared = shared_marks(chains)
        is_misdirected |= _marks_of_diverted_commits(chains) | shared.is_foreign
        is_passed_over = _marks_passed_over(chains, is_ahead)
        # The check reads ops from the op cursor on; earlier ops have no effect (cursors set back by hand).
        cursor, has_cursor = _cursors(marks, views, lambda view: view.op_cursors)
        names_offset = np.asarray(pc.is_valid(marks.table["half_commit_log_offset"]))
        is_seen = ~has_cursor | names_offset | (marks.integers("queue_offset") >= cursor)
        is_seen &= ~(is_passed_over | _are_cut(marks, views))
        return cls(~(is_misdirected | is_passed_over), is_seen, is_misdirected, is_doubtful, shared)


@dataclass(frozen=True)
class JudgedCopies:
    """Which half copies the check has not reached yet, which are marked, and which marks belong to other records.

    Shape: `chains` is the evidence; the rest has one value per half copy, where nothing else is named.
           `is_numbered_ahead`: its queue offset is at or after the check cursor; `is_ahead`: the check will still reach
           it, as far as is known; `is_read_after_cut`: the next start cuts the log or the half queue, and begins the
           check again before it;
           `is_marked`: a mark decides it; `is_settled`: an op message that the check reads marks it; `is_open`: ahead
           of the check and not settled for it.
           `slot`: the slot of the half queue that leads to it, which for nearly all copies is their queue offset
           (`HalfNumbers`); `is_number_shared`: another half message has the same queue offset; `is_slotless`: the check
           has not passed its number, and never reads it, because no slot leads to it; `is_number_taken`: another half
           message has, or will have, the slot with its queue offset, and the check has not passed that slot.
           `is_hidden`: in its slot, but an op message that is not its own names the slot, so that the check skips it,
           or has skipped it; it is not ahead then. `hiding_offset`: that op message.
    """

    chains: Chains
    others: OtherDesigns
    future: CopyEvents
    marks: JudgedMarks
    is_in_half_topic: Bools
    cursor: Int64s
    cursor_is_known: Bools
    slot: Int64s
    is_number_shared: Bools
    is_number_taken: Bools
    is_slotless: Bools
    is_numbered_ahead: Bools
    is_read_after_cut: Bools
    is_ahead: Bools
    is_marked: Bools
    is_settled: Bools
    is_hidden: Bools
    hiding_offset: Int64s
    is_open: Bools

    @classmethod
    def of(cls, chains: Chains) -> JudgedCopies:
        """Judge the half copies and op marks of some chains."""
        halves, views = chains.halves, chains.views
        numbers = halves.integers("queue_offset")
        in_half_topic = np.asarray(pc.equal(halves.table["topic"], HALF_TOPIC))
        others, future = OtherDesigns(chains), CopyEvents.of(chains, in_half_topic)
        cursor, has_cursor = _cursors(halves, views, lambda view: view.half_cursors)
        slot, settling, hiding, is_shared = misplaced_copies(chains, numbers)

        has_slot = (slot >= 0) | (slot == UNKNOWN_SLOT)
        reached = np.where(slot == UNKNOWN_SLOT, numbers, slot) >= cursor
        is_known, is_passed = has_cursor & in_half_topic, has_cursor & (numbers < cursor)
        is_unread = future.event == Event.SKIPPED
        # A start can begin at an older cursor; where it cuts the log first, the state is that of before.
        is_read = in_half_topic & np.isin(future.event, READ_EVENTS)
        is_after_cut = is_read & halves.are_in(_cut_stores(views))
        is_ahead = is_known & has_slot & reached & ~is_unread | is_read & ~is_after_cut
        is_ahead |= _are_coming_back(chains) | others.is_ahead

        marks = JudgedMarks.of(chains, is_ahead)
        is_marked = chains.marks_per_copy(marks.decides) > 0
        is_settled = np.where(settling == BY_MARKS, chains.marks_per_copy(marks.is_seen) > 0, settling >= 0)
        # An op message in the log settles nothing if the check does not read it by a slot of the op queue: it reads the
        # copy and treats it as open. The queues of a running broker are read one after the other, so there only where
        # slots show it.
        futures = {name: view.future for name, view in views.items() if view.future is not None}
        unsettled = [name for name, future in futures.items() if not future.is_running or future.passes_ops]
        is_settled &= ~(is_read & halves.are_in(unsettled))
        hiding_offset = np.where(settling == BY_MARKS, _hiding_offsets(chains, marks, marks.is_seen), settling)
        is_hidden = is_ahead & is_settled & ~is_marked & (hiding_offset >= 0)
        is_ahead &= ~is_hidden
        passed_by = np.where(hiding == BY_MARKS, _hiding_offsets(chains, marks, marks.shared.is_foreign), hiding)
        was_hidden = is_known & has_slot & ~reached & ~is_ahead & ~is_hidden & ~is_marked & (passed_by >= 0)
        return cls(
            chains, others, future, marks, in_half_topic, cursor, has_cursor | others.is_other, slot,
            is_number_shared=is_shared & in_half_topic,
            is_number_taken=in_half_topic & (slot != numbers) & (slot != FILLER_SLOT) & ~is_passed,
            is_slotless=in_half_topic & ~has_slot & ~is_passed,
            is_numbered_ahead=is_known & (numbers >= cursor),
            is_read_after_cut=is_after_cut, is_ahead=is_ahead, is_marked=is_marked, is_settled=is_settled,
            is_hidden=is_hidden | was_hidden, hiding_offset=np.where(was_hidden, passed_by, hiding_offset),
            is_open=np.where(others.is_prepared, others.is_asked, is_ahead & ~is_settled),
        )

    @cached_property
    def store(self) -> pa.Array:
        """The store of each transaction: that of its first half copy, else of another record.

        If the check of this store reaches no copy, but that of another store does, the first of these: a slave that
        acted as master, or a copy of the log that went on, has a check of its own.
        """
        halves, is_open = self.chains.halves, self.is_open
        firsts = halves.first
        if len(self.chains.stores) > 1 and is_open.any():
            stores = int64s(halves.table["store"].combine_chunks().dictionary_encode().indices)
            is_of_first = stores == stores[firsts[halves.number]]
            others = halves.lowest(np.arange(len(halves)), len(halves), is_open)
            is_elsewhere = halves.any_of(is_open) & ~halves.any_of(is_open & is_of_first)
            firsts = np.where(is_elsewhere, others, firsts)
        return coalesced(
            group.at("store", firsts if group is halves else group.first) for group in self.chains.bearers
        )

    @cached_property
    def _store_numbers(self) -> Int64s:
        """The number of each transaction's store among `chains.stores`."""
        names = self.chains.stores
        if len(names) <= 1:
            return np.zeros(self.chains.count, np.int64)
        return int64s(pc.index_in(self.store, value_set=pa.array(names, pa.string())))

    @cached_property
    def loses_final(self) -> Bools:
        """Which transactions have a COMMIT record that the next start cuts off the log."""
        finals = self.chains.finals
        return finals.any_of(_are_cut(finals, self.chains.views))

    def per_transaction(self, number_of: ViewNumber) -> Int64s:
        """Return a number of each transaction's store."""
        numbers = [number_of(self.chains.views[name]) for name in self.chains.stores]
        return np.array(numbers or [0], np.int64)[self._store_numbers]

    @cached_property
    def may_equal_immunity(self) -> Bools:
        """Which half copies are immune also when their age equals their immunity time."""
        may_equal = self.per_transaction(lambda view: age_may_equal(view.settings, view.check_stops))
        found: Bools = (may_equal[self.chains.halves.number] > 0) & ~self.others.is_rocksdb
        return found

    def are_identified(self, hashes_of: Callable[[StoreView], UInt64s]) -> Bools:
        """Return which half copies of the half topic have one of the identities of their store, given as hashes."""
        halves, views = self.chains.halves, self.chains.views
        found = np.zeros(len(halves), np.bool_)
        if not any(len(hashes_of(view)) for view in views.values()):
            return found
        named = identities(halves.table)
        own = identity_hashes(named.combine_chunks() if isinstance(named, pa.ChunkedArray) else named)
        for name, view in views.items():
            found |= halves.are_in([name]) & self.is_in_half_topic & np.isin(own, hashes_of(view))
        return found


def _cut_stores(views: Mapping[str, StoreView]) -> list[str]:
    """Return the stores whose log or half queue the next start cuts."""
    futures = {name: view.future for name, view in views.items() if view.future is not None}
    return [name for name, future in futures.items() if future.log_cut is not None or future.cuts]


def _are_cut(group: Group, views: Mapping[str, StoreView]) -> Bools:
    """Return the records that the next start of their broker cuts off the log."""
    cut: Bools = np.zeros(len(group), np.bool_)
    for name, view in views.items():
        if view.future is not None and view.future.log_cut is not None:
            cut |= group.are_in([name]) & (group.integers("commit_log_offset") >= view.future.log_cut)
    return cut


def _hiding_offsets(chains: Chains, judged: JudgedMarks, are_chosen: Bools) -> Int64s:
    """Return for each half copy the first op message of another half message that names its slot, of some; NONE
    without one.
    """
    hiding = np.full(len(chains.halves) + 1, NONE, np.int64)
    rows = np.flatnonzero(are_chosen & judged.shared.is_foreign & ~judged.shared.is_ambiguous)[::-1]
    hiding[chains.half_of_mark[rows]] = chains.marks.integers("commit_log_offset")[rows]  # the first stays
    return hiding[:-1]


def _cursors(
    group: Group, views: Mapping[str, StoreView], cursors_of: Callable[[StoreView], Mapping[int, int] | None]
) -> tuple[Int64s, Bools]:
    """Return the check cursor in the queue of each record, and whether it is known."""
    queues = group.integers("queue_id")
    cursors, known = np.zeros(len(group), np.int64), np.zeros(len(group), np.bool_)
    for name, view in views.items():
        by_queue = cursors_of(view)
        if by_queue is None:
            continue
        here = group.are_in([name]) if len(views) > 1 else np.ones(len(group), np.bool_)
        known |= here
        for queue_id, cursor in by_queue.items():
            cursors[here & (queues == queue_id)] = cursor
    return cursors, known


def _marks_passed_over(chains: Chains, is_ahead: Bools) -> Bools:
    """Return the op marks of op messages without their tag, on half copies that the check has not reached yet.

    A copy that it has passed was settled: the op message had its tag then.
    """
    marks, of_mark = chains.marks, chains.half_of_mark
    found = np.zeros(len(marks), np.bool_)
    for name, view in chains.views.items():
        if view.idle_ops:
            is_idle = np.isin(marks.integers("commit_log_offset"), np.array(view.idle_ops, np.int64))
            found |= is_idle & marks.are_in([name])
    is_ahead_of_check: Bools = np.append(is_ahead, False)[of_mark]
    return found & (of_mark >= 0) & is_ahead_of_check


def _are_coming_back(chains: Chains) -> Bools:
    """Return the diverted half messages that wait for their delay and will return to the half topic.

    From 4.6.1 on the schedule service drops them ("[BUG]", #1540); the timer wheel (5.0.0+) returns them.
    """
    halves, diverted = chains.halves, chains.diverted_halves
    newest = halves.highest(np.where(diverted, -1, halves.rank), -1)
    coming: Bools = diverted & (halves.rank > newest[halves.number])
    if coming.any():
        lows = {name: view.settings.version_low for name, view in chains.views.items()}
        drops = [name for name, low in lows.items() if low is not None and DELAYED_HALVES_DROPPED.holds(low)]
        coming &= ~(np.asarray(pc.equal(halves.table["topic"], SCHEDULE_TOPIC)) & halves.are_in(drops))
    return coming


def _marks_of_diverted_commits(chains: Chains) -> Bools:
    """Return the op marks of commits of diverted half messages: their COMMIT record was written to the half topic."""
    named = chains.halves.integers("named_commit_log_offset", 0)
    return _marks_of_named_copies(chains, chains.halves, named, named > 0)


def _marks_of_named_copies(chains: Chains, naming: Group, named: Int64s, is_naming: Bools) -> Bools:
    """Return the op marks on half copies that a record of the same store names by its offset."""
    marked = np.zeros(len(chains.marks), np.bool_)
    if not is_naming.any():
        return marked
    offsets = np.append(chains.halves.integers("commit_log_offset"), NONE)[chains.half_of_mark]
    for store in chains.stores:
        here = naming.are_in([store]) & is_naming
        if here.any():
            marked |= are_among(offsets, named[here]) & chains.marks.are_in([store])
    return marked


def _misdirected_marks(chains: Chains) -> tuple[Bools, Bools]:
    """Return op marks that a misdirected decision explains, and those among them that could also be the half's own.

    A half copy that its own final names has its own op, which explains the mark first.
    """
    marks = chains.marks
    misdirected, doubtful = np.zeros(len(marks), np.bool_), np.zeros(len(marks), np.bool_)
    decisions = [(view, decision) for view in chains.views.values() for decision in view.misdirected_decisions]
    if not decisions:
        return misdirected, doubtful
    named = chains.finals.integers("prepared_transaction_offset")
    is_own = _marks_of_named_copies(chains, chains.finals, named, chains.named_finals)
    for view, decision in decisions:
        rows = np.flatnonzero(
            (marks.integers("half_queue_offset") == decision.queue_offset)
            & (marks.integers("queue_id") == decision.queue_id)
            & (marks.integers("commit_log_offset") > decision.final_offset)
            & marks.are_in([decision.store]) & ~(misdirected | is_own)
        )
        if len(rows):
            row = rows[np.argmin(marks.integers("commit_log_offset")[rows])]
            misdirected[row] = True
            waited_ms = int(marks.integers("store_time_ms")[row]) - decision.final_time_ms
            doubtful[row] = waited_ms > view.settings.transaction_op_batch_interval_ms + FINAL_SLACK_MS
    return misdirected, doubtful
