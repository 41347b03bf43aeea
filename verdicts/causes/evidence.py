"""What the rules of causes read: columns of judged transactions as flat arrays, with the facts of their stores."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Bools, Int64s, are_among, int64s
from rmqtx.readers.model.identities import GRPC_MESSAGE_ID
from rmqtx.readers.model.releases import HALF_TOPIC_DESIGN
from rmqtx.readers.traces import TraceKind
from rmqtx.verdicts.model.store_evidence import StoreEvidence
from rmqtx.verdicts.model.verdict_words import State
from rmqtx.verdicts.model.witnesses import distinct_counts

#: The columns of TRANSACTIONS that rules and the table of causes read.
NEEDED_COLUMNS = (
    "store", "transaction_id", "state", "flags", "reason_code", "producer_group", "topic", "born_time_ms",
    "half_store_time_ms", "half_copies", "op_marks", "final_records", "discard_copies",
)
#: Columns that only live brokers have.
_LIVE_COLUMNS = ("asked_through", "producer_alive")
#: The most flags and records of an uneventful transaction.
_UNEVENTFUL_COUNTS = {"flags": 0, "half_copies": 1, "op_marks": 1, "final_records": 1, "discard_copies": 0}
#: How far apart two times of one moment can be, because clocks have whole milliseconds.
_ROUNDED_MS = 1
#: Before all times; the negative of it is after all of them.
_NO_TIME = -(1 << 62)
#: An offset before all records, and a number that no record has.
_UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Records:
    """The records of one kind of all transactions.

    Shape: `owner`: the row of each record's transaction; `store`: its number in `Evidence.names`; `half`: the half
           queue offset that an op mark names; `checks`: checks before a half copy was written; `named`: the
           commit-log offset of the copy that a COMMIT record names.
    Order: transaction, store, commit-log offset.
    """

    owner: Int64s
    store: Int64s
    queue_offset: Int64s
    offset: Int64s
    time_ms: Int64s
    checks: Int64s
    half: Int64s
    named: Int64s

    def __len__(self) -> int:
        return len(self.owner)


@dataclass(frozen=True, slots=True)
class Said:
    """The decisions and answers that producers wrote into message traces, of all transactions that are looked up.

    Shape: `owner`: the row of the transaction; `decision`: of Decision, as text; `host`: the address that sent the
           trace. `repeats_ms`: on the clock of the producer.
    Units: `earliest_ms`, `latest_ms`: on the clock of the broker, between which it was decided, by the times at which
           the half message was sent and stored; the lowest number without the line of the half message.
    Order: transaction, then the producer's clock.
    """

    owner: Int64s
    time_ms: Int64s
    earliest_ms: Int64s
    latest_ms: Int64s
    decision: npt.NDArray[np.str_]
    is_answer: Bools
    host: list[str]
    store: list[str]
    offset: Int64s

    def __len__(self) -> int:
        return len(self.owner)


@dataclass
class Evidence:
    """Judged transactions as arrays.

    Shape: every method that returns a value for each transaction has them in the order of `rows`.
    """

    rows: pa.Table
    stores: Mapping[str, StoreEvidence]
    _words: dict[str, tuple[list[str], Int64s]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """The number of transactions."""
        return int(self.rows.num_rows)

    def chosen(self, rows: Int64s) -> Evidence:
        """Some of the transactions, by row."""
        names = [name for name in (*NEEDED_COLUMNS, *_LIVE_COLUMNS) if name in self.rows.schema.names]
        return Evidence(self.rows.select(names).take(pa.array(rows)), self.stores)

    @cached_property
    def names(self) -> list[str]:
        """The stores, by number."""
        return list(self.stores)

    # --- values of a transaction --------------------------------------------------------------------------------------

    def flag(self, name: str) -> Bools:
        """Whether each transaction has a flag."""
        owners = self._flag_owners.get(name)
        return np.zeros(self.count, np.bool_) if owners is None else self.any_owner(owners)

    def state(self, *states: State) -> Bools:
        """Whether each transaction has one of the states."""
        return self._has_word("state", states)

    def reason(self, *codes: str) -> Bools:
        """Whether each transaction has one of the reason codes."""
        return self._has_word("reason_code", codes)

    def asked_through(self, *words: str) -> Bools:
        """Whether a broker sends the checks of each transaction in one of the ways; known of live brokers only."""
        if "asked_through" not in self.rows.schema.names:
            return np.zeros(self.count, np.bool_)
        return np.asarray(pc.is_in(self._column("asked_through"), value_set=pa.array(words)))

    @cached_property
    def trace_lines(self) -> dict[int, list[dict[str, Any]]]:
        """What producers wrote about transactions without a decision, with several, or that were checked: rows of
        TRACES, by row.

        The broker that stored a trace may be another one than that of the transaction.
        """
        traces = [one.traces for one in self.stores.values() if one.traces is not None]
        marks, finals = self.count_of(self.marks), self.count_of(self.finals)
        was_checked = (self.count_of(self.copies) > 1) | (self.count_of(self.discards) > 0)
        is_open = (marks + finals == 0) & self.state(State.PENDING, State.DISCARDED)
        chosen = np.flatnonzero(was_checked | is_open | (marks > 1) | (finals > 1))
        found: dict[int, list[dict[str, Any]]] = {}
        if traces and len(chosen):
            ids = self._column("transaction_id")
            rows = {str(ids[row]): row for row in chosen.tolist()}
            first = self.first_copy_offset[chosen]
            for one in traces:
                here = first[self.of_store_named(one.root)[chosen]]
                is_own = len(here) == len(chosen)
                for identity, lines in one.rows(list(rows), int(here.min()) if is_own else 0).items():
                    found.setdefault(rows[identity], []).extend(lines)
        return found

    @cached_property
    def said(self) -> Said:
        """What the traces have of decisions and answers; a line in several copies of a log counts once."""
        born, half = int64s(self._column("born_time_ms"), _UNKNOWN), self.half_store_time_ms
        rows: list[tuple[int, int, int, int, str, bool, str, str, int]] = []
        for owner in sorted(self.trace_lines):
            lines = {(one["commit_log_offset"], one["line_number"], one["time_ms"]): one
                     for one in self.trace_lines[owner]}.values()
            sent = [one for one in lines if one["kind"] == TraceKind.SENT]
            stored_ms, began_ms = int(half[owner]), int(born[owner])
            least = most = None
            if stored_ms >= 0:  # what the broker's clock is ahead of the producer's
                if sent:
                    began_ms = min(one["time_ms"] for one in sent)
                    least = stored_ms - max(one["time_ms"] + one["cost_ms"] for one in sent) - _ROUNDED_MS
                most = stored_ms - began_ms + _ROUNDED_MS if began_ms >= 0 else None
            for one in sorted(lines, key=lambda one: int(one["time_ms"])):
                if one["kind"] == TraceKind.DECIDED:
                    time_ms = int(one["time_ms"])
                    rows.append((
                        owner, time_ms, _NO_TIME if least is None else time_ms + least,
                        -_NO_TIME if most is None else time_ms + most, one["decision"], one["is_check_answer"],
                        one["born_host"], one["store"], one["commit_log_offset"],
                    ))
        columns = list(zip(*rows, strict=True)) or [()] * 9
        owners, times, earliest, latest, decisions, answers, hosts, stores, offsets = columns
        return Said(
            np.array(owners, np.int64), np.array(times, np.int64), np.array(earliest, np.int64),
            np.array(latest, np.int64), np.array(decisions, np.str_), np.array(answers, np.bool_), list(hosts),
            list(stores), np.array(offsets, np.int64),
        )

    def of_store_named(self, root: str) -> Bools:
        """Whether each transaction has copies in a store, and in no other."""
        number = self.names.index(root)
        is_elsewhere = self.any_of(self.copies, self.copies.store != number)
        here: Bools = self.any_of(self.copies, self.copies.store == number) & ~is_elsewhere
        return here

    @cached_property
    def is_grpc(self) -> Bools:
        """Whether a gRPC client sent each transaction, through a proxy: by its id, and its group is its topic."""
        is_id = pc.match_substring_regex(self._column("transaction_id"), GRPC_MESSAGE_ID)
        is_topic = pc.equal(self._column("producer_group"), self._column("topic"))
        return np.asarray(pc.fill_null(pc.and_(is_id, is_topic), False))

    def of_store(self, value: Callable[[StoreEvidence], bool]) -> Bools:
        """A fact of the store of each transaction."""
        return self.whether(value)[self.store]

    def whether(self, value: Callable[[StoreEvidence], bool]) -> Bools:
        """A fact of each store."""
        return np.array([value(one) for one in self.stores.values()], np.bool_)

    def numbers(self, value: Callable[[StoreEvidence], int | None], missing: int) -> Int64s:
        """A number of each store; `missing` stands for unknown."""
        found = [value(one) for one in self.stores.values()]
        return np.array([missing if one is None else one for one in found], np.int64)

    @cached_property
    def store(self) -> Int64s:
        """The number of the store of each transaction."""
        return self._store_numbers(self._column("store"))

    @cached_property
    def half_store_time_ms(self) -> Int64s:
        """The broker clock at the first half copy of each transaction; -1 where it is unknown."""
        return int64s(self._column("half_store_time_ms"), _UNKNOWN)

    @cached_property
    def copies_count(self) -> Int64s:
        """The number of half copies of each transaction; copies of one record in several stores count once."""
        return distinct_counts(self._column("half_copies"))

    @cached_property
    def first_copy_offset(self) -> Int64s:
        """The commit-log offset of the first half copy of each transaction; the highest number if it has no copy."""
        found = np.full(self.count, np.iinfo(np.int64).max)
        np.minimum.at(found, self.copies.owner, self.copies.offset)
        return found

    @cached_property
    def has_no_producer(self) -> Bools:
        """Whether no producer of the group of each transaction is connected; only live brokers show it."""
        if "producer_alive" not in self.rows.column_names:
            return np.zeros(self.count, np.bool_)
        return ~np.asarray(pc.fill_null(self._column("producer_alive"), True))

    @cached_property
    def half_topic(self) -> Bools:
        """Whether the broker of each transaction may have a half topic."""
        return self.of_store(lambda one: HALF_TOPIC_DESIGN.between(one.version_low, one.version_high) is not False)

    @cached_property
    def is_uneventful(self) -> Bools:
        """Which transactions were decided once, before any check: one copy, no flag, no discard, a group and a topic.

        Most are. Rules read what distinguishes the others; lines of a broker's log may be about any transaction.
        """
        rows = self.state(State.COMMITTED, State.ROLLED_BACK) & self.of_store(lambda one: one.logs is None)
        for name, most in _UNEVENTFUL_COUNTS.items():
            rows &= self._lengths(name) <= most
        for name in ("producer_group", "topic"):
            rows &= np.asarray(self._column(name).is_valid())
        rows &= (self._lengths("half_copies") == 1) & ~self.was_checked
        return rows

    @cached_property
    def eventful(self) -> tuple[Int64s, Evidence]:
        """The other transactions: their rows, and themselves."""
        rows = np.flatnonzero(~self.is_uneventful)
        return rows, self.chosen(rows)

    @cached_property
    def was_checked(self) -> Bools:
        """Whether the check has put a copy of each transaction back."""
        copies = self._column("half_copies")
        is_checked = pc.greater(pc.struct_field(pc.list_flatten(copies), "checks_count"), 0)
        return self.any_owner(np.asarray(pc.list_parent_indices(copies).filter(is_checked)))

    @cached_property
    def has_marks(self) -> Bools:
        """Whether each transaction has an op mark."""
        return self._lengths("op_marks") > 0

    @cached_property
    def has_finals(self) -> Bools:
        """Whether each transaction has a COMMIT record."""
        return self._lengths("final_records") > 0

    @cached_property
    def is_direct(self) -> Bools:
        """Whether an op mark of each transaction names its original, or a record that is not one of its copies.

        The op mark of an uneventful one does: its only copy is the original.
        """
        rows, eventful = self.eventful
        found = self.has_marks.copy()
        found[rows] = eventful.any_of(eventful.marks, eventful.names_original)
        return found

    def any_of(self, records: Records, chosen: Bools) -> Bools:
        """Whether any chosen record belongs to each transaction."""
        return self.any_owner(records.owner[chosen])

    def any_owner(self, owners: Int64s) -> Bools:
        """Whether each transaction is among some owners of records."""
        found = np.zeros(self.count, np.bool_)
        found[owners] = True
        return found

    def count_of(self, records: Records) -> Int64s:
        """The number of records of each transaction."""
        return np.bincount(records.owner, minlength=self.count).astype(np.int64)

    @property
    def has_topic(self) -> Bools:
        """Whether the topic of each transaction is among those of its store; true where either is unknown."""
        return (self.words("topic")[1] < 0) | self.topic_among(lambda one: one.topics)

    def topic_among(self, topics: Callable[[StoreEvidence], frozenset[str] | None]) -> Bools:
        """Whether the topic of each transaction is among some topics of its store; true where those are unknown."""
        found = np.zeros(self.count, np.bool_)
        for number, one in enumerate(self.stores.values()):
            is_here = self.store == number
            listed = topics(one)
            if listed is not None:
                is_here &= self._has_word("topic", listed)
            found |= is_here
        return found

    # --- records ------------------------------------------------------------------------------------------------------

    @cached_property
    def copies(self) -> Records:
        """The half copies."""
        return self._records("half_copies")

    @cached_property
    def marks(self) -> Records:
        """The op marks."""
        return self._records("op_marks")

    @cached_property
    def finals(self) -> Records:
        """The COMMIT records."""
        return self._records("final_records")

    @cached_property
    def discards(self) -> Records:
        """The discard copies."""
        return self._records("discard_copies")

    def named_among(self, records: Records, chosen: Bools) -> Bools:
        """Which of the chosen COMMIT records name one of some records of their transaction, in the same store."""
        finals = self.finals
        is_known = np.zeros(len(finals), np.bool_)
        rows = np.flatnonzero(chosen & (finals.named >= 0))
        mine = np.flatnonzero(self.any_owner(finals.owner[rows])[records.owner])
        places, codes = np.unique(np.concatenate([records.offset[mine], finals.named[rows]]), return_inverse=True)
        own = self._group(records)[mine] * len(places) + codes[: len(mine)]
        is_known[rows] = are_among(self._group(finals)[rows] * len(places) + codes[len(mine):], own)
        return is_known

    @cached_property
    def named_twice(self) -> Int64s:
        """The transactions of which two COMMIT records of one store name the same copy."""
        finals = self.finals
        rows = np.flatnonzero(finals.named >= 0)
        rows = rows[np.lexsort((finals.named[rows], self._group(finals)[rows]))]
        group, named = self._group(finals)[rows], finals.named[rows]
        is_same = (group[1:] == group[:-1]) & (named[1:] == named[:-1])
        owners: Int64s = finals.owner[rows[1:][is_same]]
        return owners

    @cached_property
    def next_copy(self) -> Int64s:
        """For each half copy the row of the next copy of its transaction in the same store; -1 for the newest."""
        copies = self.copies
        rows = np.arange(len(copies), dtype=np.int64)
        if not len(copies):
            return rows
        follows = (copies.owner[1:] == copies.owner[:-1]) & (copies.store[1:] == copies.store[:-1])
        return np.append(np.where(follows, rows[1:], -1), -1)

    @cached_property
    def copy_after_mark(self) -> Int64s:
        """For each op mark the row of the copy after the one that it names; -1 for the newest copy."""
        if not len(self.copies):
            return np.full(len(self.marks), -1, np.int64)
        named = self.copy_of_mark
        following: Int64s = np.where(named >= 0, self.next_copy[named], -1)
        return following

    @cached_property
    def names_original(self) -> Bools:
        """Which op marks name an original half message, or a record that is not a copy of their transaction."""
        if not len(self.copies):
            return np.ones(len(self.marks), np.bool_)
        named = self.copy_of_mark
        is_original: Bools = (named < 0) | (self.copies.checks[named] == 0)
        return is_original

    @cached_property
    def names_other_slot(self) -> Bools:
        """Which op marks name a half copy that is in another slot of the half queue than its queue offset."""
        copies, marks = self.copies, self.marks
        shifted: Bools = np.zeros(len(copies) + 1, np.bool_)
        for number, name in enumerate(self.names):
            one = self.stores.get(name)
            if one is not None and len(one.shifted_halves):
                shifted[:-1] |= (copies.store == number) & np.isin(copies.offset, one.shifted_halves)
        found: Bools = shifted[self.copy_of_mark] if len(marks) else np.zeros(0, np.bool_)
        return found

    @cached_property
    def copy_of_mark(self) -> Int64s:
        """For each op mark the row of the half copy that it names; -1 if that copy is not one of its transaction."""
        copies, marks = self.copies, self.marks
        if not len(copies):
            return np.full(len(marks), -1, np.int64)
        # Most transactions have one copy: only the other ones need a search.
        first = np.minimum(np.searchsorted(copies.owner, marks.owner), len(copies) - 1)
        is_first = (copies.owner[first] == marks.owner) & (copies.store[first] == marks.store)
        is_first &= copies.queue_offset[first] == marks.half
        found: Int64s = np.where(is_first, first, -1)
        has_more = self.count_of(copies) > 1
        rows = np.flatnonzero(has_more[marks.owner])
        if len(rows):
            among = np.flatnonzero(has_more[copies.owner])
            found[rows] = self._named_copies(among, rows)
        return found

    def _named_copies(self, among: Int64s, rows: Int64s) -> Int64s:
        """For some op marks the row of the half copy that each one names, among some copies."""
        copies, marks = self.copies, self.marks
        places, codes = np.unique(np.concatenate([copies.queue_offset[among], marks.half[rows]]), return_inverse=True)
        keys = self._group(copies)[among] * len(places) + codes[: len(among)]
        wanted = self._group(marks)[rows] * len(places) + codes[len(among):]
        order = np.argsort(keys, kind="stable")
        at = np.minimum(np.searchsorted(keys[order], wanted), len(order) - 1)
        named: Int64s = np.where(keys[order][at] == wanted, among[order[at]], -1)
        return named

    def between(self, records: Records, owner: Int64s, store: Int64s, low: Int64s, high: Int64s) -> Int64s:
        """The number of records of a transaction in a store after one commit-log offset, up to another, inclusive.

        Shape: one value for each of the given transactions, with their stores and offsets.
        """
        counts: Int64s = np.maximum(np.subtract(*self._span(records, owner, store, low, high)), 0)
        return counts

    def last_time_between(
        self, records: Records, owner: Int64s, store: Int64s, low: Int64s, high: Int64s
    ) -> Int64s:
        """When the last of the records of `between` was stored; -1 without any."""
        end, first = self._span(records, owner, store, low, high)
        mine = self.any_owner(owner)[records.owner]
        times: Int64s = np.append(records.time_ms[mine], -1)[np.where(end > first, end - 1, -1)]
        return times

    def _span(
        self, records: Records, owner: Int64s, store: Int64s, low: Int64s, high: Int64s
    ) -> tuple[Int64s, Int64s]:
        """Return the numbers after the last record of `between`, and of the first, among those of the transactions."""
        mine = self.any_owner(owner)[records.owner]
        offsets = np.unique(records.offset[mine])
        size = len(offsets) + 1
        keys = self._group(records)[mine] * size + np.searchsorted(offsets, records.offset[mine])
        base = (owner * len(self.names) + store) * size
        first = np.searchsorted(keys, base + np.searchsorted(offsets, low, "right"))
        end = np.searchsorted(keys, base + np.searchsorted(offsets, high, "right"))
        return end.astype(np.int64), first.astype(np.int64)

    @cached_property
    def _flag_owners(self) -> dict[str, Int64s]:
        """The transactions with each flag."""
        lists = self._column("flags")
        encoded = pc.list_flatten(lists).dictionary_encode()
        owners, numbers = np.asarray(pc.list_parent_indices(lists)), int64s(encoded.indices)
        return {name: owners[numbers == number] for number, name in enumerate(encoded.dictionary.to_pylist())}

    def _has_word(self, name: str, words: Collection[str]) -> Bools:
        """Whether each transaction has one of some words in a column of few words."""
        known, numbers = self.words(name)
        is_wanted = np.array([word in words for word in known] + [False], np.bool_)  # null is number -1
        found: Bools = is_wanted[numbers]
        return found

    def words(self, name: str) -> tuple[list[str], Int64s]:
        """The different words of a column of few words, and the number of that of each transaction; -1 for null."""
        if name not in self._words:
            encoded = self._column(name).dictionary_encode()
            self._words[name] = encoded.dictionary.to_pylist(), int64s(encoded.indices)
        return self._words[name]

    def _lengths(self, name: str) -> Int64s:
        """How many values a list of each transaction has."""
        return int64s(pc.list_value_length(self._column(name)), 0)

    def _group(self, records: Records) -> Int64s:
        return records.owner * len(self.names) + records.store

    def _column(self, name: str) -> pa.Array:
        column = self.rows[name]
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()

    def _store_numbers(self, column: pa.Array) -> Int64s:
        if len(self.names) == 1:
            return np.zeros(len(column), np.int64)
        return int64s(pc.index_in(column, value_set=pa.array(self.names, pa.string())))

    def _records(self, name: str) -> Records:
        lists = self._column(name)
        flat = pc.list_flatten(lists)
        owner = np.asarray(pc.list_parent_indices(lists)).astype(np.int64)
        names = [one.name for one in flat.type]

        def integers(column: str) -> Int64s:
            if column not in names:
                return np.full(len(flat), _UNKNOWN, np.int64)
            return int64s(pc.struct_field(flat, column), _UNKNOWN)

        store, offset = self._store_numbers(pc.struct_field(flat, "store")), integers("commit_log_offset")
        values = (
            owner, store, integers("queue_offset"), offset, integers("store_time_ms"), integers("checks_count"),
            integers("half_queue_offset"), integers("prepared_transaction_offset"),
        )
        is_next = (owner[1:] > owner[:-1]) | ((store[1:] == store[:-1]) & (offset[1:] >= offset[:-1]))
        if is_next.all():  # as in nearly all stores
            return Records(*values)
        order = np.lexsort((offset, store, owner))
        return Records(*(one[order] for one in values))
