"""Consume queues in RocksDB compared with the log: records whose slot is wrong or missing, slots without a record.

The log is read a second time for this: the slots of a queue are contiguous in the database, while its records are
spread over the log. The claims of a window of records are looked up as a range of keys; only runs of numbers are kept.

Slots without a record are also found for one range of the log, as `missing_ranges.unfound_slots` finds them in files:
the database is opened once for each range. For a remote store this would copy the database each time, so only its
newest slots are read there (`log_claims.py`).
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rmqtx.readers.log.commit_log import scan_segments
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import FINDINGS_MAX, Finding, as_text
from rmqtx.readers.model.ranges import LogRanges, inside, merged, runs_of
from rmqtx.readers.queues.consume_queue import Slots, open_queue
from rmqtx.readers.queues.slot_files import SIMPLE, QueueName, queue_text, slot_files, topic_bytes, topic_text
from rmqtx.readers.queues.unit_files import used_end
from rmqtx.readers.rocksdb.rocksdb import DEFAULT, open_database, unread
from rmqtx.readers.rocksdb.rocksdb_queues import SLOT_VALUE, QueueDatabase, lacking_database, queue_bounds, slot_key
from rmqtx.readers.rocksdb.rocksdb_transactions import DIRECTORY, LAST_OFFSET
from rmqtx.readers.store.store import ROCKSDB_HALF_TOPIC, Store
from rmqtx.verdicts.compared.queue_claims import ClaimedRows, QueueClaims, due_slots
from rmqtx.verdicts.missing.unfound_slots import UnfoundSlot, unfound_among

#: If numbers are further apart than this per record, one of them is damaged: they are looked up one by one.
_APART = 64
_NUMBER_MAX = 2**63 - 1
_PLACE = struct.Struct(">q")


def rocksdb_queue_findings(
    store: Store, ranges: LogRanges, topics: Sequence[str] | None = None
) -> Iterator[Finding]:
    """Return where the queues in RocksDB contradict the log. `topics`: those whose queues are compared; None: all.

    Order:  of each database records in log order, then slots in the database's order.
    Damage: slot-mismatch, slot-tags-mismatch, slot-missing, slot-pending, slot-dangling, slot-expired, database-entry,
            database-unread; at most 100 of each code; the last one stands for the rest.
    """
    yield from lacking_database(store)
    for name in store.queue_databases:
        try:
            with open_database(store, name) as database:
                yield from _QueueComparison(store, QueueDatabase(store, database), ranges, topics).findings()
        except SourceError as error:
            yield unread(store, store.place(name), error)


def leftover_queue_findings(store: Store) -> Iterator[Finding]:
    """Return a note if queues in files end before those in RocksDB, which the broker reads since it was switched."""
    if not store.has_rocksdb_queues:
        return
    ends = queue_bounds(store, [])
    left: list[tuple[str, int, int, int]] = []
    for topic, number in store.queues(SIMPLE):
        try:
            files = slot_files(store, (SIMPLE, topic_bytes(topic), number))
            try:
                end = used_end(store, files.segments, files.layout)
            finally:
                files.close()
        except SourceError:
            continue  # reported where slots are compared
        in_rocksdb = ends.get((topic, number), (0, 0))[1]
        if 0 < end < in_rocksdb:
            left.append((topic, number, end, in_rocksdb))
    if left:
        topic, number, end, in_rocksdb = left[0]
        name: QueueName = (SIMPLE, topic_bytes(topic), number)
        more = f", and {len(left) - 1} more queues" if len(left) > 1 else ""
        yield Finding(
            store.root, "queues-leftover", as_text(store.queue_directory(topic, number)),
            expected=f"slots up to {in_rocksdb} in {queue_text(name)}, as in RocksDB", actual=f"up to {end}{more}",
        )


@dataclass(slots=True)
class _QueueComparison:
    store: Store
    queues: QueueDatabase
    ranges: LogRanges
    topics: Sequence[str] | None = None
    _runs: dict[QueueName, list[Int64s]] = field(default_factory=lambda: defaultdict(list))
    _counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _late_count: int = 0
    _late_offset: int = 0

    def findings(self) -> Iterator[Finding]:
        taken_in = self.queues.taken_in_offset()
        is_late = self.store.aborted or self.store.in_use
        flushed_offset = (taken_in or 0) if is_late else 2**63 - 1
        claims = QueueClaims(self.store)
        for block in scan_segments(self.store, [], []):
            claims.add(block if self.topics is None else block.take(self._are_mine(block)))
            for name, rows in claims.taken():
                if name[0] == SIMPLE:
                    yield from self._records(name, rows, flushed_offset)
        if self._late_count:
            yield Finding(
                self.store.root, "slot-pending", self.queues.database.directory, commit_log_offset=self._late_offset,
                expected=f"slots of {self._late_count} records after the last flush", actual="no slot",
            )
        for topic in (None,) if self.topics is None else self.topics:
            for part in self.queues.slots(topic):
                name = (SIMPLE, part.topic.encode("utf-8", "surrogateescape"), part.queue_id)
                yield from self._unclaimed(name, part.queue_offsets, part.slots)
        yield from dict.fromkeys(self.queues.findings)  # an entry that does not fit may be found more than once

    def _are_mine(self, block: Block) -> Bools:
        mine = np.zeros(len(block), np.bool_)
        for topic in self.topics or ():
            mine |= block.topic_is(topic)
        return mine

    def _records(self, name: QueueName, rows: ClaimedRows, flushed_offset: int) -> Iterator[Finding]:
        """Records of one window and one queue."""
        numbers = rows.queue_offsets
        found, slots = self._slots(name, numbers)
        same = (slots["commit_log_offset"] == rows.offsets) & (slots["record_length_bytes"] == rows.lengths)
        tags = slots["tags_code"].astype(np.int64)
        same &= (tags == rows.tags_codes) | due_slots(tags, rows.store_times, rows.is_delayed) | rows.have_no_tags
        self._runs[name].append(runs_of(np.unique(numbers[found])))
        late = ~found & (rows.offsets >= flushed_offset)
        if late.any():
            self._late_offset = self._late_offset if self._late_count else int(rows.offsets[late].min())
            self._late_count += int(late.sum())
        for row in np.flatnonzero(~(found & same) & ~late).tolist():
            offset, number = int(rows.offsets[row]), int(numbers[row])
            wanted = f"slot {number} of {queue_text(name)}"
            if not found[row]:
                yield from self._limited("slot-missing", offset, wanted, "no slot")
                continue
            pointed = int(slots["commit_log_offset"][row])
            length = int(slots["record_length_bytes"][row])
            if pointed != offset:
                actual = f"{wanted} points at {pointed}"
            else:
                actual = f"{wanted} has {length} bytes, tags code {tags[row]}"
            expected = f"offset {offset}, {rows.lengths[row]} bytes, tags code {rows.tags_codes[row]}"
            is_led_to = (pointed, length) == (offset, int(rows.lengths[row]))
            yield from self._limited("slot-tags-mismatch" if is_led_to else "slot-mismatch", offset, expected, actual)

    def _slots(self, name: QueueName, numbers: Int64s) -> tuple[Bools, Slots]:
        """Return which numbers have a slot, and the slots; zeros for the others."""
        topic, queue_id = topic_text(name[1]), name[2]
        slots = np.zeros(len(numbers), SLOT_VALUE.dtype)
        found = np.zeros(len(numbers), np.bool_)
        low, high = int(numbers.min()), min(int(numbers.max()), _NUMBER_MAX - 1) + 1
        is_dense = high - low <= _APART * len(numbers) + _APART
        single = ((number, number + 1) for number in np.unique(numbers[numbers < _NUMBER_MAX]).tolist())
        for begin, end in [(low, high)] if is_dense else single:
            for part in self.queues.slots(topic, queue_id, begin, end):
                at = np.minimum(np.searchsorted(part.queue_offsets, numbers), len(part.queue_offsets) - 1)
                mine = part.queue_offsets[at] == numbers
                slots[mine] = part.slots[at[mine]]
                found |= mine
        return found, slots

    def _unclaimed(self, name: QueueName, numbers: Int64s, slots: Slots) -> Iterator[Finding]:
        """Slots whose number no record of the queue has."""
        claimed = inside(merged(self._runs.get(name, [])), numbers)
        offsets = slots["commit_log_offset"].astype(np.int64)
        fine = claimed | self.ranges.is_damaged(offsets)
        if self.store.in_use:  # written by the broker since
            fine |= offsets >= self.ranges.end_offset
        low, high = self.ranges.begin_offset, self.ranges.end_offset
        for row in np.flatnonzero(~fine).tolist():
            offset, slot = int(offsets[row]), f"slot {int(numbers[row])} of {queue_text(name)}"
            if offset < low:
                yield from self._limited("slot-expired", offset, f"an offset in [{low}, {high})", f"{slot}: {offset}")
            elif not self.ranges.is_held(offsets[row : row + 1])[0]:
                yield from self._limited("slot-dangling", offset, f"an offset in [{low}, {high})", f"{slot}: {offset}")
            else:
                yield from self._limited("slot-mismatch", offset, f"a record that claims {slot}", "none")

    def _limited(self, code: str, offset: int, expected: str, actual: str) -> Iterator[Finding]:
        self._counts[code] += 1
        count = self._counts[code]
        if count > FINDINGS_MAX:
            return
        more = "; further findings of this kind are not listed" if count == FINDINGS_MAX else ""
        yield Finding(
            self.store.root, code, self.queues.database.directory, commit_log_offset=offset, expected=expected,
            actual=actual + more,
        )


def table_end_findings(store: Store, last_offset: int, log_end: int, *, is_complete: bool) -> Iterator[Finding]:
    """The end of the table: never after the log's end; after a clean stop at the last half in the queue.

    `last_offset`: that of the last half in the table; `is_complete`: the table is as a clean stop left it.
    Units:  bytes of the commit log.
    Damage: database-entry.
    """
    if store.in_use:
        return
    last = 0
    if last_offset >= log_end:
        expected = f"a last half before the log's end {log_end}"
    elif is_complete and (last := _last_half_offset(store)) > last_offset:
        expected = f"the last half, {last}, after a clean stop"
    else:
        return
    yield Finding(
        store.root, "database-entry", store.place(DIRECTORY), commit_log_offset=max(last, last_offset),
        expected=expected, actual=f"{LAST_OFFSET.decode()} {last_offset}",
    )


def _last_half_offset(store: Store) -> int:
    """Commit-log offset of the newest half in the queue; −1 without one, or if it cannot be read."""
    try:
        with open_queue(store, ROCKSDB_HALF_TOPIC, 0) as queue:
            place = queue.last_place()
            return -1 if place is None else place
    except SourceError:
        return -1  # reported by the reader of the queue


def unfound_rocksdb_slots(
    store: Store, found: Mapping[str, tuple[Int64s, Int64s]], begin_offset: int, end_offset: int
) -> list[UnfoundSlot]:
    """Return slots that point into a range of the log where their record was not found.

    `found`: by topic, places and slots of its records of queue 0 in the range, in log order.
    Units: bytes of the commit log.
    Damage: a database that cannot be read proves nothing against the log.
    """
    unfound: list[UnfoundSlot] = []
    if store.is_remote:
        return unfound
    for name in store.queue_databases:
        try:
            with open_database(store, name) as database:
                queues = QueueDatabase(store, database)
                ends = queues.ends()
                for topic, (offsets, queue_offsets) in found.items():
                    end = ends.get((topic, 0))
                    if end is None or end.last is None:
                        continue
                    first = _number_at(queues, topic, begin_offset, end.last[0] + 1)
                    last = _number_at(queues, topic, end_offset, end.last[0] + 1)
                    for some in queues.slots(topic, 0, first, last):
                        places = some.slots["commit_log_offset"].astype(np.int64)
                        inside = (places >= begin_offset) & (places < end_offset)
                        lengths = some.slots["record_length_bytes"].astype(np.int64)
                        unfound += unfound_among(
                            topic, some.queue_offsets[inside], places[inside], lengths[inside], offsets, queue_offsets
                        )
        except SourceError:
            continue  # reported where it is read for the whole log
    return unfound


def _number_at(queues: QueueDatabase, topic: str, commit_log_offset: int, end: int) -> int:
    """Number of the first slot of queue 0 that points at or after a place of the log; `end` if none does.

    A binary search: the records of a queue have the same order in the log.
    """
    low, high = 0, end
    while low < high:
        middle = (low + high) // 2
        keys = slot_key(topic, 0, middle), slot_key(topic, 0, high)
        key, value = next(queues.database.items(DEFAULT, *keys), (b"", b""))
        if len(value) != SLOT_VALUE.size_bytes or _PLACE.unpack_from(value)[0] >= commit_log_offset:
            high = middle
        else:
            low = int.from_bytes(key[-8:], "big") + 1
    return low
