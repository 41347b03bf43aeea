"""Reads the new part of each log for a following audit, split by split, into the checkpoint.

Everything before the last sound record of a log is final and read once. The last record and the bytes after it, up to
the end of the files, are read again each time and replaced; so the checkpoint always equals a scan of the whole log.
The last record proves that the log is still the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

import numpy as np

from rmqtx.readers.jobs.growing_logs import latest_offsets
from rmqtx.readers.log.commit_log import WrittenEnd, last_with_data
from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.log.record_block import end_in_zeros
from rmqtx.readers.log.segment_scan import SegmentScan
from rmqtx.readers.log.splits import UNSEARCHED, Split, SplitPlan
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.errors import FileChanged, SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.storage.segments import Segment, SegmentedLog
from rmqtx.readers.store.store import HALF_TOPIC, TRANSACTION_TOPICS, Store
from rmqtx.verdicts.evidence.witness_scan import IDENTIFIED, SplitFacts, SplitWitnesses, column
from rmqtx.verdicts.follow.checkpoint_db import FollowDatabase, signed
from rmqtx.verdicts.follow.segment_notes import Place, SegmentNotes
from rmqtx.verdicts.follow.split_reader import SplitReader
from rmqtx.verdicts.missing.split_numbers import is_shifted_slot
from rmqtx.verdicts.missing.unfound_slots import UnfoundSlot
from rmqtx.verdicts.model.marked_copies import SeenCopies

#: If a log grew by more than this while it was read, reading continues before anything is judged.
_TAIL_BYTES_MAX = 64 << 20
_BACK_BYTES = 64 << 10
_UNREAD = "trace-unreadable"


class LogFollower:
    """Reads one log into the checkpoint, for one snapshot of its store.

    Shape: `bytes_read` and `bytes_forgotten` of this snapshot; `has_grown`: whether there was new data.
    """

    def __init__(self, database: FollowDatabase, store: Store) -> None:
        self.store = store
        self.number = database.numbers[store.root]
        self.bytes_read = self.bytes_forgotten = 0
        self.has_grown = False
        self._database = database
        self._place = Place(**database.of_store(self.number, "place"))
        self._carried: list[Finding] = []

    @property
    def offset(self) -> int:
        """The commit-log offset up to which the log is read permanently."""
        return self._place.offset

    # -- is it still the same log? -------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Remove data of files that no longer exist, and require that the other files are unchanged.

        Raises: FileChanged if the log was cut or replaced; UnreadableFile.
        """
        with self._database.transaction():
            self._require_same()
            self._forget()
            self._place.offset = max(self._place.offset, self.store.log_begin_offset)
            self._keep_place()

    def _segments(self) -> dict[int, tuple[int, SegmentNotes]]:
        rows = self._database.connection.execute(
            "SELECT base_offset, size_bytes, said FROM segments WHERE store = ? ORDER BY base_offset", (self.number,)
        )
        return {base: (size, SegmentNotes.of(noted, self._database.path)) for base, size, noted in rows}

    def _forget(self) -> None:
        here = {segment.base_offset: segment for segment in self.store.commit_log}
        last = max(here, default=0)
        for base, (size, _) in self._segments().items():
            if base not in here:
                self._database.drop(self.number, base, base + size)
                self._database.connection.execute(
                    "DELETE FROM segments WHERE store = ? AND base_offset = ?", (self.number, base)
                )
                self.bytes_forgotten += size
            elif base != last and base + size <= self._place.offset and here[base].size_bytes != size:
                raise self._changed(
                    here[base].file, size, f"had {size} bytes when it was read and has {here[base].size_bytes}"
                )

    def _require_same(self) -> None:
        place = self._place
        if place.digest is None:
            return
        with self.store.log() as log:
            segment = log.segment_at(place.anchor)
        writer, found = self._database.meta(self._writer_name), _signed(self.store, place.anchor)
        if found is not None and found.digest == place.digest:
            return
        here = _writer(self.store) if found is None else found.writer
        if segment is None and self.store.commit_log and place.anchor < self.store.commit_log[-1].end_offset:
            # Its file has expired, and the log begins later now: nothing that was read is left to compare.
            if writer is None or here in (None, writer):
                return
            now = f"all records here are later ones, of {here}"
        elif found is None:
            now = f"no record is there now, in a log of {here or 'no broker'}"
        else:
            now = f"a record of {here} is there now"
        raise self._changed(
            self.store.root if segment is None else segment.file,
            None if segment is None else place.anchor - segment.base_offset,
            "is not the log that was read: "
            f"a record of {writer or 'another broker'} was at offset {place.anchor}, {now}",
        )

    @property
    def _writer_name(self) -> str:
        return f"writer:{self.number}"

    def _changed(self, file: str, position: int | None, what: str) -> FileChanged:
        return FileChanged(
            f"{file} {what}: a recovery cut it, or it was replaced",
            file=file, position_bytes=position,
            advice=f"to begin from the start, remove {self._database.path} or give another checkpoint",
        )

    # -- reading ------------------------------------------------------------------------------------------------------

    def read_on(self, at_end: bool, splits: SplitReader) -> None:
        """Read new data up to the present end of the log.

        `at_end`: whether to read the bytes after the last record even if there is nothing new.
        Raises: SourceError; data that was read before is kept.
        """
        place, store = self._place, self.store
        if not store.commit_log:
            return
        visible = self._compare_late_slots()
        while True:
            start = place.offset
            end = latest_offsets([store], {store.root: start}, None, skips_lost=True)[store.root]
            self.has_grown |= end != place.end_offset
            is_whole = place.anchor == place.offset  # a broker may complete the properties of the last record
            if place.has_tail and end == place.end_offset and is_whole and not at_end:
                return
            last = last_with_data(store.commit_log)
            final = max(start, self._last_record_before(end, last, start))
            if final > start:
                self._read_final(start, final, last, visible, splits)
            again = latest_offsets([store], {store.root: place.offset}, None, skips_lost=True)[store.root]
            if again - end <= _TAIL_BYTES_MAX:
                break
        self._read_tail(last, end, splits)

    def _last_record_before(self, end: int, last_base: int, start: int) -> int:
        """Return where the last sound record before an offset begins; the segment's beginning if it has none."""
        segment = next(segment for segment in self.store.commit_log if segment.base_offset == last_base)
        found = _last_record(segment, max(0, start - last_base), end - last_base)
        return max(start, last_base) if found is None else last_base + found[0]

    def _read_final(self, start: int, final: int, last: int, visible: dict[str, int], splits: SplitReader) -> None:
        plan = SplitPlan((self.store,), (WrittenEnd(last, UNSEARCHED),), splits.step_bytes, start, final)
        for split, found in splits.read(plan):
            with self._database.transaction():
                self._cut_tail()
                self._add(split, found)
                self._place.offset = _end_of(split)
                self._place.compared = compared_slots(self.store, visible, self._place.offset)
                self._keep_place()
            self.bytes_read += found.facts.decoded_bytes
        with self._database.transaction():
            self._cut_tail()
            self._place.offset = final
            self._keep_place()

    def _read_tail(self, last: int, end: int, splits: SplitReader) -> None:
        """Read from the last sound record to the end of the files; this part is not final."""
        place = self._place
        tail = [segment for segment in self.store.commit_log if segment.end_offset > place.offset]
        plan = [
            Split(number, self.store, segment, max(0, place.offset - segment.base_offset), segment.size_bytes,
                  segment.base_offset >= last)
            for number, segment in enumerate(tail)
        ]
        with self._database.transaction():
            self._cut_tail()
            for split, found in splits.read(plan):
                self._add(split, found)
            place.has_tail, place.end_offset = True, end
            sign = _signed(self.store, place.offset)
            if sign is not None:
                place.anchor, place.digest = place.offset, sign.digest
                self._database.set_meta(self._writer_name, sign.writer)
            for finding in self._carried:
                self.keep(finding)
            self._keep_place()

    def _cut_tail(self) -> None:
        """Remove the data of a log's end, because it is read again."""
        if not self._place.has_tail:
            return
        offset = self._place.offset
        self._database.drop(self.number, offset, 2**63 - 1)
        for base, (_, noted) in self._segments().items():
            # The record at the offset is the same; judging reads no trace of it again.
            self._carried += [one for one in noted.findings if (one.code, one.commit_log_offset) == (_UNREAD, offset)]
            if base >= offset:
                self._database.connection.execute(
                    "DELETE FROM segments WHERE store = ? AND base_offset = ?", (self.number, base)
                )
            else:
                self._keep_notes(base, noted.before(base, offset))
        self._place.has_tail = False

    def _add(self, split: Split, found: SplitWitnesses) -> None:
        if found.facts.error is not None:
            raise found.facts.error
        noted = self._notes_of(split.segment)
        if noted.is_ended(split.segment.size_bytes):
            return  # records after the end of the data were cut off by a recovery
        database, number = self._database, self.number
        for name in IDENTIFIED:
            database.add(name, number, getattr(found, name), found.hashes[name])
            if database.meta("judges_all") is None:
                database.mark_unjudged(signed(found.hashes[name]))
        database.add("marks", number, found.marks, None)
        if database.meta("judges_all") is None:
            self._mark_named(np.unique(column(found.marks, "half_queue_offset")))
        self._add_unmatched(found.facts)
        noted.add(found.facts)
        self._keep_notes(split.segment.base_offset, noted, split.segment.size_bytes)

    def _mark_named(self, half_queue_offsets: Int64s) -> None:
        """Mark the transactions with half copies that new op marks name, to be judged."""
        for table in ("halves", "damaged_halves"):
            self._database.connection.executemany(
                f"INSERT OR IGNORE INTO unjudged SELECT hash FROM {table} INDEXED BY {table}_by_queue_offset "
                "WHERE store = ? AND queue_offset = ?",
                ((self.number, value) for value in half_queue_offsets.tolist()),
            )

    def _add_unmatched(self, facts: SplitFacts) -> None:
        """Store the ends that name no half copy of their own transaction in any split so far."""
        run = self._database.connection.execute
        unmatched = zip(
            facts.unmatched_offsets.tolist(), facts.unmatched_named_offsets.tolist(),
            facts.matching_identities.to_pylist(), strict=True,
        )
        for offset, prepared, own in unmatched:
            named = run(
                "SELECT 1 FROM halves WHERE store = ? AND commit_log_offset = ? AND hash = ?",
                (self.number, prepared, own),
            ).fetchone()
            if named is None:
                run("INSERT OR REPLACE INTO strays VALUES (?, ?, ?)", (self.number, offset, prepared))

    def _compare_late_slots(self) -> dict[str, int]:
        """Return the number of slots of each queue, after comparing late slots with the log that was read before."""
        counts = slot_counts(self.store)
        for slot, segment in unfound_late_slots(self.store, self._place.compared, self._place.offset):
            noted = self._notes_of(segment)
            if slot not in noted.unfound:
                noted.unfound.append(slot)
                with self._database.transaction():
                    self._keep_notes(segment.base_offset, noted, segment.size_bytes)
        self._place.compared |= compared_slots(self.store, counts, self._place.offset)
        return counts

    def keep(self, finding: Finding) -> None:
        """Keep a finding about a record, for the steps after this one; in a transaction."""
        segment = next((one for one in self.store.commit_log if one.file == finding.file), None)
        noted = None if segment is None else self._notes_of(segment)
        if segment is not None and noted is not None and finding not in noted.findings:
            noted.findings.append(finding)
            self._keep_notes(segment.base_offset, noted, segment.size_bytes)

    # -- the whole log ------------------------------------------------------------------------------------------------

    def split_facts(self) -> list[SplitFacts]:
        """Return the results that a scan of the whole log would give, by segment, in log order."""
        files = {segment.base_offset: segment for segment in self.store.commit_log}
        last = last_with_data(self.store.commit_log)
        parts: list[SplitFacts] = []
        for base, (_, noted) in self._segments().items():
            if base not in files:
                continue  # a hole in the middle: a file was removed while it was being read
            segment = files[base]
            split = Split(len(parts), self.store, segment, 0, segment.size_bytes, base >= last)
            parts.append(
                SplitFacts(
                    split, spans=noted.spans, findings=noted.findings, unfound=noted.unfound,
                    doubtful_ids=noted.doubtful_ids,
                    halves_count=noted.halves_count, rocksdb_halves_count=noted.rocksdb_halves_count,
                    prepared_count=noted.prepared_count, checks_seen_max=noted.checks_seen_max, numbers=noted.numbers,
                    copies=SeenCopies(noted.copies),
                )
            )
        return parts

    def unmatched(self) -> tuple[Int64s, Int64s]:
        """Return the decisions that name no half copy of their own: their offsets, and the offsets they name."""
        rows = self._database.connection.execute(
            "SELECT final_offset, prepared_offset FROM strays WHERE store = ? ORDER BY final_offset", (self.number,)
        ).fetchall()
        pairs = np.array(rows, np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    # -- storing ------------------------------------------------------------------------------------------------------

    def _notes_of(self, segment: Segment) -> SegmentNotes:
        row = self._database.connection.execute(
            "SELECT said FROM segments WHERE store = ? AND base_offset = ?", (self.number, segment.base_offset)
        ).fetchone()
        return SegmentNotes() if row is None else SegmentNotes.of(row[0], self._database.path)

    def _keep_notes(self, base: int, noted: SegmentNotes, size_bytes: int | None = None) -> None:
        run = self._database.connection.execute
        if size_bytes is None:
            run("UPDATE segments SET said = ? WHERE store = ? AND base_offset = ?", (noted.text(), self.number, base))
        else:
            run("INSERT OR REPLACE INTO segments VALUES (?, ?, ?, ?)", (self.number, base, size_bytes, noted.text()))

    def _keep_place(self) -> None:
        self._database.set_of_store(self.number, "place", asdict(self._place))


def _last_record(segment: Segment, low: int, high: int) -> tuple[int, int] | None:
    """Return begin and end of the last sound record that begins in a range of positions; None without any."""
    back = _BACK_BYTES
    while high > low:
        begin = max(low, high - back)
        found = None
        for block in SegmentScan(segment, from_position=begin, to_position=high):
            if len(block):
                found = int(block.positions[-1]), int(block.positions[-1] + block.lengths[-1])
        if found is not None or begin == low:
            return found
        back *= 8
    return None


def _end_of(split: Split) -> int:
    """Return the commit-log offset from which a later run reads on if this one ends after a split.

    In the last segment with data it is the end of a record, where `latest_offsets` looks for one; a split may end
    inside its last record.
    """
    begin, end = split.offsets
    if not split.is_last:
        return end
    found = _last_record(split.segment, split.from_position, split.to_position)
    return end if found is None else max(begin, split.segment.base_offset + found[1])


@dataclass(frozen=True, slots=True)
class _Sign:
    """What identifies a log: a digest of one record, and the address of the broker that wrote it."""

    digest: str
    writer: str


def _signed(store: Store, offset: int) -> _Sign | None:
    """Return the sign of the record at an offset; None without a record, or if its properties are not written yet."""
    with store.log() as log:
        block = block_at(log, offset)
        if block is None or end_in_zeros(block)[0]:
            return None
        data = log.read(offset, int(block.lengths[0]))
        return _Sign(hashlib.blake2b(data, digest_size=16).hexdigest(), str(block.store_hosts()[0]))


def _writer(store: Store) -> str | None:
    """Return the address of the broker that wrote the first record of a log; None without any record."""
    for segment in store.commit_log:
        for block in SegmentScan(segment):
            if len(block):
                return str(block.take(np.array([0])).store_hosts()[0])
    return None


# Slots that queues get after a following audit has read their records: the broker writes queues after the log.
#
# Each split is compared with the slots that exist when it is read (`missing_ranges.py`); later slots are compared
# here.


def slot_counts(store: Store) -> dict[str, int]:
    """Return topic → queue offset after its last slot; an unreadable queue proves nothing and is skipped."""
    counts: dict[str, int] = {}
    for topic in TRANSACTION_TOPICS:
        try:
            with open_queue(store, topic, 0) as queue:
                counts[topic] = queue.max_offset
        except SourceError:
            continue
    return counts


def compared_slots(store: Store, counts: Mapping[str, int], offset: int) -> dict[str, int]:
    """Return topic → queue offset up to which slots are compared when the log is read up to `offset`.

    `counts`: the slots that existed before the log was read.
    """
    compared: dict[str, int] = {}
    for topic, count in counts.items():
        try:
            with open_queue(store, topic, 0) as queue:
                compared[topic] = min(count, queue.offset_of(offset))
        except SourceError:
            continue
    return compared


def unfound_late_slots(
    store: Store, compared: Mapping[str, int], offset: int
) -> Iterator[tuple[UnfoundSlot, Segment]]:
    """Return slots after the compared ones whose record before `offset` is missing, and its segment.

    Raises: UnreadableFile, FileChanged, for the log.
    """
    with store.log() as log:
        for topic in TRANSACTION_TOPICS:
            for slot in _late(store, topic, compared.get(topic), offset):
                segment = log.segment_at(slot.commit_log_offset)
                if segment is None or slot.commit_log_offset >= offset or _is_there(log, slot):
                    continue
                if topic != HALF_TOPIC or not is_shifted_slot(store, log, slot.queue_offset, slot.commit_log_offset):
                    yield slot, segment


def _late(store: Store, topic: str, first: int | None, offset: int) -> Iterator[UnfoundSlot]:
    try:
        with open_queue(store, topic, 0) as queue:
            begin = queue.min_offset if first is None else max(first, queue.min_offset)
            numbers, places, lengths, _ = queue.read(begin, queue.offset_of(offset))
    except SourceError:
        return
    for slot in zip(numbers.tolist(), places.tolist(), lengths.tolist(), strict=True):
        yield UnfoundSlot(topic, *slot)


def _is_there(log: SegmentedLog, slot: UnfoundSlot) -> bool:
    block = block_at(log, slot.commit_log_offset)
    return (
        block is not None
        and bool(block.topic_is(slot.topic)[0])
        and int(block.header("queue_offset")[0]) == slot.queue_offset
        and int(block.header("queue_id")[0]) == 0
    )
