"""Which half copy a decision or another act names, of files and of live brokers alike."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from rmqtx.readers.log.op_messages import TRANS_OFFSET
from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.storage.segments import SegmentedLog
from rmqtx.readers.store.store import ROCKSDB_HALF_TOPIC
from rmqtx.repairs.acts.medium import Medium
from rmqtx.repairs.acts.situation import ActRequest, NamedRecord, Situation, named_record
from rmqtx.repairs.receipts.act_words import DELIVERING, ActKind
from rmqtx.repairs.records.record_writer import draft_of, has_readable_body, property_values
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


def with_named_copy(
    situation: Situation, request: ActRequest, overrides: Collection[str], medium: Medium
) -> Situation:
    """Return the situation with the copy that an act names, if that is not the newest half copy.

    It is the copy of the request, if the request has one; of a close the newest copy that no op message settles; of an
    act that delivers the newest one that consumers can read; and the discard copy where no half copy is left and the
    guard against that is overridden.
    """
    queue_offset = request.queue_offset
    if queue_offset is None and request.action == ActKind.CLOSE and not is_in_rocksdb(situation.half_copy):
        # A copy that an op message settles is closed already.
        queue_offset = max(medium.open_copies(situation), default=None)
    if queue_offset is not None:
        return replace(situation, named=medium.record(situation, queue_offset))
    if situation.half_copy is None and "not-a-half" in overrides and request.action != ActKind.REDELIVER:
        return replace(situation, named=situation.discard_copy)
    if request.action in DELIVERING and not medium.is_exclusive and situation.conditions.sent_to is None:
        return _with_readable(situation, medium)
    return situation


def _with_readable(situation: Situation, medium: Medium) -> Situation:
    """The situation with the newest half copy that consumers can read: the check of some releases spoils bodies.

    A newer one, which that check cannot read either, is closed after a commit.
    """
    named = situation.named
    if named is None or not named.raw or has_readable_body(named.raw):
        return situation
    for copy in newest_first(situation.transaction.half_copies):
        found = medium.record(situation, copy.queue_offset)
        if found is not None and has_readable_body(found.raw):
            return replace(situation, named=found)
    why = "no half copy of it has a body that consumers can read"
    return replace(situation, conditions=replace(situation.conditions, unsendable=why))


def record_to_name(situation: Situation, request: ActRequest) -> NamedRecord | None:
    """Return the record that the request of an act names; None where none can be read."""
    if request.action == ActKind.RESUME:
        return situation.discard_copy or situation.half_copy
    if request.action == ActKind.COMMIT:
        return situation.named or situation.discard_copy
    return situation.named


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
