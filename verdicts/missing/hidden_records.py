"""What a hole in a log can hide: its former records, as far as queues, index and redo log show them.

Missing bytes make every verdict undecidable that depends on the absence of a record, unless the former content of the
bytes is proven. There are three proofs; one is enough for each byte:

1. *Tiles.* Queue slots point into the hole, and each record ends where the next one begins: there is no room for
   another record. An index entry for the place of a slot contains the hashes of the record's keys. If the bytes between
   two slots are too few for a record (a DLedger header), they hide none. Entries of the redo log (3.0, 3.1) are tiles
   too, for the prepared and ROLLBACK records that are in no queue.
2. *Numbers.* A queue's records are numbered without gaps in the order of the log (every append takes the next number).
   If slot k points before and slot k + 1 after bytes to which no slot points, and the log has both records with these
   numbers, no record of that queue was between them. Slots alone are no proof: a queue can belong to another log.
3. *The end of a file.* If the next record does not fit, the broker ends a file with a blank
   (docs/formats/record.md#blank). If the bytes up to the end of a file are fewer than the first record of the next file
   needs, and records after were dispatched, the bytes are a blank for all queues without a later slot: a broker
   dispatches in the order of the log.

A hole without a record after it may be longer than any evidence shows. After a clean stop everything was dispatched,
so the queues contain its last record; otherwise nothing is known about it.

Bytes without a proof are a gap, which may hide records of all topics that are not listed as clear. Prepared and
ROLLBACK records of brokers before 4.3 are in no queue, so for them only tiles are a proof.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from rmqtx.readers.index.index_scan import IndexKeys
from rmqtx.readers.log.prepared_records import is_rollback
from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.log.record_layout import BLANK, FILLER_MARK, RECORD_BYTES_MIN
from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.model.errors import UnreadableFile
from rmqtx.readers.old_tables.redo_log import PREPARED_TAGS, RedoEntries, redo_entries
from rmqtx.readers.rocksdb.slots_of_ranges import ANY_TOPIC, RangeSlots, slots_of_ranges
from rmqtx.readers.storage.segments import Segment, SegmentedLog
from rmqtx.readers.store.store import (
    DISCARD_TOPIC,
    HALF_TOPICS,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
    WAITING_TOPICS,
    Store,
)
from rmqtx.verdicts.model.verdict_inputs import (
    HiddenRecords,
    HiddenTopic,
    MisdirectedDecision,
    MissingRange,
    UnexplainedBytes,
)

#: Topics of the broker itself, which are never deleted: if records after some bytes were dispatched and one of these
#: topics has no queue, the bytes contained none of its records. Not the half topic, which must have a queue.
_BORN_LATER = (DISCARD_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC, *WAITING_TOPICS)
_RANGES_MAX = 256
_READ_BYTES = 1 << 20
_BEHIND_ALL = 1 << 62


def bounded(
    store: Store, ranges: Sequence[MissingRange], final_offsets: Int64s, named_offsets: Int64s
) -> tuple[list[MissingRange], list[MisdirectedDecision]]:
    """Return the ranges with what each can hide, and the decisions on hidden records outside the half topic.

    `final_offsets`, `named_offsets`: decisions and the places that they name; only places in the ranges count.
    Order: as given. Units: commit-log offsets in bytes.
    Damage: a queue, an index or a redo log that cannot be read proves nothing; its reader reports it.
    """
    ranges = [one for one in ranges if one.end_offset > one.begin_offset]
    if not ranges:
        return [], []
    slots = None
    if len(ranges) <= _RANGES_MAX:
        slots = slots_of_ranges(store, [(one.begin_offset, one.end_offset) for one in ranges])
    keys = IndexKeys(store)
    with store.log() as log:
        redo = _redo_of(store) if slots is not None else None
        found: list[MissingRange] = []
        decisions: list[MisdirectedDecision] = []
        for number, one in enumerate(ranges):
            parts = None if slots is None else slots[number]
            hole = _RangeEvidence(store, log, one, parts or [], redo, keys)
            if parts is not None and not hole.has_record_behind():
                behind = slots_of_ranges(store, [(one.begin_offset, _BEHIND_ALL)])
                parts = None if behind is None else behind[0]
                if parts is not None:
                    hole = _RangeEvidence(store, log, replace(one, end_offset=_BEHIND_ALL), parts, redo, keys)
            inside = (named_offsets >= one.begin_offset) & (named_offsets < one.end_offset)
            misdirected, unknown = hole.decisions_on(final_offsets[inside], named_offsets[inside])
            decisions.extend(misdirected)
            hidden = None if one.is_identified or parts is None or _may_hold_fillers(store, one) else hole.records()
            if one.named_from_offset is not None:
                unknown.append(one.named_from_offset)
            found.append(replace(one, hidden=hidden, named_from_offset=min(unknown, default=None)))
    return found, decisions


def _may_hold_fillers(store: Store, hole: MissingRange) -> bool:
    """Whether a salvage may have filled a hole: slots that point to fillers do not show the former records.

    Damage: a file that cannot be read may contain fillers.
    """
    for segment in store.commit_log:
        begin = max(hole.begin_offset - segment.base_offset, 0)
        end = min(hole.end_offset - segment.base_offset, segment.size_bytes)
        try:
            if begin < end and _has_fillers(segment, begin, end):
                return True
        except UnreadableFile:
            return True
    return False


def _has_fillers(segment: Segment, position: int, end: int) -> bool:
    with segment.open() as file:
        while (position := file.next_data(position)) < end:
            if FILLER_MARK in file.read(position, min(_READ_BYTES + len(FILLER_MARK), end - position)):
                return True
            position += _READ_BYTES
    return False


def _redo_of(store: Store) -> RedoEntries | None:
    entries = redo_entries(store, [])
    return entries if entries is not None and len(entries) and entries.is_whole else None


class _RangeEvidence:
    """The evidence for one missing range."""

    def __init__(
        self, store: Store, log: SegmentedLog, missing: MissingRange, parts: list[RangeSlots],
        redo: RedoEntries | None, keys: IndexKeys,
    ) -> None:
        self._store, self._log, self._keys = store, log, keys
        self._begin, self._end = missing.begin_offset, missing.end_offset
        self._parts = [part for part in parts if part.is_in_order]
        self._broken_topics = {part.topic for part in parts if not part.is_in_order}
        self._redo = redo

    def has_record_behind(self) -> bool:
        """Whether the log has a record at or after the end of the range that is in a queue."""
        return any(self._is_confirmed(part, int(np.searchsorted(part.offsets, self._end))) for part in self._parts)

    def decisions_on(self, finals: Int64s, named: Int64s) -> tuple[list[MisdirectedDecision], list[int]]:
        """Return the decisions on hidden records that were not half copies, and those without any evidence.

        A slot contains the number of the record and belongs to its topic, so the op of the decision is known.
        Shape: misdirected decisions, and the places of decisions on a record without a slot.
        """
        queues = {
            offset: (part.topic, part.queue_id, number)
            for part in self._parts for offset, number in zip(part.offsets.tolist(), part.numbers.tolist(), strict=True)
        }
        found: list[MisdirectedDecision] = []
        unknown: list[int] = []
        for final, place in zip(finals.tolist(), named.tolist(), strict=True):
            block = block_at(self._log, final)
            if block is not None and (is_rollback(block)[0] or block.topic_is(ROCKSDB_OP_TOPIC)[0]):
                continue  # these write no op message with a number
            if place not in queues:
                unknown.append(final)
                continue
            topic, queue_id, number = queues[place]
            if topic not in HALF_TOPICS and block is not None:
                time_ms = int(block.header("store_time_ms")[0])
                found.append(MisdirectedDecision(self._store.root, queue_id, number, final, time_ms))
        return found, unknown

    def records(self) -> HiddenRecords | None:
        """Return what the range can hide; None if the slots contradict one another, so that nothing is known."""
        is_open = self._end == _BEHIND_ALL
        if is_open and (self._store.aborted or self._store.in_use):
            return None
        places, lengths, ended = self._tiles()
        ends = places + lengths
        if len(places) and (places[0] < self._begin or (places[1:] < ends[:-1]).any() or ends[-1] > self._end):
            return None
        bounds = zip([self._begin, *ends.tolist()], [*places.tolist(), self._end], strict=True)
        gaps = [self._gap(begin, end) for begin, end in bounds if end - begin >= RECORD_BYTES_MIN]
        return HiddenRecords(tuple(self._topics(ended)), tuple(gaps), tuple(ended.values()))

    def _inside(self, part: RangeSlots) -> Bools:
        inside: Bools = (part.offsets >= self._begin) & (part.offsets < self._end)
        return inside

    def _tiles(self) -> tuple[Int64s, Int64s, dict[int, int]]:
        """Return places and lengths of the known records, and which prepared record each COMMIT or ROLLBACK ended."""
        places = [part.offsets[self._inside(part)] for part in self._parts]
        lengths = [part.lengths[self._inside(part)] for part in self._parts]
        ended: dict[int, int] = {}
        if self._redo is not None:
            rows = (self._redo.offsets >= self._begin) & (self._redo.offsets < self._end)
            places.append(self._redo.offsets[rows])
            lengths.append(self._redo.lengths[rows].astype(np.int64))
            for place, tag in zip(self._redo.offsets[rows].tolist(), self._redo.tags[rows].tolist(), strict=True):
                if tag != PREPARED_TAGS:
                    ended[place] = tag
        empty = np.empty(0, np.int64)
        pairs = np.stack([np.concatenate([empty, *places]), np.concatenate([empty, *lengths])], axis=1)
        pairs = np.unique(pairs, axis=0)  # several queues may point to one record
        return pairs[:, 0], pairs[:, 1], ended

    def _topics(self, ended: dict[int, int]) -> Iterator[HiddenTopic]:
        """The topics of the records, with their keys' hashes, without COMMIT records that the redo log explains."""
        by_topic: dict[str, list[int]] = {}
        for part in self._parts:
            offsets = part.offsets[self._inside(part)].tolist()
            by_topic.setdefault(part.topic, []).extend(offset for offset in offsets if offset not in ended)
        keys = self._keys.between(self._begin, self._end)
        for topic, offsets in sorted(by_topic.items()):
            if offsets:
                yield HiddenTopic(topic, min(offsets), max(offsets), keys.of_all(offsets))

    # -- gaps -----------------------------------------------------------------------------------------------------

    def _gap(self, begin: int, end: int) -> UnexplainedBytes:
        is_blank = end == _BEHIND_ALL or self._is_blank(begin, end)
        was_dispatched = end == _BEHIND_ALL or any(
            self._is_confirmed(part, int(np.searchsorted(part.offsets, end))) for part in self._parts
        )
        clear: dict[str, bool] = {}
        for part in self._parts:
            is_clear = self._hides_nothing(part, begin, end, may_be_idle=is_blank and was_dispatched)
            clear[part.topic] = clear.get(part.topic, True) and is_clear
        for topic in _BORN_LATER if was_dispatched and ANY_TOPIC not in self._broken_topics else ():
            clear.setdefault(topic, True)
        return UnexplainedBytes(begin, end, tuple(sorted(
            topic for topic, is_clear in clear.items() if is_clear and topic not in self._broken_topics
        )))

    def _hides_nothing(self, part: RangeSlots, begin: int, end: int, *, may_be_idle: bool) -> bool:
        """Whether a gap can contain no record of a queue: the slots before and after it have consecutive numbers."""
        behind = int(np.searchsorted(part.offsets, end))
        if behind and part.offsets[behind - 1] >= begin:
            return False
        before_is_known = self._is_known(part, behind - 1) if behind else part.is_from_begin
        if behind < len(part.offsets):
            return before_is_known and self._is_known(part, behind)
        return before_is_known and may_be_idle

    def _is_known(self, part: RangeSlots, row: int) -> bool:
        """Whether a slot is one of the hole's tiles, or the log has its record."""
        return bool(self._inside(part)[row]) or self._is_confirmed(part, row)

    def _is_confirmed(self, part: RangeSlots, row: int) -> bool:
        if not 0 <= row < len(part.offsets):
            return False
        block = block_at(self._log, int(part.offsets[row]))
        return (
            block is not None
            and bool(block.topic_is(part.topic)[0])
            and int(block.header("queue_id")[0]) == part.queue_id
            and int(block.header("queue_offset")[0]) == int(part.numbers[row])
        )

    def _is_blank(self, begin: int, end: int) -> bool:
        """Whether bytes reach the end of a file, and are too few for the first record of the next file."""
        if not any(segment.base_offset == end for segment in self._store.commit_log):
            lengths = [int(part.lengths[row]) for part in self._parts for row in np.flatnonzero(part.offsets == end)]
            file_bytes = self._store.commit_log[0].size_bytes if self._store.commit_log else 0
            if not lengths or not file_bytes or end % file_bytes:
                return False
            return end - begin < max(lengths) + BLANK.size_bytes
        block = block_at(self._log, end)
        return block is not None and end - begin < int(block.header("length_bytes")[0]) + BLANK.size_bytes


