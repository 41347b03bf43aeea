"""Chains and verdicts: the one place where the rules of a transaction's state live. Arrow in, Arrow out.

A verdict is a claim about what the broker recorded and what it will do next. Order of judgement:

(a) a COMMIT record that names a half or discard copy, or carries the id → COMMITTED;
(b) else an op mark on a half copy → ROLLED_BACK, unless a decision on a record outside the half topic explains the op;
(c) else a half copy, later than any discard copy, that the check has still before it → PENDING;
(d) else a discard copy, or spent checks where the version writes none → DISCARDED;
(e) else LOST.

The designs beside half and op topics have the same order (`other_designs.py` says what is open in them): a ROLLBACK
record ends a prepared record as an op message ends a half, and nothing but a COMMIT or ROLLBACK record ever does; a
half in RocksDB is open while the broker's table has it, and discarded without a copy when the table no longer has it.
There a resume makes another half with a place of its own: each is judged by its own op message, and the transaction is
what the most open one is, unless a COMMIT record is there.

UNDECIDABLE replaces any of these where bytes that could have said otherwise are missing, and its reason names them.
Source: TransactionalMessageServiceImpl.check, EndTransactionProcessor; FORMATS 5.7 to 5.12, 6, 7, 9.4.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from readers.chains import Chains, Group, Witnesses, int64s
from readers.check_reach import CheckReach
from readers.columns import Bools, Int64s
from readers.doubtful_ends import without_doubtful
from readers.flags import flags_of
from readers.header_doubts import has_port
from readers.java_hashes import key_hashes
from readers.missing_rule import MissingRule
from readers.offset_marks import is_rocksdb_mark
from readers.other_designs import OtherDesigns, state_entries_of
from readers.premises import StoreView
from readers.reasons import reasons_of
from readers.spool import identities, identity_hashes
from readers.state_entries import NONE
from readers.store import HALF_TOPIC, ROCKSDB_HALF_TOPIC, SCHEDULE_TOPIC
from readers.tables import TRANSACTIONS

STATES: dict[str, str] = {
    "PENDING": "the broker still has it before it and will ask the producer, or nothing ever ended it",
    "COMMITTED": "a COMMIT record exists: the message was written to its real topic",
    "ROLLED_BACK": "an op message, or before 4.3 a ROLLBACK record, ended it and no COMMIT record exists",
    "DISCARDED": "the broker gave up on it: a copy in TRANS_CHECK_MAX_TIME_TOPIC, or spent checks before 4.5.2, or "
    "its key taken out of RocksDB (5.4.0+)",
    "LOST": "nothing will happen to it any more, and nothing shows that the broker meant it",
    "UNDECIDABLE": "evidence that could decide it is missing; the reason names what",
}

FINAL_SLACK_MS = 60_000
ADVICE: dict[str, str] = {
    "commit": "a ledger says that the local transaction was done: force the commit",
    "rollback": "a ledger says that the local transaction was not done: force the rollback",
    "close": "it is decided, but a copy of it is still open to the check: write only the missing op (a rollback on the "
    "newest copy)",
    "discard": "give it up, keeping a copy",
    "resume": "have the broker ask the producer again",
    "wait": "the broker will ask the producer; act only if the application cannot answer",
    "decide": "no check will decide it: find out what became of the local transaction, and commit or roll back by "
    "that",
    "none": "nothing to do",
}

#: What `none` means where the state is UNDECIDABLE.
NONE_YET = (
    "nothing before what the reason names is back: look for it in a backup or another copy (rmqtx verify lists the "
    "damage), then ask again; or ask the application what became of it"
)

#: Why a half in RocksDB is UNDECIDABLE though nothing but the broker's table is missing.
OPEN_OR_DROPPED = "only the RocksDB table tells open from dropped, and it is not there to be read"



def advice_sentence(advice: str, state: str) -> str:
    """What to do, in a sentence: without evidence there is nothing to do yet, which is not nothing to do."""
    return NONE_YET if (advice, state) == ("none", "UNDECIDABLE") else ADVICE.get(advice, "")


_LOWEST, _HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


class Judgement:
    """The rules, over all transactions of some chains at once.

    Shape: every attribute has one value per transaction, or one per half copy where its name says so.
    """

    def __init__(self, chains: Chains, views: Mapping[str, StoreView]) -> None:
        self.chains = chains
        self.views = views
        self.halves, self.marks, self.finals, self.discards = (
            chains.halves, chains.marks, chains.finals, chains.discards
        )
        self._judge_copies()
        self._judge_witnesses()
        self._judge_states()
        self._judge_flags()

    # -- copies ---------------------------------------------------------------------------------------------------

    def _cursor_per_row(self, is_half: bool, stores: pa.ChunkedArray, queues: Int64s) -> tuple[Int64s, Bools]:
        """Each row's check cursor, and whether it is known."""
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

    def _judge_copies(self) -> None:
        halves, marks = self.halves, self.marks
        queue_offsets = halves.integers("queue_offset")
        cursor, self.cursor_is_known_per_copy = self._cursor_per_row(
            True, halves.table["store"], halves.integers("queue_id")
        )
        in_half_topic = np.asarray(pc.equal(halves.table["topic"], HALF_TOPIC))
        self.others = others = OtherDesigns(self.chains, self.views)
        self.cursor_per_copy = cursor
        self.is_before_per_copy = self.cursor_is_known_per_copy & in_half_topic & (queue_offsets >= cursor)
        self.is_before_per_copy |= self._is_coming_back() | others.is_before
        self.cursor_is_known_per_copy = self.cursor_is_known_per_copy | others.is_other
        self.is_in_half_topic = in_half_topic

        op_cursor, op_cursor_known = self._cursor_per_row(False, marks.table["store"], marks.integers("queue_id"))
        self.is_foreign_mark, self.is_doubtful_mark = self._foreign_marks()
        self.is_foreign_mark |= self._is_mark_of_a_commit_that_went_round()
        decides = ~self.is_foreign_mark
        # The check reads ops from the op cursor on; one before it hides nothing any more (cursors set back by hand).
        names_offset = np.asarray(pc.is_valid(marks.table["half_commit_log_offset"]))
        seen = ~op_cursor_known | names_offset | (marks.integers("queue_offset") >= op_cursor)
        self.is_marked_per_copy = self._is_copy_with(decides)
        self.is_hidden_per_copy = self._is_copy_with(seen)
        self.is_open_per_copy = np.where(
            others.is_prepared, others.is_asked, self.is_before_per_copy & ~self.is_hidden_per_copy
        )

    def _is_copy_with(self, chosen: Bools) -> Bools:
        """Half copies that any of the chosen marks is on."""
        return np.bincount(self.copies_of(chosen), minlength=len(self.halves)) > 0

    def copies_of(self, chosen: Bools) -> Int64s:
        """The half copy of each of the chosen marks; of those that name one that is gone, none."""
        return self.chains.half_of_mark[chosen & (self.chains.half_of_mark >= 0)]

    def _is_coming_back(self) -> Bools:
        """Diverted half messages that still wait for their time: the half topic gets them again.

        From 4.6.1 on the schedule service drops them ("[BUG]", #1540); the timer wheel (5.0.0+) brings them back.
        """
        halves = self.halves
        diverted = self.chains.is_diverted
        newest = halves.highest(np.where(diverted, -1, halves.rank), -1)
        coming = diverted & (halves.rank > newest[halves.number])
        if coming.any():
            drops = [
                name for name, view in self.views.items()
                if view.settings.version_low is not None and view.settings.version_low >= (4, 6, 1)
            ]
            scheduled = np.asarray(pc.equal(halves.table["topic"], SCHEDULE_TOPIC))
            dropped = scheduled & np.asarray(pc.is_in(halves.table["store"], value_set=pa.array(drops, pa.string())))
            coming &= ~dropped
        return coming

    def _is_mark_of_a_commit_that_went_round(self) -> Bools:
        """Op marks of commits of diverted half messages: their COMMIT record went to the half topic again (F9)."""
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
                marked |= np.isin(offsets, named[here]) & np.asarray(pc.equal(self.marks.table["store"], store))
        return marked

    def _foreign_marks(self) -> tuple[Bools, Bools]:
        """Op marks that a foreign decision explains, and those among them that could also be the half's own.

        A half copy that a final of its own names has an op of its own: that explains the mark first.
        """
        marks = self.marks
        named = self.finals.integers("prepared_transaction_offset")
        is_own = self._marks_a_named_copy(self.finals, named, self.chains.named_finals)
        foreign, doubtful = np.zeros(len(marks), np.bool_), np.zeros(len(marks), np.bool_)
        for view in self.views.values():
            for decision in view.foreign_decisions:
                rows = np.flatnonzero(
                    (marks.integers("half_queue_offset") == decision.queue_offset)
                    & (marks.integers("queue_id") == decision.queue_id)
                    & (marks.integers("commit_log_offset") > decision.final_offset)
                    & np.asarray(pc.equal(marks.table["store"], decision.store))
                    & ~(foreign | is_own)
                )
                if len(rows):
                    row = rows[np.argmin(marks.integers("commit_log_offset")[rows])]
                    foreign[row] = True
                    waited_ms = int(marks.integers("store_time_ms")[row]) - decision.final_time_ms
                    doubtful[row] = waited_ms > view.settings.transaction_op_batch_interval_ms + FINAL_SLACK_MS
        return foreign, doubtful

    # -- transactions ---------------------------------------------------------------------------------------------

    def _judge_witnesses(self) -> None:
        far = _HIGHEST
        halves, marks, finals, discards = self.halves, self.marks, self.finals, self.discards
        own = ~self.is_foreign_mark
        named = self.chains.named_finals
        self.marks_count = marks.count_of(own)
        records = self.chains.offset_marks
        self.has_rollback_record = records.any_of(~np.asarray(is_rocksdb_mark(records.table)))
        self.commits_count = finals.count_of(named & ~self.chains.is_replica)
        self.first_mark_rank = marks.lowest(marks.rank, far, own)
        self.first_final_rank = finals.lowest(finals.rank, far)
        self.first_discard_rank = discards.lowest(discards.rank, far)
        self.last_discard_rank = discards.highest(discards.rank, -1)
        self.newest_half_rank = halves.highest(halves.rank, -1)
        later = halves.rank > self.last_discard_rank[halves.number]
        # The check writes a copy, or gives up, of nothing but what it has before it: a later copy says that it was.
        is_before = halves.any_of(self.is_before_per_copy & later)
        self.is_copied_later = halves.any_of(self._are_copied_later() & later) & ~is_before
        self.is_waiting = is_before | self.is_copied_later
        self.is_asked_again = halves.any_of(self.is_open_per_copy)
        self.checks_count = np.maximum(
            halves.highest(np.maximum(halves.integers("checks_count", 0), self.others.checks), 0),
            discards.highest(discards.integers("checks_count", 0), 0),
        )
        # Only the table of RocksDB counts them: of what it has not, or no longer, nothing tells how often it was asked.
        # The timer of 3.0 and 3.1 counts nothing.
        is_counted = halves.highest(self.others.checks, NONE) != NONE
        self.has_unknown_checks = self.newest_is(self.others.is_rocksdb) & ~is_counted
        self.has_unknown_checks |= halves.any_of(self.others.is_uncounted)
        self.newest_checks = np.where(
            halves.has, halves.integers("checks_count", 0)[halves.last] if len(halves) else 0, 0
        )

    def _are_copied_later(self) -> Bools:
        """Which half copies are of transactions that have copies after the time that is asked about."""
        halves = self.halves
        found = np.zeros(len(halves), np.bool_)
        if not any(len(view.later_hashes) for view in self.views.values()):
            return found
        named = identities(halves.table)
        hashes = identity_hashes(named.combine_chunks() if isinstance(named, pa.ChunkedArray) else named)
        is_half: Bools = np.asarray(pc.equal(halves.table["topic"], HALF_TOPIC))
        for name, view in self.views.items():
            here: Bools = np.asarray(pc.equal(halves.table["store"], name))
            found |= here & is_half & np.isin(hashes, view.later_hashes)
        return found

    def per_transaction(self, value_of: Mapping[str, int]) -> Int64s:
        """A number of each transaction's store, by the stores' names."""
        names = self.chains.stores
        stores = pa.chunked_array([pc.fill_null(self.store, names[0] if names else "")])
        table = np.array([value_of[name] for name in names] or [0], np.int64)
        return table[int64s(pc.index_in(stores, value_set=pa.array(names, pa.string())), 0)]

    def _store_of_transaction(self) -> pa.Array:
        columns = [
            group.at("store", group.first)
            for group in (self.halves, self.discards, self.finals, self.chains.offset_marks)
        ]
        return pc.coalesce(*columns)

    def _judge_states(self) -> None:
        count = self.chains.count
        halves, finals, discards = self.halves, self.finals, self.discards
        self.store = self._store_of_transaction()
        self.log_begin = self.per_transaction({name: view.log_begin_offset for name, view in self.views.items()})
        others = self.others
        is_committed = finals.has
        # An op ends one half in RocksDB; another of the same transaction (resumed, or sent again) goes on by itself.
        left = others.is_rocksdb & ~self.is_marked_per_copy
        is_reopened = halves.any_of(left & others.is_before)
        is_unread = halves.any_of(left & others.is_unknown)
        is_marked = (self.marks_count > 0) & ~is_reopened
        cursor_known = np.ones(count, np.bool_)
        cursor_known[halves.number[~self.cursor_is_known_per_copy]] = False
        spent = self._spent_checks() | halves.any_of(others.is_dropped)
        self._choose_told_copies(left)
        states = np.select(
            [is_committed, is_marked, self.is_waiting, discards.has, spent],
            ["COMMITTED", "ROLLED_BACK", "PENDING", "DISCARDED", "DISCARDED"],
            "LOST",
        ).astype("U11")
        self.is_without_copy = spent & (states == "DISCARDED") & ~discards.has
        self.undecidable_reason = np.full(count, "", object)

        newest_after_discard = halves.has & (self.newest_half_rank > self.last_discard_rank)
        only_cursor = ~is_committed & ~is_marked & newest_after_discard
        past = np.zeros(count, np.bool_)
        for name, view in self.views.items():
            if view.half_cursors is None:
                why = view.cursor_doubt or "no config/consumerOffset.json"
                self._undecide(only_cursor & ~cursor_known, f"the check cursor is unknown ({why})")
            if view.at_ms is not None:
                past |= np.asarray(pc.equal(self.store, name))
        self._undecide(
            only_cursor & past & ~self.is_waiting & halves.any_of(others.is_dropped),
            "the RocksDB table has no history: as of a past time only it could decide it",
        )
        self._undecide(
            only_cursor & ~self.is_waiting & halves.any_of(others.is_slaves_drop),
            "it is not in the RocksDB table of this slave, which drops what its master may still ask for",
        )
        # Cursors only move forward in a running broker: what is still before the check now was so then.
        self._undecide(
            only_cursor & past & ~self.is_waiting,
            "cursors have no history: as of a past time only they could decide it",
        )
        self._undecide_where_log_begins_later(states)
        doubtful = self.marks.any_of(self.is_doubtful_mark) & ~is_committed & ~is_marked
        self._undecide(doubtful, "its op number may as well belong to a decision on another record")
        self._undecide_where_bytes_are_missing(states)
        self._undecide_where_ends_name_nothing(states)
        self._undecide_where_the_index_knows_other_ids(states)
        self._undecide(
            halves.any_of(others.is_ended_beside) & (states == "PENDING"),
            "the state table or the redo log says that a record ended it, and the log has no such record",
        )
        # Last, so that nothing else is missing where this is the reason: then it is known that nobody decided it.
        self._undecide(is_unread & ~is_committed & ~is_reopened & ~self.is_waiting, OPEN_OR_DROPPED)
        self.state = np.where(self.undecidable_reason == "", states, "UNDECIDABLE")

    def _choose_told_copies(self, left: Bools) -> None:
        """The half copy that a reason is about: the newest, and of several in RocksDB the most open of them."""
        halves, others = self.halves, self.others
        self.told_copy = halves.last.copy()
        if not others.is_rocksdb.any():
            return
        for chosen in (others.is_dropped, others.is_unknown, others.is_before):
            rows = np.flatnonzero(left & chosen)
            np.put(self.told_copy, halves.number[rows], rows)  # in log order: the newest stays

    def _undecide(self, rows: Bools, reason: str) -> None:
        rows = rows & (self.undecidable_reason == "")
        self.undecidable_reason[rows] = reason

    def _spent_checks(self) -> Bools:
        """Whether the newest copy had all its checks, in a store whose version writes no discard copies."""
        limits, silent = {}, {}
        for name, view in self.views.items():
            settings = view.settings
            # transactionCheckMax is not in a store: unless it was given, the most checks seen there stand for it.
            limits[name] = (
                settings.transaction_check_max
                if settings.check_max_is_configured
                else min(settings.transaction_check_max, view.checks_seen_max or settings.transaction_check_max)
            )
            silent[name] = int(settings.writes_discard_copy is not True)
        limit, is_silent = self.per_transaction(limits), self.per_transaction(silent)
        spent: Bools = self.halves.has & (is_silent > 0) & (limit > 0) & (self.newest_checks >= limit)
        most = {name: view.settings.transaction_check_max for name, view in self.views.items()}
        self.rests_on_most_checks = spent & (limit < self.per_transaction(most))
        return spent

    def _undecide_where_log_begins_later(self, states: npt.NDArray[np.str_]) -> None:
        begin = self.log_begin
        halves = self.halves
        is_copy = (halves.integers("checks_count", 0) > 0) | (halves.integers("prepared_queue_offset") >= 0)
        first_is_copy = np.where(halves.has, is_copy[halves.first] if len(halves) else False, True)
        # A ROLLBACK record alone is a decision that its own prepared record came before; that one has no copies.
        first_is_copy &= ~self.has_rollback_record
        rows = (begin > 0) & first_is_copy & (states != "COMMITTED")
        self._undecide(rows, "the log begins later: earlier copies and what may have decided them are gone")

    def _undecide_where_bytes_are_missing(self, states: npt.NDArray[np.str_]) -> None:
        missing = [one for view in self.views.values() for one in view.missing]
        rule = MissingRule(self, states) if missing else None
        self.may_lack_op, self.may_lack_final = (np.zeros(self.chains.count, np.bool_) for _ in range(2))
        for one in missing:
            assert rule is not None
            self._undecide(rule.concerned(one), f"bytes of the log are missing: {one.what}")
            self.may_lack_op |= rule.may_lack_op(one)
            self.may_lack_final |= rule.may_lack_final(one)

    def real_topics(self) -> pa.Array:
        """Where each transaction's message goes to, as far as its records say."""
        halves, finals = self.halves, self.finals
        return pc.coalesce(
            halves.at("real_topic", halves.first),
            self.discards.at("real_topic", self.discards.first),
            finals.at("topic", finals.last),
            self.chains.offset_marks.at("real_topic", self.chains.offset_marks.last),
        )

    def names(self) -> tuple[pa.Array, pa.Array]:
        """The id of each transaction, and its business keys."""
        return self._identity(), self._first_of("keys")

    def _undecide_where_the_index_knows_other_ids(self, states: npt.NDArray[np.str_]) -> None:
        """What only records with a damaged id are of; and what such a record, by the index, may be of."""
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
            names = self._identity().to_pylist()
            for one in view.doubtful_ids:
                mine = np.logical_or.reduce([group.any_of(rows == one.commit_log_offset) for group, rows in pairs])
                what = f"the record at commit-log offset {one.commit_log_offset}, which the index knows by another id"
                self._undecide(mine & ~has_other, f"only {what}, is of it: that id is damaged")
                keys = key_hashes([f"{one.topic}#{name}".encode() for name in names]).astype(np.int64)
                meant = np.isin(keys, np.array(one.key_hashes, np.int64)) & (states != "COMMITTED")
                self._undecide(meant & has_other, f"it may be what {what}, is of")

    def _undecide_where_ends_name_nothing(self, states: npt.NDArray[np.str_]) -> None:
        """What an end with a damaged name may have ended: only a COMMIT takes back a rollback, and nothing a COMMIT."""
        halves = self.halves
        for view in self.views.values():
            for end in view.doubtful_ends:
                here = np.asarray(pc.fill_null(pc.equal(self.store, end.store), False))
                offsets = halves.integers("commit_log_offset")
                if end.transaction_ids:
                    hit = np.asarray(pc.is_in(self._identity(), value_set=pa.array(end.transaction_ids, pa.string())))
                elif end.prepared_offsets:
                    hit = halves.any_of(np.isin(offsets, np.array(end.prepared_offsets, np.int64)))
                else:
                    is_of_group = pc.fill_null(pc.equal(self._first_of("producer_group"), end.producer_group), True)
                    hit = halves.any_of(offsets < end.commit_log_offset) & np.asarray(is_of_group)
                could_turn = (states != "COMMITTED") & (end.is_commit | (states != "ROLLED_BACK"))
                self._undecide(here & hit & could_turn, end.what)

    def _id_by_other_records(self) -> pa.Array:
        """The id that other records bear, where the index knows the first half copy by another one; null elsewhere."""
        halves, finals = self.halves, self.finals
        places = {one.commit_log_offset for view in self.views.values() for one in view.doubtful_ids}
        if not places or not len(halves):
            return pa.nulls(self.chains.count, pa.string())
        doubted = halves.has & np.isin(halves.integers("commit_log_offset")[halves.first], list(places))
        return finals.at("transaction_id", finals.last, doubted & finals.has)

    def _id_by_ends(self) -> pa.Array:
        """The id that ends give to a half copy that is known by its host, where that is damaged; null elsewhere."""
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

    def _identity(self) -> pa.Array:
        halves, discards, finals = self.halves, self.discards, self.finals
        return pc.coalesce(
            self._id_by_other_records(),
            self._id_by_ends(),
            halves.at("transaction_id", halves.first),
            halves.at("lone_message_id", halves.first),
            discards.at("transaction_id", discards.first),
            discards.at("lone_message_id", discards.first),
            *(group.at(name, group.first) for group in (finals, self.chains.offset_marks)
              for name in ("transaction_id", "lone_prepared_id")),
        )

    def _judge_flags(self) -> None:
        halves, others = self.halves, self.others
        self.born_time_ms = self._first_of("born_time_ms")
        self.half_store_time_ms = halves.at("store_time_ms", halves.first)
        # A decision on what the state table still asks for writes one more record, and closes nothing.
        closable = halves.any_of(self.is_open_per_copy & ~others.is_prepared)
        # Where the RocksDB table was not read, a half without op may still be in it, or not: closing it does no harm.
        perhaps = halves.any_of(others.is_unknown & ~self.is_hidden_per_copy)
        is_decided = np.isin(self.state, ["COMMITTED", "ROLLED_BACK"])
        # Of what was given up on the check asks again where an open copy has checks left; else it gives up once more.
        left = halves.integers("checks_count", 0) < self.checks_count[halves.number]
        is_asked = (self.state == "DISCARDED") & halves.any_of(self.is_open_per_copy & ~others.is_prepared & left)
        self.is_closable = is_decided & (closable | perhaps)
        self.is_asked_still = self.is_closable | is_asked
        self.is_perhaps_asked = self.is_closable & ~closable
        self.reach = CheckReach(self)
        self.flags = flags_of(self)

    def newest_is(self, copies: Bools) -> Bools:
        """Transactions whose newest half copy is one of some copies."""
        halves = self.halves
        return halves.has & copies[halves.last] if len(halves) else np.zeros(self.chains.count, np.bool_)

    def _first_of(self, name: str) -> pa.Array:
        """A column that halves, discard copies and finals share, of the transaction's first witness."""
        groups = (self.halves, self.discards, self.finals, self.chains.offset_marks)
        return pc.coalesce(*(group.at(name, group.first) for group in groups))

    # -- rows -----------------------------------------------------------------------------------------------------

    def _decided_time(self) -> pa.Array:
        finals, discards, marks = self.finals, self.discards, self.marks
        far = _HIGHEST
        marked = marks.lowest(marks.integers("store_time_ms"), far, ~self.is_foreign_mark)
        times = np.select(
            [self.state == "COMMITTED", self.state == "ROLLED_BACK", (self.state == "DISCARDED") & discards.has],
            [
                finals.lowest(finals.integers("store_time_ms"), far),
                marked,
                discards.highest(discards.integers("store_time_ms"), 0),
            ],
            far,
        )
        return pa.array(times, pa.int64(), mask=times == far)

    def _flag_lists(self) -> pa.Array:
        names = list(self.flags)
        matrix = np.stack([self.flags[name] for name in names], axis=1)
        offsets = np.concatenate([[0], np.cumsum(matrix.sum(axis=1))]).astype(np.int32)
        values = pa.array(names, pa.string()).take(pa.array(np.nonzero(matrix)[1]))
        return pa.ListArray.from_arrays(pa.array(offsets), values, type=TRANSACTIONS.field("flags").type)

    def _advice(self) -> pa.Array:
        others = self.others
        # a broker before 3.2 asks for most
        unread = others.may_ask & (~others.has_tables | (others.is_table_damaged & (others.open_slot == NONE)))
        is_resumable = (self.state == "PENDING") & self.flags["masked"] | np.isin(self.state, ["DISCARDED", "LOST"])
        is_resumable &= ~self.is_asked_still | self.reach.is_never_asked
        is_asked = self.newest_is((others.is_asked & ~others.is_unanswerable) | others.was_asked | unread)
        return pa.array(
            np.select(
                [
                    self.is_closable,
                    (self.state == "PENDING") & self.newest_is(self.others.is_prepared) & ~is_asked,
                    # What is resumed goes behind everything else: a check that is stopped does not come to it either.
                    self.reach.is_never_asked & (self.state == "PENDING") | self.reach.is_stopped & is_resumable
                    | self.reach.is_spent,
                    is_resumable,
                    (self.state == "PENDING") | self.is_asked_still,
                ],
                ["close", "decide", "decide", "resume", "wait"],
                "none",
            )
        )

    def table(self) -> pa.Table:
        """The rows of TRANSACTIONS.

        Order: as the chains are ordered.
        """
        halves, finals = self.halves, self.finals
        topic = self.real_topics()
        half_topics = pa.array([HALF_TOPIC, ROCKSDB_HALF_TOPIC])
        is_lost = pc.is_in(topic, value_set=half_topics)  # a diverted half message forgets where it was for
        queue_id = pc.coalesce(
            halves.at("real_queue_id", halves.first),
            self.discards.at("real_queue_id", self.discards.first),
            finals.at("queue_id", finals.last),
            self.chains.offset_marks.at("queue_id", self.chains.offset_marks.last),
        )
        columns = {
            "store": self.store,
            "transaction_id": self._identity(),
            "state": pa.array(self.state),
            "flags": self._flag_lists(),
            "reason": reasons_of(self),
            "advice": self._advice(),
            "producer_group": self._first_of("producer_group"),
            "topic": pc.if_else(is_lost, pa.scalar(None, pa.string()), topic),
            "queue_id": pc.if_else(is_lost, pa.scalar(None, pa.int32()), queue_id),
            "keys": self._first_of("keys"),
            "born_time_ms": self.born_time_ms,
            "half_store_time_ms": self.half_store_time_ms,
            "decided_time_ms": self._decided_time(),
            "checks_count": pa.array(self.checks_count, pa.int64(), mask=self.has_unknown_checks).cast(pa.int32()),
            **self.chains.evidence(),
            "state_entries": state_entries_of(self.chains, self.views, TRANSACTIONS.field("state_entries").type),
            "discard_at_ms": pa.nulls(self.chains.count, pa.int64()),
        }
        return pa.Table.from_arrays([columns[name] for name in TRANSACTIONS.names], schema=TRANSACTIONS)


def judge(witnesses: Witnesses, views: Mapping[str, StoreView]) -> pa.Table:
    """The verdict on every transaction that the witnesses are of.

    Shape: one row of TRANSACTIONS per transaction; `discard_times.with_discard_times` gives them their `discard_at_ms`.
    Order: first half copy, then those known by discard copies or finals alone.
    """
    believed = without_doubtful(witnesses, views)
    return Judgement(Chains(believed, is_of_one_store=len(views) <= 1), views).table()
