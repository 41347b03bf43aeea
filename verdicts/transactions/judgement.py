"""The third step of a judgement: which states missing evidence could change, and which copies are still open.

UNDECIDABLE replaces a state if missing bytes could contain a record that changes it; the first reason found is kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Bools
from rmqtx.readers.model.java_hashes import key_hashes
from rmqtx.readers.old_tables.beside_log import NONE
from rmqtx.verdicts.model.half_numbers import UNKNOWN_SLOT
from rmqtx.verdicts.model.state import State
from rmqtx.verdicts.model.verdict_inputs import StoreView
from rmqtx.verdicts.transactions.chains import Chains
from rmqtx.verdicts.transactions.found_states import FoundStates
from rmqtx.verdicts.transactions.missing_rule import MissingRule
from rmqtx.verdicts.transactions.reason_codes import NO_CODE, NUMBERS
from rmqtx.verdicts.transactions.shared_numbers import number_words
from rmqtx.verdicts.transactions.state_numbers import StateNumbers


class Judgement(FoundStates):
    """The state of each transaction, or why it is undecidable.

    Shape: every attribute has one value per transaction, or one per half copy where its name states this.
    """

    def __init__(self, chains: Chains, views: Mapping[str, StoreView]) -> None:
        super().__init__(chains, views)
        self._doubt()
        self._find_open_copies()

    def _doubt(self) -> None:
        halves, others, states = self.halves, self.others, self.states
        is_committed, is_marked = self.is_committed, self.is_marked
        count = self.chains.count
        cursor_known = np.ones(count, np.bool_)
        cursor_known[halves.number[~self.cursor_is_known_per_copy]] = False
        self.undecidable_codes = np.full(count, NO_CODE, np.int8)
        #: The missing evidence of an UNDECIDABLE transaction, for codes with `{what}` in their sentence.
        self.undecidable_what: npt.NDArray[np.object_] = np.full(count, "", np.object_)

        self._undecide_where_logs_share_ids()
        newest_after_discard = halves.has & (self.newest_half_rank > self.last_discard_rank)
        only_cursor = ~is_committed & ~is_marked & newest_after_discard
        past = np.zeros(count, np.bool_)
        for name, view in self.views.items():
            if view.half_cursors is None:
                why = view.cursor_doubt or "no config/consumerOffset.json"
                self._undecide(only_cursor & ~cursor_known, "cursor_unknown", why)
            if view.at_ms is not None:
                past |= self.has_copy_in(name)
        self._undecide(
            only_cursor & past & ~self.is_waiting & halves.any_of(others.is_dropped),
            "rocksdb_in_the_past",
        )
        self._undecide(
            only_cursor & ~self.is_waiting & halves.any_of(others.is_slaves_drop),
            "rocksdb_of_slave",
        )
        # Cursors only move forward in a running broker: what the check has not reached now, it had not reached then.
        self._undecide(only_cursor & past & ~self.is_waiting, "cursor_in_the_past")
        self._undecide_where_log_begins_later(states)
        doubtful = self.marks.any_of(self.is_doubtful_mark) & ~is_committed & ~is_marked
        self._undecide(doubtful, "op_doubtful")
        self._undecide_where_numbers_are_shared(only_cursor)
        self._undecide_where_bytes_are_missing()
        self._undecide_where_ends_name_nothing(states)
        self._undecide_where_the_index_knows_other_ids(states)
        self._undecide(halves.any_of(others.is_ended_beside) & states.are(State.PENDING), "ended_beside_log")
        # Tested last: with this code only the RocksDB table is missing, so it is certain that no decision is recorded.
        self._undecide(self.is_unread & ~is_committed & ~self.is_reopened & ~self.is_waiting, "rocksdb_table_unread")
        self.state = states.replaced(self.undecidable_codes != NO_CODE, State.UNDECIDABLE)

    def _undecide(self, rows: Bools, code: str, what: str = "") -> None:
        rows = rows & (self.undecidable_codes == NO_CODE)
        self.undecidable_codes[rows] = NUMBERS[code]
        self.undecidable_what[rows] = what

    def _undecide_where_logs_share_ids(self) -> None:
        """Mark as UNDECIDABLE the ids of the designs before 4.3 that records of several logs have.

        The id is the address of a broker and a place in its log, and brokers of two stores can have had one address.
        Logs without a common part may be of one broker: that is another reason.
        """
        stores: dict[str, list[str]] = {}
        for name in sorted(self.chains.stores):
            log = self.views[name].log
            if log is not None:
                stores.setdefault(log, []).append(name)
        if len(stores) < 2:
            return
        has = {name: self.has_record_in(name) for names in stores.values() for name in names}
        of_logs = [np.logical_or.reduce([has[name] for name in names]) for names in stores.values()]
        is_old = self.halves.any_of(self.others.is_prepared) | self.has_rollback_record
        rows = np.flatnonzero(is_old & (np.sum(of_logs, axis=0) > 1))
        for row in rows.tolist():
            names = sorted(name for name in has if has[name][row])
            code = "id_of_several_logs" if self._are_several_logs(names) else "id_of_uncompared_logs"
            self.undecidable_codes[row], self.undecidable_what[row] = NUMBERS[code], " and ".join(names)

    def _are_several_logs(self, names: Sequence[str]) -> bool:
        """Whether two of some stores are known to have different logs."""
        pairs = itertools.combinations([self.views[name] for name in names], 2)
        return any(
            one.log != other.log and other.log not in one.uncompared_logs and one.log not in other.uncompared_logs
            for one, other in pairs
        )

    def _undecide_where_log_begins_later(self, states: StateNumbers) -> None:
        begin = self.log_begin
        halves = self.halves
        is_copy = (halves.integers("checks_count", 0) > 0) | (halves.integers("prepared_queue_offset") >= 0)
        first_is_copy = np.where(halves.has, is_copy[halves.first] if len(halves) else False, True)
        # Before a lone ROLLBACK record there was its prepared record, and a prepared record has no copies.
        first_is_copy &= ~self.has_rollback_record
        self.may_begin_earlier = (begin > 0) & first_is_copy
        rows = self.may_begin_earlier & ~states.are(State.COMMITTED)
        self._undecide(rows, "log_begins_later")

    def _undecide_where_numbers_are_shared(self, only_cursor: Bools) -> None:
        """Mark as UNDECIDABLE what an op message may have decided that names several half messages by their number."""
        halves, is_decided = self.halves, self.is_committed | self.is_marked
        ambiguous = self.marks.any_of(self.is_ambiguous_mark) & ~is_decided
        if ambiguous.any():
            self._undecide(ambiguous, "op_of_several")
            mine = ambiguous & (self.undecidable_codes == NUMBERS["op_of_several"])
            self.undecidable_what[mine] = number_words(self.chains, self.is_ambiguous_mark)[mine]
        unknown = halves.any_of(self.is_ahead_per_copy & (self.slot_per_copy == UNKNOWN_SLOT))
        self._undecide(only_cursor & unknown, "slot_unknown")

    def _undecide_where_bytes_are_missing(self) -> None:
        missing = [one for view in self.views.values() for one in view.missing]
        rule = MissingRule(self) if missing else None
        self.may_lack_op, self.may_lack_final = (np.zeros(self.chains.count, np.bool_) for _ in range(2))
        for one in missing:
            assert rule is not None
            self._undecide(rule.concerned(one), "log_missing", one.what)
            self.may_lack_op |= rule.may_lack_op(one)
            self.may_lack_final |= rule.may_lack_final(one)

    def _undecide_where_the_index_knows_other_ids(self, states: StateNumbers) -> None:
        """Mark as UNDECIDABLE ids that only records with a damaged id have, and ids of these records in the index."""
        bearers = (self.halves, self.finals, self.discards)
        for view in self.views.values():
            if not view.doubtful_ids:
                continue
            places = [one.commit_log_offset for one in view.doubtful_ids]
            own = [np.asarray(pc.equal(group.table["store"], view.store)) for group in bearers]
            pairs = [
                (group, np.where(is_own, group.integers("commit_log_offset"), NONE))
                for group, is_own in zip(bearers, own, strict=True)
            ]
            has_other = np.logical_or.reduce([group.any_of(~np.isin(rows, places)) for group, rows in pairs])
            names = self.identity().to_pylist()
            for one in view.doubtful_ids:
                mine = np.logical_or.reduce([group.any_of(rows == one.commit_log_offset) for group, rows in pairs])
                what = f"the record at commit-log offset {one.commit_log_offset}, which has another id in the index"
                self._undecide(mine & ~has_other, "id_damaged", what)
                forms = [
                    key_hashes([f"{one.topic}{separator}{name}".encode() for name in names]).astype(np.int64)
                    for separator in ("#", "#U#")  # of Java brokers, and of rocketmq-rust
                ]
                may_own = np.isin(forms, np.array(one.key_hashes, np.int64)).any(axis=0) & ~states.are(State.COMMITTED)
                self._undecide(may_own & has_other, "id_perhaps_damaged", what)

    def _undecide_where_ends_name_nothing(self, states: StateNumbers) -> None:
        """Mark as UNDECIDABLE the transactions that a decision with a damaged reference may concern.

        A COMMIT record turns a rollback into a commit; an op message does not turn a commit into a rollback.
        """
        halves = self.halves
        for view in self.views.values():
            for end in view.doubtful_ends:
                here, half_is_here = self.has_copy_in(end.store), self.are_in(halves, end.store)
                offsets = halves.integers("commit_log_offset")
                if end.transaction_ids:
                    hit = np.asarray(pc.is_in(self.identity(), value_set=pa.array(end.transaction_ids, pa.string())))
                elif end.prepared_offsets:
                    hit = halves.any_of(half_is_here & np.isin(offsets, np.array(end.prepared_offsets, np.int64)))
                else:
                    is_of_group = pc.fill_null(pc.equal(self.first_of("producer_group"), end.producer_group), True)
                    hit = halves.any_of(half_is_here & (offsets < end.commit_log_offset)) & np.asarray(is_of_group)
                could_turn = ~states.are(State.COMMITTED) & (end.is_commit | ~states.are(State.ROLLED_BACK))
                self._undecide(here & hit & could_turn, "end_damaged", end.what)

    def _find_open_copies(self) -> None:
        halves, others = self.halves, self.others
        self.born_time_ms = self.first_of("born_time_ms")
        self.half_store_time_ms = halves.at("store_time_ms", halves.first)
        # A decision on a prepared record with an open slot writes one more record, and closes nothing.
        closable = halves.any_of(self.is_open_per_copy & ~others.is_prepared)
        # If the RocksDB table was not read, it may still contain a half without op: closing the half does no harm.
        perhaps = halves.any_of(others.is_unknown & ~self.is_settled_for_check_per_copy)
        is_decided = self.state.are(State.COMMITTED, State.ROLLED_BACK)
        # The check asks again for a discarded one if an open copy has checks left; else it discards it once more.
        left = halves.integers("checks_count", 0) < self.checks_count[halves.number]
        is_asked = self.state.are(State.DISCARDED) & halves.any_of(self.is_open_per_copy & ~others.is_prepared & left)
        self.is_closable = is_decided & (closable | perhaps)
        self.is_asked_still = self.is_closable | is_asked
        self.is_perhaps_asked = self.is_closable & ~closable
