"""The third result of a judgement: which states missing evidence could change, and which copies are still open.

(f) UNDECIDABLE replaces a state if missing bytes could contain a record that changes it; the first reason is kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Bools
from rmqtx.readers.model.java_hashes import key_hashes
from rmqtx.readers.old_tables.beside_log import NONE
from rmqtx.verdicts.model.predicted import Event
from rmqtx.verdicts.model.verdict_inputs import UNKNOWN_SLOT, StoreView
from rmqtx.verdicts.model.verdict_words import State
from rmqtx.verdicts.transactions.chains import Chains
from rmqtx.verdicts.transactions.found_states import FoundStates, StateNumbers
from rmqtx.verdicts.transactions.judged_copies import JudgedCopies
from rmqtx.verdicts.transactions.missing_rule import MissingRule
from rmqtx.verdicts.transactions.reason_codes import NO_CODE, NUMBERS
from rmqtx.verdicts.transactions.shared_numbers import number_words

#: The number of a reason code in REASONS, of each transaction.
Codes = npt.NDArray[np.int8]
_Words = npt.NDArray[np.object_]
#: Transactions that a reason makes undecidable, its code, and the missing evidence, or that of each transaction.
_Doubt = tuple[Bools, str, str | _Words]


@dataclass(frozen=True, slots=True)
class Judgement:
    """The state of each transaction, or why it is undecidable.

    Shape: `found` is the result before; the rest has one value per transaction. `undecidable_what`: the missing
           evidence of an UNDECIDABLE one, for codes with `{what}` in their sentence. `may_begin_earlier`: its first
           records may have left the log; `may_lack_op`, `may_lack_final`: missing bytes may contain its op message, its
           COMMIT record. `is_closable`: decided, and the check may still reach a copy; `is_perhaps_asked`: only the
           RocksDB table, which was not read, would show it; `is_asked_still`: closable, or discarded and asked again.
    """

    found: FoundStates
    state: StateNumbers
    undecidable_codes: Codes
    undecidable_what: _Words
    may_begin_earlier: Bools
    may_lack_op: Bools
    may_lack_final: Bools
    is_closable: Bools
    is_perhaps_asked: Bools
    is_asked_still: Bools

    @classmethod
    def of(cls, found: FoundStates) -> Judgement:
        """Doubt the states that were found."""
        copies, chains = found.copies, found.copies.chains
        halves, others = chains.halves, copies.others
        codes, what = np.full(chains.count, NO_CODE, np.int8), np.full(chains.count, "", np.object_)
        may_begin_earlier = _may_begin_earlier(copies)
        rule = MissingRule(found)
        for doubted, code, words in _doubts(found, may_begin_earlier, rule):
            rows = doubted & (codes == NO_CODE)
            codes[rows], what[rows] = NUMBERS[code], words if isinstance(words, str) else words[rows]
        state = found.state.replaced(codes != NO_CODE, State.UNDECIDABLE)
        may_lack_op, may_lack_final = np.zeros(chains.count, np.bool_), np.zeros(chains.count, np.bool_)
        for one in rule.missing:
            may_lack_op |= rule.may_lack_op(one)
            may_lack_final |= rule.may_lack_final(one)
        # A decision on a prepared record with an open slot writes one more record, and closes nothing. No round reads a
        # copy whose slot the next start does not write again, and a later half message may get its number.
        is_open = copies.is_open & ~others.is_prepared & ~np.isin(copies.future.event, (Event.SKIPPED, Event.UNREAD))
        # A start that cuts the log or a queue can begin the check again: it reads decided copies once more.
        is_read_again = halves.any_of(copies.is_read_after_cut & ~others.is_prepared) & ~copies.loses_final
        closable = halves.any_of(is_open) | is_read_again
        # If the RocksDB table was not read, it may still contain a half without op: closing the half does no harm.
        perhaps = halves.any_of(others.is_unknown & ~copies.is_settled)
        is_closable = state.are(State.COMMITTED, State.ROLLED_BACK) & (closable | perhaps)
        # The check asks again for a discarded one if an open copy has checks left; else it discards it once more.
        has_left = halves.integers("checks_count", 0) < found.checks_count[halves.number]
        is_asked = state.are(State.DISCARDED) & halves.any_of(is_open & has_left)
        return cls(
            found, state, codes, what, may_begin_earlier, may_lack_op, may_lack_final,
            is_closable=is_closable, is_perhaps_asked=is_closable & ~closable, is_asked_still=is_closable | is_asked,
        )

    @property
    def copies(self) -> JudgedCopies:
        """The first result."""
        return self.found.copies

    @property
    def chains(self) -> Chains:
        """The evidence."""
        return self.found.copies.chains


def _doubts(found: FoundStates, may_begin_earlier: Bools, rule: MissingRule) -> Iterator[_Doubt]:
    """Yield the reasons for UNDECIDABLE; each transaction has the first one."""
    copies, chains = found.copies, found.copies.chains
    halves, others, views = chains.halves, copies.others, chains.views
    yield from _of_shared_ids(copies)
    is_ended = chains.finals.has | found.is_marked
    by_cursor = ~is_ended & halves.has & (halves.last_rank > chains.discards.last_rank)
    is_unknown = halves.any_of(~copies.cursor_is_known)
    is_past = np.zeros(chains.count, np.bool_)
    for name, view in views.items():
        if view.half_cursors is None:
            yield by_cursor & is_unknown, "cursor_unknown", view.cursor_doubt or "no config/consumerOffset.json"
        if view.at_ms is not None:
            is_past |= chains.have_copy_in(name)
    is_passed = by_cursor & ~found.is_waiting
    yield is_passed & is_past & halves.any_of(others.is_dropped), "rocksdb_in_the_past", ""
    yield is_passed & halves.any_of(others.is_slaves_drop), "rocksdb_of_slave", ""
    # Cursors only move forward in a running broker: what the check has not reached now, it had not reached then.
    yield is_passed & is_past, "cursor_in_the_past", ""
    yield may_begin_earlier & ~found.state.are(State.COMMITTED), "log_begins_later", ""
    yield chains.marks.any_of(copies.marks.is_doubtful) & ~is_ended, "op_doubtful", ""
    yield from _of_shared_numbers(copies, is_ended, by_cursor)
    for one in rule.missing:
        yield rule.concerned(one), "log_missing", one.what
    yield from _of_ends_that_name_nothing(found)
    yield from _of_other_ids_in_the_index(found)
    yield halves.any_of(others.is_ended_beside) & found.state.are(State.PENDING), "ended_beside_log", ""
    # Tested last: with this code only the RocksDB table is missing, so it is certain that no decision is recorded.
    is_unread = found.is_unread & ~(chains.finals.has | found.is_reopened | found.is_waiting)
    yield is_unread, "rocksdb_table_unread", ""


def _of_shared_ids(copies: JudgedCopies) -> Iterator[_Doubt]:
    """Ids of the designs before 4.3 that records of several logs have.

    The id is the address of a broker and a place in its log, and brokers of two stores can have had one address. Logs
    without a common part may be of one broker: that is another reason.
    """
    chains = copies.chains
    stores: dict[str, list[str]] = {}
    for name in sorted(chains.stores):
        log = chains.views[name].log
        if log is not None:
            stores.setdefault(log, []).append(name)
    if len(stores) < 2:
        return
    has = {name: chains.have_record_in(name) for names in stores.values() for name in names}
    of_logs = [np.logical_or.reduce([has[name] for name in names]) for names in stores.values()]
    is_old = chains.halves.any_of(copies.others.is_prepared) | chains.has_rollback_record
    for row in np.flatnonzero(is_old & (np.sum(of_logs, axis=0) > 1)).tolist():
        names = sorted(name for name in has if has[name][row])
        is_known = _are_several_logs([chains.views[name] for name in names])
        code = "id_of_several_logs" if is_known else "id_of_uncompared_logs"
        yield np.arange(chains.count) == row, code, " and ".join(names)


def _are_several_logs(views: Sequence[StoreView]) -> bool:
    """Whether two of some stores are known to have different logs."""
    return any(
        one.log != other.log and other.log not in one.uncompared_logs and one.log not in other.uncompared_logs
        for one, other in itertools.combinations(views, 2)
    )


def _may_begin_earlier(copies: JudgedCopies) -> Bools:
    """Which transactions have a put-back copy as their first record, in a log that once began earlier."""
    chains, halves = copies.chains, copies.chains.halves
    is_copy = (halves.integers("checks_count", 0) > 0) | (halves.integers("prepared_queue_offset") >= 0)
    first_is_copy = np.where(halves.has, is_copy[halves.first] if len(halves) else False, True)
    # Before a lone ROLLBACK record there was its prepared record, and a prepared record has no copies.
    begins_later = copies.per_transaction(lambda view: view.log_begin_offset) > 0
    found: Bools = begins_later & first_is_copy & ~chains.has_rollback_record
    return found


def _of_shared_numbers(copies: JudgedCopies, is_ended: Bools, by_cursor: Bools) -> Iterator[_Doubt]:
    """What an op message may have decided that names several half messages by their number."""
    chains, shared = copies.chains, copies.marks.shared
    ambiguous = chains.marks.any_of(shared.is_ambiguous) & ~is_ended
    if ambiguous.any():
        yield ambiguous, "op_of_several", number_words(chains, shared.is_ambiguous)
    yield by_cursor & chains.halves.any_of(copies.is_ahead & (copies.slot == UNKNOWN_SLOT)), "slot_unknown", ""


def _of_other_ids_in_the_index(found: FoundStates) -> Iterator[_Doubt]:
    """Ids that only records with a damaged id have, and ids of these records in the index."""
    chains = found.copies.chains
    for view in chains.views.values():
        if not view.doubtful_ids:
            continue
        places = [one.commit_log_offset for one in view.doubtful_ids]
        pairs = [
            (group, np.where(group.are_in([view.store]), group.integers("commit_log_offset"), NONE))
            for group in (chains.halves, chains.finals, chains.discards)
        ]
        has_other = np.logical_or.reduce([group.any_of(~np.isin(rows, places)) for group, rows in pairs])
        names = chains.ids.to_pylist()
        for one in view.doubtful_ids:
            mine = np.logical_or.reduce([group.any_of(rows == one.commit_log_offset) for group, rows in pairs])
            what = f"the record at commit-log offset {one.commit_log_offset}, which has another id in the index"
            yield mine & ~has_other, "id_damaged", what
            forms = [
                key_hashes([f"{one.topic}{separator}{name}".encode() for name in names]).astype(np.int64)
                for separator in ("#", "#U#")  # of Java brokers, and of rocketmq-rust
            ]
            may_own = np.isin(forms, np.array(one.key_hashes, np.int64)).any(axis=0)
            yield may_own & ~found.state.are(State.COMMITTED) & has_other, "id_perhaps_damaged", what


def _of_ends_that_name_nothing(found: FoundStates) -> Iterator[_Doubt]:
    """The transactions that a decision with a damaged reference may concern.

    A COMMIT record turns a rollback into a commit; an op message does not turn a commit into a rollback.
    """
    chains, halves = found.copies.chains, found.copies.chains.halves
    offsets = halves.integers("commit_log_offset")
    for end in (end for view in chains.views.values() for end in view.doubtful_ends):
        half_is_here = halves.are_in([end.store])
        if end.transaction_ids:
            hit = np.asarray(pc.is_in(chains.ids, value_set=pa.array(end.transaction_ids, pa.string())))
        elif end.prepared_offsets:
            hit = halves.any_of(half_is_here & np.isin(offsets, np.array(end.prepared_offsets, np.int64)))
        else:
            is_of_group = pc.fill_null(pc.equal(chains.first_of("producer_group"), end.producer_group), True)
            hit = halves.any_of(half_is_here & (offsets < end.commit_log_offset)) & np.asarray(is_of_group)
        could_turn = ~found.state.are(State.COMMITTED) & (end.is_commit | ~found.state.are(State.ROLLED_BACK))
        yield chains.have_copy_in(end.store) & hit & could_turn, "end_damaged", end.what
