"""Collects the witnesses of one store, record by record, from several lookups: each record once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.log.op_messages import OFFSET_MARKS, marks_of, op_findings
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.torn_properties import may_be_unreadable
from rmqtx.readers.log.transaction_records import JUDGED_FINALS, JUDGED_HALVES, witnesses_of
from rmqtx.readers.model.columns import Bools, Int64s, IntegerSet, int64s, rows_in_order, rows_where
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.identities import identities, ids_of, keys_of
from rmqtx.readers.model.tables import MARKS
from rmqtx.readers.store.store import HALF_TOPIC, WAITING_TOPICS
from rmqtx.verdicts.model.witnesses import Witnesses, op_numbers

_SCHEMAS = {
    "halves": JUDGED_HALVES, "finals": JUDGED_FINALS, "discards": JUDGED_HALVES, "offset_marks": OFFSET_MARKS,
}


class Names(NamedTuple):
    """The names of a record: UNIQ_KEY, identity, real topic."""

    transaction_id: str | None
    identity: str | None
    topic: str | None


class CollectedWitnesses:
    """Half copies, op marks, finals and discard copies of one store.

    Shape: `findings` are of op messages that cannot be read. `unreadable`: blocks with copies of which id, group or
           real topic cannot be read. An identity is a UNIQ_KEY, or its replacement.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.findings: list[Finding] = []
        self.unreadable: list[Block] = []
        self._seen = np.empty(0, np.int64)
        self._rows: dict[str, list[pa.RecordBatch]] = {name: [] for name in _SCHEMAS}
        self._marks: list[pa.RecordBatch] = []
        self._names: pa.Array | None = None
        #: How many batches have only records of these identities.
        self._restricted = dict.fromkeys(_SCHEMAS, 0)

    def restrict(self, names: Iterable[str]) -> None:
        """Keep only the records of some identities from now on: keys with the same hash add others."""
        self._names, self._restricted = pa.array(names, pa.string()), dict.fromkeys(_SCHEMAS, 0)

    def _drop_others(self, name: str) -> None:
        """Drop the records of other identities among the batches that were added since the last time."""
        begin, batches = self._restricted[name], self._rows[name]
        if self._names is None or begin == len(batches):
            return
        table = pa.Table.from_batches(batches[begin:], _SCHEMAS[name])
        chosen = pc.is_in(identities(table), value_set=self._names).combine_chunks()
        ends = np.cumsum([rows.num_rows for rows in batches[begin:]]).tolist()
        batches[begin:] = [
            rows_where(rows, chosen.slice(end - rows.num_rows, rows.num_rows))
            for rows, end in zip(batches[begin:], ends, strict=True)
        ]
        self._restricted[name] = len(batches)

    def add(self, block: Block) -> None:
        """Keep the witnesses of a block, each record once."""
        block = block.take(~self.has(block.commit_log_offsets))
        self._seen = np.sort(np.concatenate([self._seen, block.commit_log_offsets]), kind="stable")
        found = witnesses_of(block, self.root)
        for name, rows in found.items():
            if name == "ops":
                self.add_ops(rows)
            else:
                self._rows[name].append(rows)
        if any(may_be_unreadable(found[name]) for name in ("halves", "discards") if name in found):
            self.unreadable.append(block)

    def has(self, offsets: Int64s) -> Bools:
        """Return whether the record at each commit-log offset was added before."""
        places = np.searchsorted(self._seen, offsets)
        found: Bools = np.append(self._seen, -1)[places] == offsets
        return found

    def add_ops(self, rows: pa.RecordBatch, wanted: IntegerSet | None = None) -> None:
        """Keep the marks of op messages. `wanted`: only those of these half queue offsets."""
        self.findings.extend(op_findings(rows, self.root))
        self._marks.append(marks_of(rows, wanted))

    def named_numbers(self) -> tuple[Int64s, Int64s]:
        """Return the half queue offsets that the kept op marks name, and the places of their op messages."""
        marks = pa.Table.from_batches(self._marks, MARKS)
        return int64s(marks["half_queue_offset"], -1), int64s(marks["commit_log_offset"])

    def table(self, name: str) -> pa.Table:
        """Return all collected `halves`, `finals`, `discards` or `offset_marks`."""
        self._drop_others(name)
        return pa.Table.from_batches(self._rows[name], _SCHEMAS[name])

    def _in_order(self, name: str, names: list[str] | None) -> pa.Table:
        """Return the rows of some identities, or all, in log order."""
        # Most batches are ranges of the log: if these are put in order, no row is copied.
        self._drop_others(name)
        self._rows[name].sort(key=lambda rows: int(rows["commit_log_offset"][0].as_py()) if rows.num_rows else 0)
        table = self.table(name) if names is None else self.chosen(name, names)
        return rows_in_order(table, ["commit_log_offset"])

    def chosen(self, name: str, names: Iterable[str]) -> pa.Table:
        """Return only the rows of some identities: keys with the same hash add others."""
        table = self.table(name)
        return rows_where(table, pc.is_in(identities(table), value_set=pa.array(list(names), pa.string())))

    def named_by(self, identities_offsets: Mapping[str, int | None]) -> dict[str, list[Names]]:
        """Return the records for ids, message ids or business keys; the values are the offsets of records with that id.

        Shape: for each known one, its records.
        """
        by_id = {word: name for name in identities_offsets for word in ids_of(name)}
        by_offset = {offset: name for name, offset in identities_offsets.items() if offset is not None}
        named: dict[str, list[Names]] = {}
        for kind in ("halves", "discards", "finals"):
            table = self.table(kind)
            columns = ["transaction_id", "keys", "commit_log_offset"]
            columns += ["topic"] if kind == "finals" else ["real_topic", "lone_message_id"]
            for row, identity in zip(table.select(columns).to_pylist(), identities(table).to_pylist(), strict=True):
                topic = row["topic"] if kind == "finals" else row["real_topic"]
                found = {by_id[one] for one in (row["transaction_id"], row.get("lone_message_id")) if one in by_id}
                found.update(key for key in keys_of(row["keys"]) if key in identities_offsets)
                if row["commit_log_offset"] in by_offset:
                    found.add(by_offset[row["commit_log_offset"]])
                for name in found:
                    named.setdefault(name, []).append(Names(row["transaction_id"], identity, topic))
        return named

    def kept(self, names: Iterable[str] | None = None) -> Witnesses:
        """Return the witnesses of some identities, or of all, in log order, as a scan would find them."""
        names = None if names is None else list(names)
        halves, finals, discards, offset_marks = (
            self._in_order(name, names) for name in ("halves", "finals", "discards", "offset_marks")
        )
        marks = pa.Table.from_batches(self._marks, MARKS)
        marks = marks.filter(pc.is_in(marks["half_queue_offset"], value_set=pc.unique(op_numbers(halves).drop_null())))
        place = ["commit_log_offset", "half_queue_offset", "repetition"]
        marks = rows_in_order(marks, place)
        places = np.stack([int64s(marks[name]) for name in place])
        again = (np.diff(places) == 0).all(axis=0)  # an op that was read twice, by two lookups
        marks = marks.filter(pa.array(np.append(np.ones(min(1, marks.num_rows), np.bool_), ~again)))
        return Witnesses(halves, marks, finals, discards, offset_marks)


