"""What the next start and the check of its broker do next with each transaction, from the futures of its copies.

`verdicts/deadlines/predicting.py` plays the start and the check once for a store; `judged_copies.py` has its events for
each half copy. Advice, flags, reasons and times are made from the values here. `check_stops.py` finds the place of a
stopped check; it reaches copies before it, and later records, including halves that were diverted by a delay or are
resumed, are appended after it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Bools, Int64s, int64s
from rmqtx.verdicts.check.check_rules import is_expired
from rmqtx.verdicts.model.predicted import NEVER, NO_CURSOR, REFUSED, SLAVE, UNASKED_ENDS, WORDS, Event, Why
from rmqtx.verdicts.model.verdict_inputs import StoreView
from rmqtx.verdicts.model.verdict_words import AnswerEffect, NextEvent, State
from rmqtx.verdicts.transactions.judgement import Judgement

_FAR = np.iinfo(np.int64).max
#: The words of events with which the check ends a transaction without asking.
UNASKED_WORDS = tuple(WORDS[event] for event in UNASKED_ENDS)


class Futures:
    """The next event of each transaction of a judgement.

    Shape: `event` and `event_ms`: what happens next to an open transaction, and when; NEVER without a time, and
           Event.ENDED where nothing happens. `is_asked`: a producer will be asked about it. `is_unasked`: it is open,
           and no producer is asked about it before it ends or stays. `is_expired`, `is_spent`: the next round
           discards it without asking, because of its age or its checks. `is_cut`: the next start cuts it off the log.
           `is_stopped`: the check of its store is stopped, and `places` has the place as text. `is_never_asked`: it has
           open copies, and the check reaches none of them. `is_refused`: its broker does not start. `is_too_old`: older
           than fileReservedTime when the next round begins, so the check discards it after a resume too. `discard_ms`:
           when the last of its open copies is discarded. `is_of_slave`: the broker of its store is a slave, so that of
           its master checks it.
    """

    def __init__(self, judged: Judgement) -> None:
        self._judged = judged
        count = judged.chains.count
        self.is_stopped: Bools = np.zeros(count, np.bool_)
        self.places: npt.NDArray[np.object_] = np.full(count, "", np.object_)
        copies, halves = judged.copies, judged.chains.halves
        others, future = copies.others, copies.future
        is_pending = judged.state.are(State.PENDING)
        is_open = copies.is_open
        is_behind = self._behind_stops()
        self.is_of_slave: Bools = self._are_of(SLAVE)
        self.is_refused: Bools = self._are_of(REFUSED) & halves.any_of(is_open & ~others.is_rocksdb)
        unreached = is_open & is_behind
        self.is_never_asked: Bools = (
            halves.any_of(unreached) & ~halves.any_of(is_open & ~is_behind) & (is_pending | judged.is_asked_still)
        )
        self.is_too_old: Bools = self._are_too_old()
        # Where the start cuts the log and begins the check again, it reads copies before the cursor of before.
        is_read = is_open | copies.is_read_after_cut
        # No broker checks these prepared records, but until a start cuts them off they can still be committed.
        is_read |= others.is_prepared & (future.event == Event.CUT) & is_pending[halves.number]
        self._find_events(is_read)
        self.is_asked: Bools = halves.any_of(is_read & (future.asks > 0)) & ~self.is_never_asked
        has_future = halves.any_of(is_read & (future.event >= 0) & (future.event != Event.UNKNOWN))
        ends_unasked = has_future & ~self.is_asked
        # Where the check was not played, the age alone shows what it does with a copy that it reaches.
        is_half = is_pending & ~halves.newest_is(others.is_other)
        ends_unasked |= ~has_future & is_half & self.is_too_old & halves.any_of(is_open & ~is_behind)
        self.is_unasked: Bools = ends_unasked | self.is_never_asked | self.is_refused
        is_end = np.isin(self.event, UNASKED_ENDS)
        is_left = self.is_unasked & ~self.is_never_asked & ~self.is_refused
        self.is_expired: Bools = is_left & ((is_end & (self.event == Event.EXPIRED)) | ~has_future)
        self.is_spent: Bools = is_left & is_end & (self.event != Event.EXPIRED)
        self.is_cut: Bools = self.is_unasked & (self.event == Event.CUT)

    def _behind_stops(self) -> Bools:
        """Half copies that stopped checks do not reach."""
        copies, halves = self._judged.copies, self._judged.chains.halves
        is_behind: Bools = np.zeros(len(halves), np.bool_)
        stopped = [view for view in self._judged.chains.views.values() if view.check_stops]
        if not stopped:
            return is_behind
        queue_ids, queue_offsets = halves.integers("queue_id"), halves.integers("queue_offset")
        is_beside = halves.newest_is(copies.others.is_other)
        for view in stopped:
            here = halves.are_in([view.store])
            mine = self._are_of_store(view) & ~is_beside
            for stop in view.check_stops:
                in_queue = here & (queue_ids == stop.queue_id) & (queue_offsets >= stop.reach_end)
                is_behind |= np.where(copies.is_in_half_topic, in_queue, here & ~copies.others.is_other)
                self.is_stopped |= mine
                self.places[mine] = stop.place
        return is_behind

    def _are_of(self, why: Why) -> Bools:
        """Transactions of stores for which nothing was played, with the reason."""
        found: Bools = np.zeros(self._judged.chains.count, np.bool_)
        for view in self._judged.chains.views.values():
            if view.future is not None and view.future.why == why:
                found |= self._are_of_store(view)
        return found

    def _are_of_store(self, view: StoreView) -> Bools:
        return np.asarray(pc.fill_null(pc.equal(self._judged.copies.store, view.store), False))

    def _are_too_old(self) -> Bools:
        copies, chains = self._judged.copies, self._judged.chains

        def next_ms(view: StoreView) -> int:
            return max(view.present_ms, (view.future.begin_ms or 0) if view.future is not None else 0)

        ages = copies.per_transaction(next_ms) - int64s(chains.born_time_ms)
        allowed = copies.per_transaction(lambda view: view.settings.file_reserved_time_ms)
        is_known = np.asarray(pc.is_valid(chains.born_time_ms))
        found: Bools = is_known & is_expired(ages, allowed) & ~chains.halves.newest_is(copies.others.is_other)
        return found

    def _find_events(self, is_open: Bools) -> None:
        """Find the earliest event of the open copies of each transaction, and the time of its last discard."""
        future, halves, count = self._judged.copies.future, self._judged.chains.halves, self._judged.chains.count
        self.event: Int64s = np.full(count, Event.ENDED, np.int64)
        self.event_ms: Int64s = np.full(count, NEVER, np.int64)
        self.discard_ms: Int64s = np.full(count, NEVER, np.int64)
        rows = np.flatnonzero(is_open)
        numbers = halves.number[rows]
        events = np.where(future.event[rows] < 0, Event.UNKNOWN, future.event[rows])
        times = future.event_ms[rows]
        order = np.lexsort((events, np.where(times == NEVER, _FAR, times), numbers))
        firsts = order[np.unique(numbers[order], return_index=True)[1]] if len(order) else order
        self.event[numbers[firsts]] = events[firsts]
        self.event_ms[numbers[firsts]] = times[firsts]
        np.maximum.at(self.discard_ms, numbers, future.discard_ms[rows])

    @property
    def words(self) -> pa.Array:
        """The column `next_event`."""
        names = [WORDS.get(Event(number), NextEvent.NONE) for number in range(len(Event))]
        return pc.if_else(self._is_played, pa.array(names, pa.string()).take(pa.array(self._shown_events())), None)

    @property
    def _is_played(self) -> pa.Array:
        """Transactions of stores whose future is known: not of those at a past time."""
        stores = [name for name, view in self._judged.chains.views.items() if view.future is not None]
        return pc.is_in(self._judged.copies.store, value_set=pa.array(stores, pa.string()))

    def _shown_events(self) -> Int64s:
        events = np.where(self.is_never_asked & (self.event_ms == NEVER), Event.STOPPED, self.event)
        # A LOST transaction has no open copy, but its own slot or one before it is a filler.
        judged, copies, halves = self._judged, self._judged.copies, self._judged.chains.halves
        skipped = halves.any_of((copies.future.event == Event.SKIPPED) & copies.is_numbered_ahead)
        events = np.where(judged.state.are(State.LOST) & skipped, Event.SKIPPED, events)
        is_unplayed = judged.state.are(State.PENDING) & halves.newest_is(copies.others.is_table_unread)
        events = np.where(is_unplayed & (events == Event.ENDED), Event.UNKNOWN, events)
        # Without a cursor the next start may begin at the first half message, and meet what has its end.
        is_left_open = self._are_of(NO_CURSOR) & ~halves.newest_is(copies.others.is_other)
        events = np.where(is_left_open & (events == Event.ENDED), Event.UNKNOWN, events)
        # Nor is it known what the check reads of the op messages that settle a copy before it.
        unshown = [name for name, view in judged.chains.views.items() if view.future and view.future.may_pass_ops]
        is_settled_by_one = halves.any_of(copies.is_numbered_ahead & copies.is_settled & halves.are_in(unshown))
        events = np.where(is_settled_by_one & (events == Event.ENDED), Event.UNKNOWN, events)
        return np.where(self.is_refused, Event.STOPPED, events)

    def column_of_times(self, times: Int64s) -> pa.Array:
        """Return times as a column, null where nothing happens."""
        return pa.array(times, pa.int64(), mask=times == NEVER)

    @property
    def answer_effects(self) -> pa.Array:
        """The column `answer_effect`: what the answer COMMIT of a producer that is asked does."""
        is_delivered = self._judged.state.are(State.COMMITTED)
        effects = pa.array([AnswerEffect.DELIVER, AnswerEffect.DELIVER_AGAIN], pa.string())
        words = effects.take(pa.array(is_delivered.astype(np.int64)))
        # The broker refuses an answer with another number than that of the record.
        is_answered = self.is_asked & ~self._judged.chains.halves.newest_is(self._judged.copies.others.is_unanswerable)
        return pc.if_else(pc.and_(pa.array(is_answered), self._is_played), words, None)
