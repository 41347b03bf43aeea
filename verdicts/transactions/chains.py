"""Groups witnesses by transaction: half copies, op marks, finals and discard copies are joined into chains.

A transaction is the chain of half copies with one UNIQ_KEY, PGROUP and REAL_TOPIC (docs/formats/half_and_op.md#chains).
Copies of a half without UNIQ_KEY are identified by the values that a put-back keeps (born time and host, body, keys),
unless two originals share them: then each copy is judged by its own offset. A final belongs to the transaction of the
copy that it names, else to that of its id; an op mark belongs to every copy with the queue offset that it names. A mark
that names a commit-log offset belongs to the half there, else to the transaction of its id; a ROLLBACK record without
its prepared record is a transaction of its own. The rules of the states are in `judged_copies.py`, `found_states.py`
and `judgement.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.log.header_rules import has_port
from rmqtx.readers.log.op_messages import as_marks, is_rocksdb_mark
from rmqtx.readers.model.columns import Bools, Int64s, coalesced, int64s
from rmqtx.readers.model.tables import DISCARD_COPY, FINAL_RECORD, HALF_COPY, OP_MARK
from rmqtx.readers.store.store import DISCARD_TOPIC, WAITING_TOPICS
from rmqtx.verdicts.model.verdict_inputs import StoreView
from rmqtx.verdicts.model.witnesses import PLACE, Witnesses, are_repeated, op_numbers

_QUEUE_SHIFT = 47
_HIGHEST = np.iinfo(np.int64).max


def _numbers_of(values: pa.ChunkedArray, among: pa.Array) -> Int64s:
    return int64s(pc.index_in(values, value_set=among))


class Group:
    """The rows of one witness table, sorted by transaction and then in log order.

    Shape: `number` is the transaction of each row; the rows of transaction t are `rows[starts[t]:starts[t + 1]]`.
           `stores`: those of all groups.
    """

    def __init__(
        self, table: pa.Table, number: Int64s, rank: Int64s, count: int, stores: list[str], ties: Int64s | None = None
    ) -> None:
        """`rank`: the place of each row in the log; `ties`: the place among rows of one record."""
        order = np.argsort(number, kind="stable")
        steps = np.diff(rank[order])
        falls = steps < 0
        if ties is not None:
            falls |= (steps == 0) & (np.diff(ties[order]) < 0)
        if (falls & (np.diff(number[order]) == 0)).any():  # the rows of a transaction are not in log order
            order = np.lexsort((rank, number) if ties is None else (ties, rank, number))
        table, number, rank = _taken(table, order), number[order], rank[order]
        self.stores = stores
        self.table = table
        self.number = number
        self.rank = rank
        self.count = count
        self.counts = np.bincount(self.number, minlength=count).astype(np.int64)
        self.starts = np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int64)

    def __len__(self) -> int:
        return len(self.number)

    def integers(self, name: str, missing: int = -1) -> Int64s:
        """A column as native integers, in the group's order."""
        return int64s(self.table[name], missing)

    def any_of(self, rows: Bools) -> Bools:
        """Return for each transaction whether any of its rows is chosen."""
        return np.bincount(self.number[rows], minlength=self.count) > 0

    def count_of(self, rows: Bools) -> Int64s:
        """Return for each transaction the number of its chosen rows."""
        return np.bincount(self.number[rows], minlength=self.count).astype(np.int64)

    def highest(self, values: Int64s, none: int) -> Int64s:
        """Return for each transaction the highest value of its rows."""
        result = np.full(self.count, none, np.int64)
        np.maximum.at(result, self.number, values)
        return result

    def lowest(self, values: Int64s, none: int, rows: Bools | None = None) -> Int64s:
        """Return for each transaction the lowest value of its (chosen) rows."""
        result = np.full(self.count, none, np.int64)
        chosen = slice(None) if rows is None else rows
        np.minimum.at(result, self.number[chosen], values[chosen])
        return result

    @cached_property
    def first(self) -> Int64s:
        """Row of the first witness of each transaction; undefined for transactions without one."""
        return np.minimum(self.starts[:-1], max(0, len(self) - 1))

    @cached_property
    def last(self) -> Int64s:
        """Row of the last witness of each transaction; undefined for transactions without one."""
        return np.maximum(self.starts[1:] - 1, 0)

    @cached_property
    def has(self) -> Bools:
        """Whether each transaction has a witness of this kind."""
        return self.counts > 0

    @cached_property
    def first_rank(self) -> Int64s:
        """Rank of the first witness of each transaction; the highest number without one."""
        return self.lowest(self.rank, _HIGHEST)

    @cached_property
    def last_rank(self) -> Int64s:
        """Rank of the last witness of each transaction; -1 without one."""
        return self.highest(self.rank, -1)

    def newest(self, values: Int64s, none: int = 0) -> Int64s:
        """Return the value of the last witness of each transaction."""
        return np.where(self.has, values[self.last] if len(self) else none, none)

    def newest_is(self, rows: Bools) -> Bools:
        """Return which transactions have one of the given rows as their last witness."""
        return self.has & rows[self.last] if len(self) else np.zeros(self.count, np.bool_)

    def are_in(self, stores: Collection[str]) -> Bools:
        """Return which rows are in one of some stores."""
        if len(self.stores) <= 1 or not stores:
            return np.full(len(self), bool(set(self.stores) & set(stores)))
        return np.asarray(pc.is_in(self.table["store"], value_set=pa.array(stores, pa.string())))

    def at(self, name: str, rows: Int64s, has: Bools | None = None) -> pa.Array:
        """A column at one row per transaction, null where the transaction has none."""
        mask = ~(self.has if has is None else has)
        column = self.table[name]
        if not len(self):
            return pa.nulls(len(rows), column.type)
        taken = column.take(pa.array(rows, mask=mask))
        return pa.concat_arrays(taken.chunks) if isinstance(taken, pa.ChunkedArray) else taken

    def lists(self, kind: pa.DataType, rows: Bools | None = None) -> pa.Array:
        """The (chosen) rows as evidence, one list per transaction."""
        fields = list(kind.value_type)
        table, starts = self.table, self.starts
        if rows is not None and not rows.all():
            table, starts = table.filter(pa.array(rows)), np.concatenate([[0], np.cumsum(self.count_of(rows))])
        arrays = [table[field.name].combine_chunks().cast(field.type) for field in fields]
        names = [field.name for field in fields]
        if "checks_count" in names:  # a copy without the property was never checked
            arrays[names.index("checks_count")] = pc.fill_null(arrays[names.index("checks_count")], 0)
        structs = pa.StructArray.from_arrays(arrays, fields=fields)
        return pa.ListArray.from_arrays(pa.array(starts.astype(np.int32)), structs, type=kind)


