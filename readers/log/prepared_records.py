"""Find records of the designs before 4.3: prepared, COMMIT and ROLLBACK records in the real topic, by the system flag.

A prepared record (type 4) has the body; a decision appends a COMMIT record with a copy of it, or a ROLLBACK record
(type 12) without a body. Both name the prepared record by its commit-log offset, which may be 0. The queue offset of a
prepared record is the slot of the state table in 3.0 and 3.1, 0 in 3.2 to 4.2. (docs/formats/state_table.md#records,
docs/formats/prepared_records.md#end.)

Prepared, COMMIT and ROLLBACK records are also made as arrays in the form of state table and redo log.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from rmqtx.readers.log.properties import HALF_MARK, PRODUCER_GROUP, REAL_TOPIC
from rmqtx.readers.log.record_block import Block, end_in_zeros
from rmqtx.readers.log.record_layout import COMMIT, PREPARED, ROLLBACK, TRANSACTION_MASK
from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.model.java_hashes import java_hash
from rmqtx.readers.store.store import TRANSACTION_TOPICS, WAITING_TOPICS

#: Topics whose records never have a prepared or rollback type from 4.3 on: `CommitLog` removes the type.
_LATER_TOPICS = (*TRANSACTION_TOPICS, *WAITING_TOPICS)
#: Property with the cluster's name, which later brokers add to every message: 4.9.7 and 5.x do, 4.2.0 to 4.4.0 do not.
CLUSTER = "CLUSTER"
#: Rows of `OldRecords.values`.
_OFFSET, _LENGTH, _SECONDS, _NUMBER, _TYPE, _PREPARED_OFFSET, _HASH = range(7)
#: No producer group, or none that can be read: the hash that the slot of the record has is unknown.
NO_HASH = 1 << 40
UNDECIDED = 0


def is_prepared(block: Block) -> Bools:
    """Return which records are prepared records of the designs before 4.3.

    The header has no CRC, so no single field decides: a prepared record has a producer's properties and a body, and
    names no other record; the flags or the name may be damaged.
    """
    kinds, named = _kinds_and_names(block)
    has_body = block.body_lengths > 0
    found: Bools = (kinds == PREPARED) & (has_body | ~named)
    found |= (kinds == ROLLBACK) & has_body & ~named
    return _of_old_design(block, found, may_be_unreadable=(kinds == PREPARED) & has_body & ~named)


def is_rollback(block: Block) -> Bools:
    """Return which records are ROLLBACK records of the designs before 4.3: without a body, unlike client messages."""
    kinds, named = _kinds_and_names(block)
    has_body = block.body_lengths > 0
    certain = (kinds == ROLLBACK) & ~has_body
    found = _of_old_design(block, certain | (named & ~has_body), certain & named)
    rows = (found & ~certain).nonzero()[0]
    if len(rows):
        found[rows] = block.take(rows).properties.locate(HALF_MARK)[2]
    return found


def _kinds_and_names(block: Block) -> tuple[Int64s, Bools]:
    """Return the type of each record by its flags, and whether it names another record."""
    named: Bools = block.header("prepared_transaction_offset") != 0
    kinds: Int64s = block.sys_flag & TRANSACTION_MASK
    return kinds, named


def _of_old_design(
    block: Block, found: Bools, sure: Bools | None = None, may_be_unreadable: Bools | None = None
) -> Bools:
    """Return which found records have a producer's properties and are not in a transaction topic of later brokers.

    `sure`: records that several header fields identify, so that the properties may be damaged. `may_be_unreadable`:
    records for which properties that are not names and values are accepted.
    """
    rows = found.nonzero()[0]
    if len(rows):
        alone = block.take(rows)
        own = alone.properties.locate(PRODUCER_GROUP)[2] | alone.properties.locate(HALF_MARK)[2]
        if sure is not None:
            own = own | sure[rows]
        if may_be_unreadable is not None and not own.all():
            own = own | (may_be_unreadable[rows] & (alone.properties.malformed() | end_in_zeros(alone)))
        found[rows] = own & ~in_later_topics(alone)
    return found


def in_later_topics(block: Block) -> Bools:
    """Return which records are in a transaction topic of 4.3 or later, or were sent back by a consumer."""
    found: Bools = block.data[block.topic_starts] == ord("%")  # %RETRY%, %DLQ%
    for topic in _LATER_TOPICS:
        found |= block.topic_is(topic)
    return found


def prepared_names(alone: Block) -> pa.Array:
    """Return the identity of records without UNIQ_KEY: the offset message id of their prepared record.

    Null for records of later designs: a COMMIT record of 4.3 to 5.3.3 has REAL_TOPIC, and a later one the cluster's
    name.
    """
    kinds = alone.sys_flag & TRANSACTION_MASK
    prepared = is_prepared(alone)
    names = (kinds == COMMIT) | (alone.header("prepared_transaction_offset") != 0)
    naming = is_rollback(alone) | (
        ~prepared & names & ~alone.properties.locate(REAL_TOPIC)[2] & ~alone.properties.locate(CLUSTER)[2]
    )
    known = prepared | naming
    if not known.any():
        return pa.nulls(len(alone), pa.string())
    offsets = np.where(prepared, alone.commit_log_offsets, alone.header("prepared_transaction_offset"))
    places = np.where(known, np.arange(len(alone)), -1)
    return alone.message_ids_of(offsets).take(pa.array(places, mask=~known))


@dataclass(frozen=True)
class OldRecords:
    """Records with a transaction type, as rows of one array that can be sent between processes.

    Order: commit-log offset.
    Units: bytes; seconds of the broker's clock, as slots have them.
    """

    values: Int64s

    @staticmethod
    def none() -> OldRecords:
        """Return an instance without records."""
        return OldRecords(np.empty((7, 0), np.int64))

    @staticmethod
    def of_block(block: Block) -> OldRecords:
        """Return the records of a block that have a transaction type."""
        block = block.take(np.flatnonzero(block.sys_flag & TRANSACTION_MASK))
        if not len(block):
            return OldRecords.none()
        columns = [
            block.commit_log_offsets, block.header("length_bytes"), block.header("store_time_ms") // 1000,
            block.header("queue_offset"), block.sys_flag & TRANSACTION_MASK,
            block.header("prepared_transaction_offset"), _group_hashes(block),
        ]
        return OldRecords(np.stack([column.astype(np.int64) for column in columns]))

    @staticmethod
    def joined(parts: Iterable[OldRecords]) -> OldRecords:
        """Return the records of several parts, each offset once."""
        values = np.concatenate([OldRecords.none().values, *(part.values for part in parts)], axis=1)
        return OldRecords(values[:, np.unique(values[_OFFSET], return_index=True)[1]])

    def chosen(self, rows: Bools | Int64s) -> OldRecords:
        """Return the records of given rows."""
        return OldRecords(self.values[:, rows])

    def __len__(self) -> int:
        return int(self.values.shape[1])

    def _row(self, number: int) -> Int64s:
        row: Int64s = self.values[number]
        return row

    @property
    def offsets(self) -> Int64s:
        """Commit-log offsets."""
        return self._row(_OFFSET)

    @property
    def lengths(self) -> Int64s:
        """Lengths in the log."""
        return self._row(_LENGTH)

    @property
    def store_seconds(self) -> Int64s:
        """When they were appended."""
        return self._row(_SECONDS)

    @property
    def queue_offsets(self) -> Int64s:
        """Queue offsets; for a prepared record the number of its slot (3.0, 3.1)."""
        return self._row(_NUMBER)

    @property
    def types(self) -> Int64s:
        """Transaction types: 4, 8 or 12."""
        return self._row(_TYPE)

    @property
    def prepared_offsets(self) -> Int64s:
        """Commit-log offset of the prepared record that each record refers to; a prepared record refers to itself."""
        found: Int64s = np.where(self.is_prepared, self.values[_OFFSET], self.values[_PREPARED_OFFSET])
        return found

    @property
    def group_hashes(self) -> Int64s:
        """Java hash of the producer group; NO_HASH, which is the hash of no text, if the group is unknown."""
        return self._row(_HASH)

    @cached_property
    def is_prepared(self) -> Bools:
        """Whether each record is a prepared record."""
        found: Bools = self.values[_TYPE] == PREPARED
        return found

    @cached_property
    def prepared(self) -> OldRecords:
        """The prepared records."""
        return self.chosen(self.is_prepared)

    @cached_property
    def ends(self) -> OldRecords:
        """The COMMIT and ROLLBACK records."""
        return self.chosen(~self.is_prepared)

    @cached_property
    def first_ends(self) -> Int64s:
        """Return for each prepared record the type of the first COMMIT or ROLLBACK record for it, or UNDECIDED."""
        ends = self.ends
        named, first = np.unique(ends.prepared_offsets, return_index=True)
        offsets = self.prepared.offsets
        places = np.searchsorted(named, offsets)
        found = np.full(len(offsets), UNDECIDED, np.int64)
        inside = np.flatnonzero(places < len(named))
        inside = inside[named[places[inside]] == offsets[inside]]
        found[inside] = ends.types[first[places[inside]]]
        return found


def _group_hashes(block: Block) -> Int64s:
    groups = block.properties.coded(PRODUCER_GROUP)
    hashes = pa.array([java_hash(group) for group in groups.dictionary.to_pylist()], pa.int64())
    found: Int64s = np.asarray(hashes.take(groups.indices).fill_null(NO_HASH))
    return found
