"""Halves of transactions in RocksDB (5.4.0+) in acts: each is settled by an op message with its commit-log offset.

The check puts back no copies of them. A resume makes one more half, with its own key in the broker's table; so an act
names the newest half of the transaction that no op message settles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rmqtx.readers.log.offset_marks import TRANS_OFFSET
from rmqtx.readers.store.store import ROCKSDB_HALF_TOPIC
from rmqtx.repairs.acts.situation import NamedRecord
from rmqtx.repairs.records.record_writer import draft_of, property_values
from rmqtx.verdicts.model.transaction import Copy, OpMark, Transaction


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
