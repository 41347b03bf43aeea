"""Which claims about a commit log are broken, and which of these are trustworthy.

A claim about the decoded part of the log holds, and costs one comparison. Any other claim is examined: a slot or entry
can be damaged itself, and a queue, index or table can belong to another log. It belongs to another log if its earlier
entries point to other records in this one; where the log has no records, nothing contradicts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rmqtx.readers.index.index import entries_at, open_index_file
from rmqtx.readers.log.light_queues import further_slots
from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.log.record_layout import TRANSACTION_MASK
from rmqtx.readers.log.segment_scan import SegmentScan
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.old_tables.redo_log import redo_entries
from rmqtx.readers.old_tables.state_table import state_slots
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.rocksdb.rocksdb import open_database
from rmqtx.readers.rocksdb.rocksdb_queues import QueueDatabase
from rmqtx.readers.storage.segments import SegmentedLog
from rmqtx.readers.store.store import HALF_TOPIC, Store
from rmqtx.verdicts.claims.log_claims import INDEX, QUEUE, REDO_LOG, ROCKSDB_QUEUE, STATE_TABLE, LogClaim, LogClaims
from rmqtx.verdicts.missing.split_numbers import is_shifted_slot
from rmqtx.verdicts.missing.unfound_slots import (
    SEARCHED_BYTES_MAX,
    STALE_RUN_MIN,
    UnfoundSlot,
    are_refuted,
    stands_between_its_neighbours,
)

#: The number of a witness's entries before the log's end that are compared with their records.
_COMPARED = 8
#: The most slots of an older log that are recognised at the end of a queue.
_STALE_SLOTS_MAX = 1024
#: The most claims that are examined, the furthest first.
_EXAMINED = 32
_LENGTH_UNKNOWN = -1

#: Entries of one witness as (offset, length), -1 for an unknown length.
_Entries = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class DecodedLog:
    """The decoded extent of a log.

    Units: commit-log offsets in bytes. `end_offset` is past the last record; `last_store_time_ms` is None without
           records.
    """

    end_offset: int
    last_store_time_ms: int | None

    @property
    def is_empty(self) -> bool:
        """Whether the log has no records."""
        return self.last_store_time_ms is None


def broken_claim(store: Store, claims: LogClaims, decoded: DecodedLog) -> LogClaim | None:
    """Return the furthest claim that is broken and trustworthy; None if all claims hold.

    For a store in use, claims count as far as its snapshot has files.
    Raises: SourceError if the log can no longer be read.
    """
    with store.log() as log:
        return _broken(store, claims, decoded, log)


def _broken(store: Store, claims: LogClaims, decoded: DecodedLog, log: SegmentedLog) -> LogClaim | None:
    examined = 0
    for claim in claims.newest:
        reach = claim.reach_offset
        if reach is None or (store.in_use and reach > log.end_offset):
            continue
        if decoded.is_empty and claim.record_offset is not None:
            return claim  # even one before the log's beginning: the file of the newest record never expires
        if reach <= decoded.end_offset or examined == _EXAMINED:
            break
        examined += 1
        if decoded.is_empty or _is_trustworthy(store, claim, decoded, log):
            return claim
    return next((claim for claim in claims.newest if _is_broken_without_place(claim, decoded)), None)


def _is_broken_without_place(claim: LogClaim, decoded: DecodedLog) -> bool:
    if claim.reach_offset is not None:
        return False
    if decoded.last_store_time_ms is None:
        return True
    return claim.store_time_ms is not None and claim.store_time_ms > decoded.last_store_time_ms


def broken_claims(store: Store, claims: LogClaims, log: SegmentedLog) -> list[LogClaim]:
    """Return the claims whose record is not at its place; one read of the log for each, no scan.

    Claims without a record, or about an expired one, are not included.
    Raises: SourceError.
    """
    return [
        claim for claim in claims.newest
        if claim.record_offset is not None
        and claim.record_offset >= log.begin_offset
        and not (store.in_use and claim.record_offset >= log.end_offset)
        and not _is_kept(store, log, claim)
    ]


def contradicted_claims(
    store: Store, claims: LogClaims, decoded: DecodedLog, holes: Sequence[tuple[int, int]]
) -> list[LogClaim]:
    """Return the claims whose place was decoded and has another record: they belong to another log.

    `holes`: offsets that are reported as lost, from the first to past the last. A damaged slot contradicts nothing.
    Raises: SourceError.
    """
    with store.log() as log:
        inside = [
            claim for claim in broken_claims(store, claims, log)
            if claim.record_offset is not None
            and claim.record_offset < decoded.end_offset
            and not any(begin <= claim.record_offset < end for begin, end in holes)
        ]
        return [
            claim for claim in inside if not _is_damaged_slot(store, claim) and not _is_of_older_log(store, claim, log)
        ]


def _is_damaged_slot(store: Store, claim: LogClaim) -> bool:
    if claim.kind != QUEUE or claim.slot is None or claim.record_offset is None:
        return False
    topic, queue_id, number = claim.slot
    slot = UnfoundSlot(topic, number, claim.record_offset, claim.record_length_bytes or 0, queue_id)
    try:
        return stands_between_its_neighbours(store, slot)
    except SourceError:
        return True


def _is_of_older_log(store: Store, claim: LogClaim, log: SegmentedLog) -> bool:
    """Whether the last slots of a queue are left from before the log was cut: the log refutes them, not those before.

    Then no record is missing, and the slots are reported one by one.
    """
    if claim.kind != QUEUE or claim.slot is None:
        return False
    topic, queue_id, number = claim.slot
    try:
        with open_queue(store, topic, queue_id) as queue:
            _, places, sizes, _ = queue.read(max(queue.min_offset, number + 1 - _STALE_SLOTS_MAX), number + 1)
        if not are_refuted(log, places[-STALE_RUN_MIN:].tolist()):
            return False
        before = zip(places[:-STALE_RUN_MIN][::-1].tolist(), sizes[:-STALE_RUN_MIN][::-1].tolist(), strict=True)
        return any(is_there(log, offset, length) for offset, length in before)
    except SourceError:
        return False


def broken_claim_findings(store: Store, claims: LogClaims) -> list[Finding]:
    """Return one finding if other files refer to records that are not in the log, without a scan.

    For a log without files, every claim about a record is broken.
    Raises: SourceError.
    """
    with store.log() as log:
        return contradiction(store, broken_claims(store, claims, log) if store.commit_log else claims.newest)


def contradiction(store: Store, broken: Sequence[LogClaim]) -> list[Finding]:
    """Return the finding about broken claims, if there are any."""
    if not broken:
        return []
    first = broken[0]
    segment = None if first.record_offset is None else store.log().segment_at(first.record_offset)
    more = f", and {len(broken) - 1} more" if len(broken) > 1 else ""
    return [
        Finding(
            store.root, "log-missing", None if segment is None else segment.file,
            commit_log_offset=first.record_offset, expected=f"{first.words}, which {first.witness} refers to{more}",
            actual="another record or none" if store.commit_log else "no file of the log",
        )
    ]


def _is_kept(store: Store, log: SegmentedLog, claim: LogClaim) -> bool:
    assert claim.record_offset is not None
    block = block_at(log, claim.record_offset)
    if block is None or claim.record_length_bytes not in (None, int(block.header("length_bytes")[0])):
        return False
    if claim.kind != QUEUE or claim.slot is None:
        return True
    topic, queue_id, number = claim.slot
    is_of_queue = block.topic_is(topic)[0] and int(block.header("queue_id")[0]) == queue_id
    if is_of_queue and int(block.header("queue_offset")[0]) == number:
        return True
    if is_of_queue and topic == HALF_TOPIC and is_shifted_slot(store, log, number, claim.record_offset):
        return True
    return any(tuple(slot) == claim.slot for _, *slot in further_slots(block))


def is_there(log: SegmentedLog, offset: int, length_bytes: int | None) -> bool:
    """Whether a sound record, of the given length if known, begins at a commit-log offset."""
    block = block_at(log, offset)
    return block is not None and length_bytes in (None, _LENGTH_UNKNOWN, int(block.header("length_bytes")[0]))


def _is_trustworthy(store: Store, claim: LogClaim, decoded: DecodedLog, log: SegmentedLog) -> bool:
    end = decoded.end_offset
    try:
        if claim.kind == QUEUE:
            return _is_of_this_queue(store, claim, end, log)
        if claim.kind == INDEX:
            return _is_of_this_index(store, claim, end, log)
        if claim.kind in (REDO_LOG, STATE_TABLE):
            return _is_of_this_table(store, claim, end, log)
        if claim.kind == ROCKSDB_QUEUE and claim.slot is not None:
            return _is_of_this_database(store, claim, end, log)
    except SourceError:
        return False  # an unreadable witness proves nothing against the log; its reader reports it
    return True


def _is_not_another_logs(log: SegmentedLog, before: _Entries) -> bool:
    return 2 * sum(is_there(log, offset, length) for offset, length in before) >= len(before)


def _is_of_this_queue(store: Store, claim: LogClaim, end: int, log: SegmentedLog) -> bool:
    assert claim.slot is not None
    assert claim.record_offset is not None
    topic, queue_id, number = claim.slot
    with open_queue(store, topic, queue_id) as queue:
        first = queue.offset_of(end)
        _, places, sizes, _ = queue.read(max(queue.min_offset, first - _COMPARED), first)
    if number - first < 1:
        slot = UnfoundSlot(topic, number, claim.record_offset, claim.record_length_bytes or 0, queue_id)
        if stands_between_its_neighbours(store, slot):
            return False  # then the slot is damaged
    if are_refuted(log, places[-STALE_RUN_MIN:].tolist()):
        return False  # then the slots behind them are of an older log too
    return _is_not_another_logs(log, list(zip(places.tolist(), sizes.tolist(), strict=True)))


def _is_of_this_index(store: Store, claim: LogClaim, end: int, log: SegmentedLog) -> bool:
    """Whether the last entry of an index is the record in its header, and its entries point to records."""
    segment = next(one for one in store.index_files if one.file == claim.witness)
    index = open_index_file(segment)
    if index.why_incomplete() is not None or index.slots_count is None:
        return False
    count = index.entries_count
    with segment.open() as file:
        places = entries_at(file, index, np.arange(max(1, count - 1024), count + 1))["commit_log_offset"]
    offsets = places.astype(np.int64)
    if not len(offsets) or int(offsets[-1]) != claim.record_offset:
        return False
    before = np.unique(offsets[offsets < end])[-_COMPARED:]
    return _is_not_another_logs(log, [(offset, _LENGTH_UNKNOWN) for offset in before.tolist()])


def _is_of_this_table(store: Store, claim: LogClaim, end: int, log: SegmentedLog) -> bool:
    """Redo log and state table of 3.0 and 3.1."""
    if claim.kind == REDO_LOG:
        entries = redo_entries(store, [])
        if entries is None:
            return False
        offsets, lengths = entries.offsets, entries.lengths
    else:
        slots = state_slots(store, [])
        if slots is None:
            return False
        offsets, lengths = slots.offsets, slots.values("record_length_bytes")
    order: Int64s = np.argsort(offsets, kind="stable")
    offsets, lengths = offsets[order], lengths[order]
    first = int(np.searchsorted(offsets, end))
    if first == len(offsets) - 1:
        begin = int(offsets[first - 1] + lengths[first - 1]) if first else store.log_begin_offset
        if _has_transactions(store, begin):
            return False  # then the one entry that points after the end is damaged
    before = slice(max(0, first - _COMPARED), first)
    return _is_not_another_logs(log, list(zip(offsets[before].tolist(), lengths[before].tolist(), strict=True)))


def _has_transactions(store: Store, begin: int) -> bool:
    """Whether the log has a prepared, COMMIT or ROLLBACK record at or shortly after a place."""
    for segment in store.commit_log:
        low = max(begin - segment.base_offset, 0)
        if low >= segment.size_bytes or segment.base_offset - begin > SEARCHED_BYTES_MAX:
            continue
        for block in SegmentScan(segment, from_position=low, to_position=low + SEARCHED_BYTES_MAX):
            if (block.sys_flag & TRANSACTION_MASK).any():
                return True
    return False


def _is_of_this_database(store: Store, claim: LogClaim, end: int, log: SegmentedLog) -> bool:
    """A queue in RocksDB, judged by its slots that point before the end."""
    assert claim.slot is not None
    topic, queue_id, last = claim.slot
    for name in store.queue_databases:
        with open_database(store, name) as database:
            queues = QueueDatabase(store, database)
            known = queues.ends().get((topic, queue_id))
            low, high = 0 if known is None or known.first is None else known.first[0], last
            while low < high:  # the first slot that points at or after the end
                middle = (low + high) // 2
                places = _places(queues, topic, queue_id, middle, middle + 1)
                low, high = (low, middle) if places and places[0][0] >= end else (middle + 1, high)
            before = [place for place in _places(queues, topic, queue_id, max(0, low - _COMPARED), low)
                      if place[0] < end]
        if before:
            return _is_not_another_logs(log, before)
    return True


def _places(queues: QueueDatabase, topic: str, queue_id: int, begin: int, end: int) -> _Entries:
    return [
        (int(slot["commit_log_offset"]), int(slot["record_length_bytes"]))
        for part in queues.slots(topic, queue_id, begin, end) for slot in part.slots
    ]
