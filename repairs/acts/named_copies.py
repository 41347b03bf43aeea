"""Which half copy a decision names, of files and of live brokers alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from rmqtx.readers.log.offset_marks import TRANS_OFFSET
from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.storage.segments import SegmentedLog
from rmqtx.readers.store.store import ROCKSDB_HALF_TOPIC
from rmqtx.repairs.acts.situation import NamedRecord, named_record
from rmqtx.repairs.records.record_writer import draft_of, property_values
from rmqtx.verdicts.model.transaction import Copy, OpMark, Transaction, newest_first

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


# Halves of transactions in RocksDB (5.4.0+) in acts: each is settled by an op message with its commit-log offset.
#
# The check puts back no copies of them. A resume makes one more half, with its own key in the broker's table; so an act
# names the newest half of the transaction that no op message settles.


def is_in_rocksdb(record: NamedRecord | None) -> bool:
    """Whether a record is a half of a transaction in RocksDB."""
    return record is not None and record.topic == ROCKSDB_HALF_TOPIC


def fresh_offset_marks(before: Transaction, after: Transaction) -> list[OpMark]:
    """The offset marks that are new since an act."""
    known = {mark.commit_log_offset for mark in before.offset_marks}
    return [mark for mark in after.offset_marks if mark.commit_log_offset not in known]


def copies_left(row: Transaction, record_at: Callable[[str, int], bytes | None]) -> list[Copy]:
    """The half copies of a transaction that no op message settles by their offset.

    `record_at`: returns the record of a store at a commit-log offset, None where it cannot be read.
    """
    ended = {(mark.store, offset) for mark in row.offset_marks for offset in _ended_by(mark, record_at)}
    return [copy for copy in row.half_copies if (copy.store, copy.commit_log_offset) not in ended]


def _ended_by(mark: OpMark, record_at: Callable[[str, int], bytes | None]) -> Iterable[int]:
    raw = record_at(mark.store, mark.commit_log_offset)
    text = property_values(draft_of(raw).properties).get(TRANS_OFFSET.encode(), b"") if raw else b""
    return [int(text)] if text.isdigit() else []