def _taken(table: pa.Table, rows: Int64s) -> pa.Table:
    """Return some rows of a table; the table itself if they are all of them in order, since a copy takes time."""
    is_whole = len(rows) == table.num_rows and bool((rows == np.arange(len(rows))).all())
    return table if is_whole else table.take(pa.array(rows))


@dataclass(frozen=True, slots=True)
class _Places:
    """The places of records, searchable by store number and position."""

    stores: Int64s
    positions: Int64s
    owners: Int64s

    def find(self, stores: Int64s, positions: Int64s) -> tuple[Int64s, Int64s]:
        """Return all matches of the given places: (row of the given place, owner)."""
        asked: list[Int64s] = []
        owners: list[Int64s] = []
        for store in np.unique(stores).tolist():
            here = np.flatnonzero(self.stores == store)
            here = here[np.argsort(self.positions[here], kind="stable")]
            rows = np.flatnonzero(stores == store)
            low = np.searchsorted(self.positions[here], positions[rows], "left")
            high = np.searchsorted(self.positions[here], positions[rows], "right")
            counts = high - low
            asked.append(np.repeat(rows, counts))
            steps = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
            owners.append(self.owners[here[np.repeat(low, counts) + steps]])
        empty = np.empty(0, np.int64)
        return np.concatenate([empty, *asked]), np.concatenate([empty, *owners])


