"""The first step of a judgement: each half copy and each op mark by itself."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from readers.model.columns import Bools, Int64s, are_among
from readers.model.releases import DELAYED_HALVES_DROPPED
from readers.old_tables.beside_log import NONE
from readers.store.store import HALF_TOPIC, SCHEDULE_TOPIC
from verdicts.model.verdict_inputs import StoreView
from verdicts.transactions.chains import Chains, Group
from verdicts.transactions.design_tables import OtherDesigns

#: An op follows its decision within the batch interval plus this time.
FINAL_SLACK_MS = 60_000


class JudgedCopies:
    """Which half copies the check has not reached yet, which are marked, and which marks belong to other records.

    Shape: one value per half copy or per op mark, as each name states; `chains` and `views` are the evidence.
           `is_ahead_per_copy`: the check will still reach the copy (its queue offset is at or after the check cursor);
           `decides_per_mark`: the op mark settles its half copy: it neither belongs to another record, nor is in an op
           message that the check passes over, before it has reached the copy;
           `is_settled_for_check_per_copy`: an op message that the check reads marks it; `is_open_per_copy`: ahead of
           the check and not settled for it.
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
        self.is_ahead_per_copy = self.cursor_is_known_per_copy & in_half_topic & (queue_offsets >= cursor)
        self.is_ahead_per_copy |= self._is_coming_back() | others.is_ahead
        self.cursor_is_known_per_copy = self.cursor_is_known_per_copy | others.is_other
        self.is_in_half_topic = in_half_topic

        op_cursor, op_cursor_known = self._cursor_per_row(False, marks.table["store"], marks.integers("queue_id"))
        self.is_misdirected_mark, self.is_doubtful_mark = self._misdirected_marks()
        self.is_misdirected_mark |= self._marks_of_diverted_commits()
        is_passed_over = self._marks_passed_over()
        self.decides_per_mark = ~(self.is_misdirected_mark | is_passed_over)
        # The check reads ops from the op cursor on; earlier ops have no effect (cursors set back by hand).
        names_offset = np.asarray(pc.is_valid(marks.table["half_commit_log_offset"]))
        seen = ~op_cursor_known | names_offset | (marks.integers("queue_offset") >= op_cursor)
        seen &= ~is_passed_over
        self.is_marked_per_copy = self._is_copy_with(self.decides_per_mark)
        self.is_settled_for_check_per_copy = self._is_copy_with(seen)
        self.is_open_per_copy = np.where(
            others.is_prepared, others.is_asked, self.is_ahead_per_copy & ~self.is_settled_for_check_per_copy
        )

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
