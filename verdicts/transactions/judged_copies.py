"""The first step of a judgement: each half copy and each op mark by itself."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Bools, Int64s, are_among
from rmqtx.readers.model.releases import DELAYED_HALVES_DROPPED
from rmqtx.readers.old_tables.beside_log import NONE
from rmqtx.readers.store.store import HALF_TOPIC, SCHEDULE_TOPIC
from rmqtx.verdicts.model.half_numbers import FILLER_SLOT, UNKNOWN_SLOT
from rmqtx.verdicts.model.predicted import NEVER, READ_EVENTS, Event
from rmqtx.verdicts.model.verdict_inputs import StoreView
from rmqtx.verdicts.transactions.chains import Chains, Group
from rmqtx.verdicts.transactions.design_tables import OtherDesigns
from rmqtx.verdicts.transactions.shared_numbers import BY_MARKS, FINAL_SLACK_MS, misplaced_copies, shared_marks


class JudgedCopies:
    """Which half copies the check has not reached yet, which are marked, and which marks belong to other records.

    Shape: one value per half copy or per op mark, as each name states; `chains` and `views` are the evidence.
           `is_numbered_ahead_per_copy`: its queue offset is at or after the check cursor; `is_ahead_per_copy`: the
           check will still reach it, as far as is known; `is_read_after_cut_per_copy`: the next start cuts the log or
           the half queue, and begins the check again before it;
           `decides_per_mark`: the op mark settles its half copy: it neither belongs to another record, nor is in an op
           message that the check passes over, before it has reached the copy;
           `is_settled_for_check_per_copy`: an op message that the check reads marks it; `is_open_per_copy`: ahead of
           the check and not settled for it. `event_per_copy`: what the next start and the check do with it, as the
           number of an Event, -1 where that was not played; `event_ms_per_copy`, `discard_ms_per_copy`: when, and when
           it is discarded; `asks_per_copy`: how many times a producer is asked until then.
           `slot_per_copy`: the slot of the half queue that leads to it, which for nearly all copies is their queue
           offset (`HalfNumbers`); `is_number_shared_per_copy`: another half message has the same queue offset;
           `is_slotless_per_copy`: the check has not passed its number, and never reads it, because no slot leads to it;
           `is_number_taken_per_copy`: another half message has, or will have, the slot with its queue offset, and the
           check has not passed that slot. `is_hidden_per_copy`: in its slot, but an op message that is not its own
           names the slot, so that the check skips it; it is not ahead then. `hiding_offset_per_copy`: that op message.
    """

    def __init__(self, chains: Chains, views: Mapping[str, StoreView]) -> None:
        self.chains = chains
        self.views = views
        self.halves, self.marks, self.finals, self.discards = (
            chains.halves, chains.marks, chains.finals, chains.discards
        )
        self._judge_copies()

    def _judge_copies(self) -> None:
        halves, marks = self.halves, self.marks
        queue_offsets = halves.integers("queue_offset")
        cursor, self.cursor_is_known_per_copy = self._cursor_per_row(
            True, halves.table["store"], halves.integers("queue_id")
        )
        in_half_topic = np.asarray(pc.equal(halves.table["topic"], HALF_TOPIC))
        self.others = others = OtherDesigns(self.chains, self.views)
        self.cursor_per_copy = cursor
        slots, settling, is_shared = misplaced_copies(self.chains, self.views, queue_offsets)
        self.slot_per_copy, self.is_number_shared_per_copy = slots, is_shared & in_half_topic
        has_slot = (slots >= 0) | (slots == UNKNOWN_SLOT)
        reached = np.where(slots == UNKNOWN_SLOT, queue_offsets, slots) >= cursor
        is_known = self.cursor_is_known_per_copy & in_half_topic
        self.is_numbered_ahead_per_copy = is_known & (queue_offsets >= cursor)
        self._find_futures()
        # A start can begin at an older cursor; where it cuts the log first, the state is that of before.
        is_read = in_half_topic & np.isin(self.event_per_copy, READ_EVENTS)
        self.is_read_after_cut_per_copy = is_read & self._is_of_cut_store()
        is_read &= ~self.is_read_after_cut_per_copy
        self.is_ahead_per_copy = (is_known & has_slot & reached & (self.event_per_copy != Event.SKIPPED)) | is_read
        is_passed = self.cursor_is_known_per_copy & (queue_offsets < cursor)
        self.is_slotless_per_copy = in_half_topic & ~has_slot & ~is_passed
        is_other = (slots != queue_offsets) & (slots != FILLER_SLOT)
        self.is_number_taken_per_copy = in_half_topic & is_other & ~is_passed
        self.is_ahead_per_copy |= self._is_coming_back() | others.is_ahead
        self.cursor_is_known_per_copy = self.cursor_is_known_per_copy | others.is_other
        self.is_in_half_topic = in_half_topic

        op_cursor, op_cursor_known = self._cursor_per_row(False, marks.table["store"], marks.integers("queue_id"))
        self.is_misdirected_mark, self.is_doubtful_mark = self._misdirected_marks()
        self.is_misdirected_mark |= self._marks_of_diverted_commits()
        shared = shared_marks(self.chains, self.views)
        self.is_misdirected_mark |= shared.is_foreign
        self.is_foreign_mark, self.is_ambiguous_mark = shared.is_foreign, shared.is_ambiguous
        is_passed_over = self._marks_passed_over()
        self.decides_per_mark = ~(self.is_misdirected_mark | is_passed_over)
        # The check reads ops from the op cursor on; earlier ops have no effect (cursors set back by hand).
        names_offset = np.asarray(pc.is_valid(marks.table["half_commit_log_offset"]))
        seen = ~op_cursor_known | names_offset | (marks.integers("queue_offset") >= op_cursor)
        seen &= ~(is_passed_over | self._are_cut(marks))
        self.is_marked_per_copy = self._is_copy_with(self.decides_per_mark)
        self.is_settled_for_check_per_copy = np.where(settling == BY_MARKS, self._is_copy_with(seen), settling >= 0)
        # An op message in the log settles nothing if no slot of the op queue leads to it.
        self.is_settled_for_check_per_copy &= ~(in_half_topic & self._is_played_as_open())
        self._find_hidden_copies(seen & shared.is_foreign & ~shared.is_ambiguous, settling)
        self.is_open_per_copy = np.where(
            others.is_prepared, others.is_asked, self.is_ahead_per_copy & ~self.is_settled_for_check_per_copy
        )

    def _find_futures(self) -> None:
        """Find the event of each half copy in the futures of the stores.

        A copy in a half queue that was played whole, which is not there, has no slot.
        """
        halves = self.halves
        count = len(halves)
        self.event_per_copy = np.full(count, -1, np.int64)
        self.event_ms_per_copy, self.discard_ms_per_copy = (np.full(count, NEVER, np.int64) for _ in range(2))
        self.asks_per_copy = np.zeros(count, np.int64)
        offsets, queue_ids, queue_offsets = (
            halves.integers(name) for name in ("commit_log_offset", "queue_id", "queue_offset")
        )
        in_half_topic = np.asarray(pc.equal(halves.table["topic"], HALF_TOPIC))
        for name, view in self.views.items():
            future = view.future
            if future is None:
                continue
            rows = np.flatnonzero(np.asarray(pc.equal(halves.table["store"], name)))
            events, places = future.events_at(offsets[rows])
            known, found = rows[places >= 0], places[places >= 0]
            self.event_per_copy[rows] = events
            self.event_ms_per_copy[known] = future.event_times_ms[found]
            self.discard_ms_per_copy[known] = future.times_ms[found]
            self.asks_per_copy[known] = future.checks_to_come[found]
            if future.is_whole and not future.is_running:
                unread = rows[(places < 0) & in_half_topic[rows]]
                self.event_per_copy[unread] = Event.UNREAD
                for queue_id, fillers in future.fillers.items():
                    is_filler = (queue_ids[unread] == queue_id) & np.isin(queue_offsets[unread], fillers)
                    self.event_per_copy[unread[is_filler]] = Event.SKIPPED
        cut = self._are_cut(halves)
        self.event_per_copy[cut] = Event.CUT
        self.event_ms_per_copy[cut] = self.discard_ms_per_copy[cut] = NEVER
        self.asks_per_copy[cut] = 0

    def _is_played_as_open(self) -> Bools:
        """Half copies that the check of a stopped broker reads and treats as open."""
        stores = [name for name, view in self.views.items() if view.future is not None and not view.future.is_running]
        here = np.asarray(pc.is_in(self.halves.table["store"], value_set=pa.array(stores, pa.string())))
        found: Bools = here & np.isin(self.event_per_copy, READ_EVENTS)
        return found

    def _is_of_cut_store(self) -> Bools:
        """Half copies of stores whose log or half queue the next start cuts."""
        cut = [
            name for name, view in self.views.items()
            if view.future is not None and (view.future.log_cut is not None or view.future.cuts)
        ]
        found: Bools = np.asarray(pc.is_in(self.halves.table["store"], value_set=pa.array(cut, pa.string())))
        return found

    def _are_cut(self, group: Group) -> Bools:
        """Records that the next start of their broker cuts off the log."""
        cut: Bools = np.zeros(len(group), np.bool_)
        for name, view in self.views.items():
            if view.future is not None and view.future.log_cut is not None:
                here = np.asarray(pc.equal(group.table["store"], name))
                cut |= here & (group.integers("commit_log_offset") >= view.future.log_cut)
        return cut

    def _find_hidden_copies(self, foreign: Bools, settling: Int64s) -> None:
        """Find the copies that the check skips for an op message of another half message; they are not ahead of it."""
        hiding = np.full(len(self.halves) + 1, NONE, np.int64)
        rows = np.flatnonzero(foreign)[::-1]
        hiding[self.chains.half_of_mark[rows]] = self.marks.integers("commit_log_offset")[rows]  # the first stays
        self.hiding_offset_per_copy = np.where(settling == BY_MARKS, hiding[:-1], settling)
        hidden = self.is_ahead_per_copy & self.is_settled_for_check_per_copy & ~self.is_marked_per_copy
        self.is_hidden_per_copy = hidden & (self.hiding_offset_per_copy >= 0)
        self.is_ahead_per_copy &= ~self.is_hidden_per_copy

    def _cursor_per_row(self, is_half: bool, stores: pa.ChunkedArray, queues: Int64s) -> tuple[Int64s, Bools]:
        """Return each row's check cursor, and whether it is known."""
        cursors, known = np.zeros(len(queues), np.int64), np.zeros(len(queues), np.bool_)
        for name, view in self.views.items():
            by_queue = view.half_cursors if is_half else view.op_cursors
            if by_queue is None:
                continue
            here = np.asarray(pc.equal(stores, name)) if len(self.views) > 1 else np.ones(len(queues), np.bool_)
            known |= here
            for queue_id, cursor in by_queue.items():
                cursors[here & (queues == queue_id)] = cursor
        return cursors, known

    def _is_copy_with(self, chosen: Bools) -> Bools:
        """Return which half copies have any of the chosen marks."""
        return np.bincount(self.copies_of(chosen), minlength=len(self.halves)) > 0

    def copies_of(self, chosen: Bools) -> Int64s:
        """Return the half copy of each chosen mark; none for marks whose half copy is gone."""
        return self.chains.half_of_mark[chosen & (self.chains.half_of_mark >= 0)]

    def _marks_passed_over(self) -> Bools:
        """Op marks of op messages without their tag, on half copies that the check has not reached yet.

        A copy that it has passed was settled: the op message had its tag then.
        """
        marks, of_mark = self.marks, self.chains.half_of_mark
        found = np.zeros(len(marks), np.bool_)
        for name, view in self.views.items():
            if view.idle_ops:
                found |= np.isin(marks.integers("commit_log_offset"), np.array(view.idle_ops, np.int64)) & np.asarray(
                    pc.equal(marks.table["store"], name)
                )
        is_ahead: Bools = np.append(self.is_ahead_per_copy, False)[of_mark]
        return found & (of_mark >= 0) & is_ahead

    def _is_coming_back(self) -> Bools:
        """Diverted half messages that wait for their delay and will return to the half topic.

        From 4.6.1 on the schedule service drops them ("[BUG]", #1540); the timer wheel (5.0.0+) returns them.
        """
        halves = self.halves
        diverted = self.chains.diverted_halves
        newest = halves.highest(np.where(diverted, -1, halves.rank), -1)
        coming = diverted & (halves.rank > newest[halves.number])
        if coming.any():
            drops = [
                name for name, view in self.views.items()
                if view.settings.version_low is not None and DELAYED_HALVES_DROPPED.holds(view.settings.version_low)
            ]
            scheduled = np.asarray(pc.equal(halves.table["topic"], SCHEDULE_TOPIC))
            dropped = scheduled & np.asarray(pc.is_in(halves.table["store"], value_set=pa.array(drops, pa.string())))
            coming &= ~dropped
        return coming

    def _marks_of_diverted_commits(self) -> Bools:
        """Op marks of commits of diverted half messages: their COMMIT record was written to the half topic."""
        named = self.halves.integers("named_commit_log_offset", 0)
        return self._marks_a_named_copy(self.halves, named, named > 0)

    def _marks_a_named_copy(self, naming: Group, named: Int64s, is_naming: Bools) -> Bools:
        """Op marks on half copies that a record of the same store names by its offset."""
        marked = np.zeros(len(self.marks), np.bool_)
        if not is_naming.any():
            return marked
        of_mark = self.chains.half_of_mark
        offsets = np.append(self.halves.integers("commit_log_offset"), NONE)[of_mark]
        for store in self.chains.stores:
            here = np.asarray(pc.equal(naming.table["store"], store)) & is_naming
            if here.any():
                marked |= are_among(offsets, named[here]) & np.asarray(pc.equal(self.marks.table["store"], store))
        return marked

    def _misdirected_marks(self) -> tuple[Bools, Bools]:
        """Return op marks that a misdirected decision explains, and those among them that could also be the half's own.

        A half copy that its own final names has its own op, which explains the mark first.
        """
        marks = self.marks
        named = self.finals.integers("prepared_transaction_offset")
        is_own = self._marks_a_named_copy(self.finals, named, self.chains.named_finals)
        misdirected, doubtful = np.zeros(len(marks), np.bool_), np.zeros(len(marks), np.bool_)
        for view in self.views.values():
            for decision in view.misdirected_decisions:
                rows = np.flatnonzero(
                    (marks.integers("half_queue_offset") == decision.queue_offset)
                    & (marks.integers("queue_id") == decision.queue_id)
                    & (marks.integers("commit_log_offset") > decision.final_offset)
                    & np.asarray(pc.equal(marks.table["store"], decision.store))
                    & ~(misdirected | is_own)
                )
                if len(rows):
                    row = rows[np.argmin(marks.integers("commit_log_offset")[rows])]
                    misdirected[row] = True
                    waited_ms = int(marks.integers("store_time_ms")[row]) - decision.final_time_ms
                    doubtful[row] = waited_ms > view.settings.transaction_op_batch_interval_ms + FINAL_SLACK_MS
        return misdirected, doubtful