def _lone_names(copies: pa.Table, finals: pa.Table) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Return the replacement for the id of copies and finals without UNIQ_KEY: the fingerprint of one original.

    If originals share a fingerprint, it is each copy's own message id, and for a final that of the copy it names.
    """
    prints = copies["fingerprint"]
    if prints.null_count == len(prints) and finals["fingerprint"].null_count == finals.num_rows:
        return prints, finals["fingerprint"]
    original = pc.and_(
        pc.is_valid(prints), pc.and_(pc.is_null(copies["checks_count"]), pc.is_null(copies["prepared_queue_offset"]))
    )
    counts = pc.value_counts(prints.filter(pc.and_(original, pc.not_equal(copies["topic"], DISCARD_TOPIC))))
    shared = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")

    def names(table: pa.Table, own: str) -> pa.ChunkedArray:
        chosen = pc.if_else(pc.is_in(table["fingerprint"], value_set=shared), table[own], table["fingerprint"])
        return pc.binary_join_element_wise("", chosen, "\0")  # no UNIQ_KEY has this beginning

    return names(copies, "lone_message_id"), names(finals, "lone_prepared_id")


def _transaction_numbers(copies: pa.Table, finals: pa.Table) -> tuple[Int64s, Int64s, int]:
    """Return the transaction of each copy and of each final, and the number of transactions.

    A final has the id of its half message, which determines its transaction; only if several groups or topics use one
    id, its own group and topic decide, and then the copy that it names.
    """
    copy_names, final_names = _lone_names(copies, finals)
    ids = pa.chunked_array(
        [
            *pc.coalesce(copies["transaction_id"], copy_names).chunks,
            *pc.coalesce(finals["transaction_id"], final_names).chunks,
        ],
        pa.string(),
    ).combine_chunks()
    numbers = int64s(ids.dictionary_encode().indices)
    copy_numbers, final_numbers = numbers[: copies.num_rows], numbers[copies.num_rows :]
    count = int(numbers.max(initial=-1)) + 1
    groups, topics = _codes(copies["producer_group"]), _codes(copies["real_topic"])
    kinds = groups * (1 << 32) + topics
    # A commit of a diverted half message leaves copies without a real topic (5.5.0), which distinguish nothing.
    telling = np.flatnonzero((groups >= 0) & (topics >= 0))
    lowest = np.full(count, np.iinfo(np.int64).max)
    highest = np.full(count, -1, np.int64)
    np.minimum.at(lowest, copy_numbers[telling], kinds[telling])
    np.maximum.at(highest, copy_numbers[telling], kinds[telling])
    is_shared = (highest >= 0) & (lowest != highest)
    if is_shared.any():
        copy_numbers, final_numbers, count = _numbers_of_shared_ids(copies, finals, numbers, is_shared)
    return copy_numbers, final_numbers, count


def _codes(column: pa.ChunkedArray) -> Int64s:
    """Return a number for each text; -1 for null."""
    return int64s(column.combine_chunks().dictionary_encode().indices)


def _numbers_of_shared_ids(
    copies: pa.Table, finals: pa.Table, numbers: Int64s, is_shared: Bools
) -> tuple[Int64s, Int64s, int]:
    """Return the transaction of each copy and final, and their number, where groups or topics share an id.

    There a transaction is identified by id, group and real topic.
    """
    count = copies.num_rows
    copy_numbers, final_numbers = numbers[:count].copy(), numbers[count:].copy()
    following = len(is_shared)
    by_chain: dict[tuple[int, str | None, str | None], int] = {}
    by_place: dict[tuple[str, int], int] = {}
    rows = np.flatnonzero(is_shared[copy_numbers])
    columns = ["producer_group", "real_topic", "store", "commit_log_offset"]
    for row, entry in zip(rows.tolist(), copies.select(columns).take(pa.array(rows)).to_pylist(), strict=True):
        chain = (int(numbers[row]), entry["producer_group"], entry["real_topic"])
        if chain not in by_chain:
            by_chain[chain], following = following, following + 1
        copy_numbers[row] = by_place[entry["store"], entry["commit_log_offset"]] = by_chain[chain]
    rows = np.flatnonzero(is_shared[final_numbers])
    columns = ["producer_group", "topic", "store", "prepared_transaction_offset"]
    for row, entry in zip(rows.tolist(), finals.select(columns).take(pa.array(rows)).to_pylist(), strict=True):
        named = by_place.get((entry["store"], entry["prepared_transaction_offset"]))
        chain = (int(numbers[count + row]), entry["producer_group"], entry["topic"])
        number = named if named is not None else by_chain.get(chain)
        if number is not None:
            final_numbers[row] = number
    used, compact = np.unique(np.concatenate([copy_numbers, final_numbers]), return_inverse=True)
    return compact[:count], compact[count:], len(used)


def _ids(table: pa.Table, lone: str) -> list[str | None]:
    ids: list[str | None] = pc.coalesce(table["transaction_id"], table[lone]).to_pylist()
    return ids


class Chains:
    """Witnesses grouped by transaction.

    Shape: `count` transactions; `halves`, `marks`, `finals`, `discards` as groups; `half_of_mark` joins the two.
           `marks` include the `offset_marks`, which are also a separate group, for their columns. `views`: what is
           known of all stores of the audit, by name; `stores`: those with witnesses.
    Order: transactions in the order of their first half copy, discard copy or final; last those of which only a
           ROLLBACK record is left.
    """

    def __init__(self, witnesses: Witnesses, views: Mapping[str, StoreView]) -> None:
        self.views = views
        self.stores: list[str] = pc.unique(
            pa.chunked_array(
                [chunk for table in (witnesses.halves, witnesses.discards, witnesses.finals, witnesses.marks,
                                     witnesses.offset_marks)
                 for chunk in table["store"].chunks], pa.string()
            )
        ).to_pylist()
        half_count = witnesses.halves.num_rows
        copies = pa.concat_tables([witnesses.halves, witnesses.discards])
        copy_numbers, final_numbers, self.count = _transaction_numbers(copies, witnesses.finals)
        copy_stores = self._store_numbers(copies)
        copy_numbers, final_numbers = self._with_named_copies(
            copies, copy_numbers, copy_stores, witnesses.finals, final_numbers
        )
        half_stores, queue_places = copy_stores[:half_count], self._queue_places(witnesses.halves)
        places = _Places(half_stores, queue_places, np.arange(half_count))
        mark_rows, mark_halves = places.find(
            self._store_numbers(witnesses.marks),
            int64s(witnesses.marks["queue_id"]) * (1 << _QUEUE_SHIFT) + int64s(witnesses.marks["half_queue_offset"]),
        )
        attached = _taken(witnesses.marks, mark_rows)
        mark_numbers = copy_numbers[mark_halves]
        offset_marks, owners, numbers = self._with_owners(witnesses, copies, half_stores, copy_numbers, final_numbers)
        if offset_marks.num_rows:
            attached = pa.concat_tables([attached, as_marks(offset_marks)])
            mark_halves, mark_numbers = np.append(mark_halves, owners), np.append(mark_numbers, numbers)
        attached = attached.append_column("_half", pa.array(mark_halves))

        self.halves = self._group(
            witnesses.halves.append_column("_row", pa.array(np.arange(half_count))), copy_numbers[:half_count]
        )
        self.discards = self._group(witnesses.discards, copy_numbers[half_count:])
        self.finals = self._group(witnesses.finals, final_numbers)
        # An audit of several files may store the marks of one op message apart.
        self.marks = self._group(attached, mark_numbers, int64s(attached["half_queue_offset"], -1))
        self.offset_marks = self._group(offset_marks, numbers)
        row_of = np.full(half_count + 1, -1, np.int64)
        row_of[self.halves.integers("_row")] = np.arange(half_count)
        #: For each row of `marks`, the row of `halves` that it marks; -1 if that copy is no longer in the log.
        self.half_of_mark: Int64s = row_of[self.marks.integers("_half")]

    def _with_owners(
        self, witnesses: Witnesses, copies: pa.Table, half_stores: Int64s, copy_numbers: Int64s, final_numbers: Int64s
    ) -> tuple[pa.Table, Int64s, Int64s]:
        """Return the offset marks that belong to a transaction, the half row of each (-1: gone), and its transaction.

        An op message without half message and COMMIT record proves no outcome; it is left out.
        """
        marks, count = witnesses.offset_marks, witnesses.offset_marks.num_rows
        owners, numbers = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
        if not count:
            return marks, owners, numbers
        offsets = int64s(witnesses.halves["commit_log_offset"])
        places = _Places(half_stores, offsets, np.arange(len(offsets)))
        rows, found = places.find(self._store_numbers(marks), int64s(marks["half_commit_log_offset"]))
        # A mark with the id of another transaction was damaged: its half may be among other witnesses. If no other
        # record has the id, the id is damaged; then the place decides.
        halves = witnesses.halves.select(["transaction_id", "lone_message_id"]).take(pa.array(found))
        own = _ids(marks.select(["transaction_id", "lone_prepared_id"]).take(pa.array(rows)), "lone_prepared_id")
        same = np.array([a == b for a, b in zip(own, _ids(halves, "lone_message_id"), strict=True)], np.bool_)
        if not same.all():
            other_ids = {*_ids(copies, "lone_message_id"), *_ids(witnesses.finals, "lone_prepared_id")}
            by_place = np.array([name not in other_ids for name in own], np.bool_)
            # In RocksDB the broker removes the key of offset, topic and id: with another id there was no such key.
            same |= by_place & ~np.asarray(is_rocksdb_mark(marks.take(pa.array(rows))))
        rows, found = rows[same], found[same]
        owners[rows], numbers[rows] = found, copy_numbers[found]
        lost = np.flatnonzero(owners < 0)
        if len(lost):
            known = dict(zip(_ids(copies, "lone_message_id"), copy_numbers.tolist(), strict=True))
            known |= dict(zip(_ids(witnesses.finals, "lone_prepared_id"), final_numbers.tolist(), strict=True))
            some = marks.take(pa.array(lost))
            is_op = is_rocksdb_mark(some).to_pylist()
            for row, name, is_op_message in zip(lost.tolist(), _ids(some, "lone_prepared_id"), is_op, strict=True):
                if name not in known and not is_op_message:
                    known[name], self.count = self.count, self.count + 1
                numbers[row] = known.get(name, -1)
        kept = numbers >= 0
        return (marks, owners, numbers) if kept.all() else (marks.filter(pa.array(kept)), owners[kept], numbers[kept])

    def _with_named_copies(
        self, copies: pa.Table, copy_numbers: Int64s, copy_stores: Int64s, finals: pa.Table, final_numbers: Int64s
    ) -> tuple[Int64s, Int64s]:
        """Return the transactions of copies and finals; a final with an unknown id belongs to the copy it names."""
        named = int64s(finals["prepared_transaction_offset"])
        has_copy = np.zeros(self.count, np.bool_)
        has_copy[copy_numbers] = True
        lonely = np.flatnonzero(~has_copy[final_numbers] & (named != 0))
        if not len(lonely):
            return copy_numbers, final_numbers
        places = _Places(copy_stores, int64s(copies["commit_log_offset"]), copy_numbers)
        rows, owners = places.find(self._store_numbers(finals)[lonely], named[lonely])
        final_numbers = final_numbers.copy()
        final_numbers[lonely[rows]] = owners
        used, compact = np.unique(np.concatenate([copy_numbers, final_numbers]), return_inverse=True)
        self.count = len(used)
        return compact[: len(copy_numbers)], compact[len(copy_numbers) :]

    @staticmethod
    def _queue_places(halves: pa.Table) -> Int64s:
        """Return queue and op number as one number; -1 for a half without an op number."""
        numbers = int64s(op_numbers(halves))
        return np.where(numbers < 0, -1, int64s(halves["queue_id"]) * (1 << _QUEUE_SHIFT) + numbers)

    def _store_numbers(self, table: pa.Table) -> Int64s:
        if len(self.stores) == 1:  # as in most audits
            return np.zeros(table.num_rows, np.int64)
        return _numbers_of(table["store"], pa.array(self.stores, pa.string()))

    def _group(self, table: pa.Table, number: Int64s, ties: Int64s | None = None) -> Group:
        # In one store the log gives the order; between stores only their clocks. All parts of an audit have one order.
        order = "commit_log_offset" if len(self.views) <= 1 else "store_time_ms"
        return Group(table, number, int64s(table[order]), self.count, self.stores, ties)

    @cached_property
    def named_finals(self) -> Bools:
        """Rows of `finals` that are decisions: they name a copy.

        A final that waited for its delay is written again when it is due, with the COMMIT flag and no named copy; that
        is the delivery of a decision, not another one. Offset 0 is a reference only if the first record is a half.
        """
        prepared = self.finals.integers("prepared_transaction_offset")
        firsts = self.halves.lowest(self.halves.integers("commit_log_offset"), 1)
        is_decision: Bools = (prepared != 0) | (firsts[self.finals.number] == 0)
        return is_decision

    @cached_property
    def replicated_finals(self) -> Bools:
        """Rows of `finals` that are the same record in another store: the log of a slave is a copy of its master's.

        The reference is not compared: in a store without the half message it does not count as evidence.
        """
        replica = np.zeros(len(self.finals), np.bool_)
        rows = np.flatnonzero(self.finals.counts[self.finals.number] > 1) if len(self.stores) > 1 else replica[:0]
        if len(rows):
            places = np.stack([self.finals.number, *(self.finals.integers(name) for name in PLACE)], axis=1)[rows]
            replica[rows] = are_repeated(places)
        return replica

    @cached_property
    def diverted_halves(self) -> Bools:
        """Rows of `halves` that wait in another topic because of a delay."""
        waiting = pa.array(WAITING_TOPICS)
        diverted: Bools = np.asarray(pc.is_in(self.halves.table["topic"], value_set=waiting))
        return diverted

    @cached_property
    def commits_count(self) -> Int64s:
        """The number of COMMIT records that are decisions, without those that are the same record in another store."""
        return self.finals.count_of(self.named_finals & ~self.replicated_finals)

    @cached_property
    def has_rollback_record(self) -> Bools:
        """Whether a ROLLBACK record names a transaction."""
        return self.offset_marks.any_of(~np.asarray(is_rocksdb_mark(self.offset_marks.table)))

    def marks_per_copy(self, chosen: Bools) -> Int64s:
        """Return how many of the chosen op marks each half copy has."""
        return np.bincount(
            self.half_of_mark[chosen & (self.half_of_mark >= 0)], minlength=len(self.halves)
        ).astype(np.int64)

    @property
    def bearers(self) -> tuple[Group, ...]:
        """The groups whose records have columns of their transaction."""
        return self.halves, self.discards, self.finals, self.offset_marks

    def first_of(self, name: str) -> pa.Array:
        """Return a column that all `bearers` have, of the transaction's first witness."""
        return coalesced(group.at(name, group.first) for group in self.bearers)

    @cached_property
    def born_time_ms(self) -> pa.Array:
        """The producer's clock at each message."""
        return self.first_of("born_time_ms")

    @cached_property
    def half_store_time_ms(self) -> pa.Array:
        """The broker's clock at the first half copy."""
        return self.halves.at("store_time_ms", self.halves.first)

    @cached_property
    def real_topics(self) -> pa.Array:
        """The topic that each transaction's message is delivered to, as far as its records show."""
        halves, discards, finals, marks = self.bearers
        return coalesced(
            group.at(name, rows) for group, name, rows in (
                (halves, "real_topic", halves.first), (discards, "real_topic", discards.first),
                (finals, "topic", finals.last), (marks, "real_topic", marks.last),
            )
        )

    @cached_property
    def ids(self) -> pa.Array:
        """The id of each transaction."""
        halves, discards, finals, marks = self.bearers
        own = [(group, name) for group in (halves, discards) for name in ("transaction_id", "lone_message_id")]
        named = [(group, name) for group in (finals, marks) for name in ("transaction_id", "lone_prepared_id")]
        return coalesced(chain(
            self._ids_of_doubted(), (group.at(name, group.first) for group, name in (*own, *named))
        ))

    def _ids_of_doubted(self) -> Iterator[pa.Array]:
        """Yield the ids that other records have for a first half copy of which the own id is in doubt; null else."""
        halves, _, finals, marks = self.bearers
        if not len(halves):
            return
        places = {one.commit_log_offset for view in self.views.values() for one in view.doubtful_ids}
        if places:  # the index has another id for the copy
            doubted = halves.has & np.isin(halves.integers("commit_log_offset")[halves.first], list(places))
            yield finals.at("transaction_id", finals.last, doubted & finals.has)
        is_doubted = halves.has & ~has_port(halves.integers("store_host_number"))[halves.first]
        if is_doubted.any():  # the host that identifies the copy is damaged
            is_doubted &= np.asarray(pc.is_null(halves.at("transaction_id", halves.first)))
            for group in (finals, marks):
                yield group.at("lone_prepared_id", group.first, is_doubted & group.has)

    def have_record_in(self, store: str) -> Bools:
        """Return which transactions have a half copy, a decision or a discard copy in a store."""
        found: Bools = np.logical_or.reduce([group.any_of(group.are_in([store])) for group in self.bearers])
        return found

    def have_copy_in(self, store: str) -> Bools:
        """Return which transactions have a half copy in a store; of those that have none, which have another record.

        `store` is the first of these stores.
        """
        found, is_left = (np.zeros(self.count, np.bool_), np.ones(self.count, np.bool_))
        for group in self.bearers:
            found |= is_left & group.any_of(group.are_in([store]))
            is_left &= ~group.has
        return found

    def evidence(self, name: str) -> pa.Array:
        """A column of TRANSACTIONS with evidence lists."""
        if name == "half_copies":
            return self.halves.lists(HALF_COPY, ~self.diverted_halves)
        group, kind = {
            "op_marks": (self.marks, OP_MARK), "final_records": (self.finals, FINAL_RECORD),
            "discard_copies": (self.discards, DISCARD_COPY),
        }[name]
        return group.lists(kind)