def incomplete_chains(halves: pa.Table) -> list[str]:
    """Return the transactions that lack earlier half copies: a chain begins with a copy that was never checked.

    A put-back after n checks has n copies before it; a resumed copy has a count of 0, an original none.
    """
    is_copy = np.asarray(pc.is_valid(halves["checks_count"]))
    if not is_copy.any():
        return []
    # numpy rather than Table.group_by, whose import of pyarrow.acero loads datasets, file systems and ssl
    by_id = identities(halves).combine_chunks().dictionary_encode("encode")
    ids, checks = int64s(by_id.indices), int64s(halves["checks_count"], 0)
    count = len(by_id.dictionary)
    counts_max = np.zeros(count, np.int64)
    np.maximum.at(counts_max, ids, checks)
    _, firsts = np.unique((checks - checks.min()) * count + ids, return_index=True)
    distinct_counts = np.bincount(ids[firsts], minlength=count)
    has_original, has_copy = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    has_original[ids[~is_copy]] = has_copy[ids[is_copy]] = True
    without = has_copy & ((distinct_counts <= counts_max) | ~has_original)
    names: list[str] = by_id.dictionary.filter(pa.array(without)).to_pylist()
    return names


def lacks_diverted(halves: pa.Table) -> bool:
    """Whether a transaction has more half copies that returned from a delay or timer than records that were diverted.

    Each of them returns once, with the number of its checks; its real topic is then the half topic.
    """
    is_returned = np.asarray(pc.fill_null(pc.equal(halves["real_topic"], HALF_TOPIC), False))
    is_returned &= np.asarray(pc.equal(halves["topic"], HALF_TOPIC))
    if not is_returned.any():
        return False
    is_diverted = np.asarray(pc.is_in(halves["topic"], value_set=pa.array(WAITING_TOPICS)))
    ids = int64s(identities(halves).combine_chunks().dictionary_encode("encode").indices)
    _, keys = np.unique(np.stack([ids, int64s(halves["checks_count"], -1)]), axis=1, return_inverse=True)
    keys = keys.reshape(-1)
    returned, diverted = (np.bincount(keys[one], minlength=len(keys)) for one in (is_returned, is_diverted))
    return bool((returned > diverted).any())
