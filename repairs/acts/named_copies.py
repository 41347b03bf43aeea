"""Which half copy a decision names, of files and of live brokers alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.storage.segments import SegmentedLog
from rmqtx.repairs.acts.rocksdb_halves import copies_left, is_in_rocksdb
from rmqtx.repairs.acts.situation import NamedRecord, named_record
from rmqtx.verdicts.model.transaction import Copy, Transaction, newest_first

#: Returns the record of a store at a commit-log offset; None where it cannot be read.
ReadRecord = Callable[[str, int], NamedRecord | None]


def newest_records(row: Transaction, read: ReadRecord) -> tuple[NamedRecord | None, NamedRecord | None]:
    """Return the half copy that a decision on a transaction names, and its newest discard copy.

    Both are the newest that can be read; of halves in RocksDB, the newest that no op message settles.
    """
    half = newest_of(row.half_copies, read)
    if is_in_rocksdb(half) and len(row.half_copies) > 1:
        half = newest_of(copies_left(row, lambda root, offset: _raw(read(root, offset))), read) or half
    return half, newest_of(row.discard_copies, read)


def newest_of(copies: Sequence[Copy], read: ReadRecord) -> NamedRecord | None:
    """Return the newest of some copies that can be read."""
    records = (read(copy.store, copy.commit_log_offset) for copy in newest_first(copies))
    return next((record for record in records if record is not None), None)


def reader_of(logs: Mapping[str, SegmentedLog]) -> ReadRecord:
    """Return a reader of records in the logs of some stores."""

    def read(root: str, commit_log_offset: int) -> NamedRecord | None:
        block = block_at(logs[root], commit_log_offset)
        return None if block is None else named_record(block, root)

    return read


def _raw(record: NamedRecord | None) -> bytes | None:
    return None if record is None else record.raw
