"""Prepared, COMMIT and ROLLBACK records in the form of state table and redo log, from blocks of records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from rmqtx.readers.log.properties import PRODUCER_GROUP
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.record_layout import PREPARED, TRANSACTION_MASK
from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.model.java_hashes import java_hash

#: Rows of `OldRecords.values`.
_OFFSET, _LENGTH, _SECONDS, _NUMBER, _TYPE, _PREPARED_OFFSET, _HASH = range(7)
#: No producer group, or none that can be read: the hash that the slot of the record has is unknown.
NO_HASH = 1 << 40
UNDECIDED = 0


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
        ]  # fmt: skip
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
