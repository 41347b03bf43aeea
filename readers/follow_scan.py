"""How far an audit that follows has read each log, and the reading on: splits of the log into the checkpoint.

What stands before the last sound record of a log is final and read once. The last record and what is behind it, to the
end of the files, is read again each time as an audit reads it, and replaced; so what is known of a log is at any moment
what a scan of all of it would say. The last record proves that the log is still the one that was read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from readers.columns import Int64s
from readers.commit_log import last_with_data
from readers.consume_queue import open_queue
from readers.errors import FileChanged, SourceError
from readers.findings import Finding
from readers.follow_database import FollowDatabase, signed
from readers.growing_logs import latest_offsets
from readers.missing import UnfoundSlot
from readers.record_at import block_at
from readers.segment_scan import SegmentScan, Span
from readers.sources import Segment, SegmentedLog
from readers.splits import Split, SplitPlan
from readers.store import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC, Store
from readers.witness_scan import IDENTIFIED, Scanned, SplitWitnesses, column, scan_witnesses
from readers.workers import Progress, Workers, workers_count

#: What is read and written at once; a kill loses no more.
STEP_BYTES = 32 << 20
#: A log that grew by more while it was read is read on before anything is judged.
_TAIL_BYTES_MAX = 64 << 20
_BACK_BYTES = 64 << 10
_CHECKED_TOPICS = (HALF_TOPIC, OP_TOPIC, DISCARD_TOPIC)


@dataclass(slots=True)
class _Place:
    """How far a log is read.

    Units: commit-log offsets. `has_tail`: what stands from `offset` on was read too, but is not final. `anchor` is
    where a record stands by whose digest the log is known again. `compared`: the queue offset up to which a topic's
    slots were compared with the log.
    """

    offset: int = 0
    has_tail: bool = False
    end_offset: int = 0
    anchor: int = 0
    digest: str | None = None
    compared: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Said:
    """What the scans of a segment said beside its witnesses."""

    spans: list[Span] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    unfound: list[UnfoundSlot] = field(default_factory=list)
    halves_count: int = 0
    checks_seen_max: int = 0

    @staticmethod
    def of(text: str) -> _Said:
        value: dict[str, Any] = json.loads(text)
        return _Said(
            [Span(*entry) for entry in value["spans"]],
            [Finding(**entry) for entry in value["findings"]],
            [UnfoundSlot(*entry) for entry in value["unfound"]],
            value["halves_count"],
            value["checks_seen_max"],
        )

    def text(self) -> str:
        return json.dumps({
            "spans": [[span.kind, span.position_bytes, span.length_bytes] for span in self.spans],
            "findings": [asdict(finding) for finding in self.findings],
            "unfound": [list(asdict(slot).values()) for slot in self.unfound],
            "halves_count": self.halves_count,
            "checks_seen_max": self.checks_seen_max,
        })

    def add(self, scanned: Scanned) -> None:
        self.spans += scanned.spans
        self.findings += scanned.findings
        self.unfound += scanned.unfound
        self.halves_count += scanned.halves_count
        self.checks_seen_max = max(self.checks_seen_max, scanned.checks_seen_max)

    def before(self, base_offset: int, offset: int) -> _Said:
        """The same without what stands at or behind an offset."""
        return replace(
            self,
            spans=[span for span in self.spans if base_offset + span.position_bytes < offset],
            findings=[found for found in self.findings if (found.commit_log_offset or 0) < offset],
            unfound=[slot for slot in self.unfound if slot.commit_log_offset < offset],
        )

    def is_ended(self, size_bytes: int) -> bool:
        return any(span.position_bytes + span.length_bytes == size_bytes for span in self.spans)


class LogFollower:
    """One log's way into the checkpoint, for one snapshot of its store.

    Shape: `bytes_read` and `bytes_forgotten` of this snapshot; `has_grown`: whether there was anything new.
    """

    def __init__(self, database: FollowDatabase, store: Store) -> None:
        self.store = store
        self.number = database.numbers[store.root]
        self.bytes_read = self.bytes_forgotten = 0
        self.has_grown = False
        self._database = database
        self._place = _Place(**database.of_store(self.number, "place"))

    @property
    def offset(self) -> int:
        """The commit-log offset up to which it is read for good."""
        return self._place.offset

    # -- is it still that log? ----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Forget what is no more in the files, and see that the rest is what was read.

        Raises: FileChanged if the log was cut back, or is another one; UnreadableFile.
        """
        with self._database.transaction():
            self._forget()
            self._require_same()
            self._place.offset = max(self._place.offset, self.store.log_begin_offset)
            self._keep_place()

    def _segments(self) -> dict[int, tuple[int, _Said]]:
        rows = self._database.connection.execute(
            "SELECT base_offset, size_bytes, said FROM segments WHERE store = ? ORDER BY base_offset", (self.number,)
        )
        return {base: (size, _Said.of(said)) for base, size, said in rows}

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
        log = self.store.log()
        try:
            segment = log.segment_at(place.anchor)
            if segment is None and self.store.commit_log and place.anchor < log.end_offset:
                return  # its file has expired; what is left begins later
            digest = _digest(self.store, place.anchor)
        finally:
            log.close()
        if digest != place.digest:
            file = self.store.root if segment is None else segment.file
            position = None if segment is None else place.anchor - segment.base_offset
            raise self._changed(
                file, position, f"is not the log that was read: another record, or none, is at offset {place.anchor}"
            )

    def _changed(self, file: str, position: int | None, what: str) -> FileChanged:
        return FileChanged(
            f"{file} {what}: it was cut back by a recovery, or replaced",
            file=file, position_bytes=position,
            advice=f"begin anew: remove {self._database.path}, or give another checkpoint",
        )

    # -- reading on ---------------------------------------------------------------------------------------------------

    def read_on(self, at_end: bool, splits: SplitReader) -> None:
        """Read what is new, up to the end that the log has now.

        `at_end`: whether the files' bytes behind the last record are to be looked at where nothing is new.
        Raises: SourceError; what was read before is kept.
        """
        place, store = self._place, self.store
        if not store.commit_log:
            return
        visible = self._late_slots()
        while True:
            start = place.offset
            end = latest_offsets([store], {store.root: start}, None, skips_lost=True)[store.root]
            self.has_grown |= end != place.end_offset
            if place.has_tail and end == place.end_offset and not at_end:
                return
            last = last_with_data(store.commit_log)
            final = max(start, self._last_record_before(end, last, start))
            if final > start:
                self._read_final(start, final, last, splits)
                place.compared = {
                    topic: min(count, self._slots_before(topic, final)) for topic, count in visible.items()
                }
            again = latest_offsets([store], {store.root: place.offset}, None, skips_lost=True)[store.root]
            if again - end <= _TAIL_BYTES_MAX:
                break
        self._read_tail(last, end, splits)

    def _last_record_before(self, end: int, last_base: int, start: int) -> int:
        """Where the last sound record in front of an offset begins; the begin of its segment where it has none."""
        segment = next(segment for segment in self.store.commit_log if segment.base_offset == last_base)
        low, high = max(0, start - last_base), end - last_base
        back = _BACK_BYTES
        while high > low:
            begin = max(low, high - back)
            found = None
            for block in SegmentScan(segment, from_position=begin, to_position=high):
                found = int(block.positions[-1]) if len(block) else found
            if found is not None:
                return last_base + found
            if begin == low:
                break
            back *= 8
        return max(start, last_base)

    def _read_final(self, start: int, final: int, last: int, splits: SplitReader) -> None:
        plan = SplitPlan((self.store,), (last,), splits.step_bytes, start, final)
        for split, found in splits.read(plan):
            with self._database.transaction():
                self._cut_tail()
                self._add(split, found)
                self._place.offset = split.offsets[1]
                self._keep_place()
            self.bytes_read += found.scanned.decoded_bytes
        with self._database.transaction():
            self._cut_tail()
            self._place.offset = final
            self._keep_place()

    def _read_tail(self, last: int, end: int, splits: SplitReader) -> None:
        """Read from the last sound record to the end of the files; nothing of it is final."""
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
            digest = _digest(self.store, place.offset)
            if digest is not None:
                place.anchor, place.digest = place.offset, digest
            self._keep_place()

    def _cut_tail(self) -> None:
        """Take out what was read of a log's end before, for it is read again."""
        if not self._place.has_tail:
            return
        offset = self._place.offset
        self._database.drop(self.number, offset, 2**63 - 1)
        for base, (_, said) in self._segments().items():
            if base >= offset:
                self._database.connection.execute(
                    "DELETE FROM segments WHERE store = ? AND base_offset = ?", (self.number, base)
                )
            else:
                self._keep_said(base, said.before(base, offset))
        self._place.has_tail = False

    def _add(self, split: Split, found: SplitWitnesses) -> None:
        if found.scanned.error is not None:
            raise found.scanned.error
        said = self._said(split.segment)
        if said.is_ended(split.segment.size_bytes):
            return  # records behind the end of the data are those that a recovery once cut off
        database, number = self._database, self.number
        for name in IDENTIFIED:
            database.add(name, number, getattr(found, name), found.hashes[name])
            if database.meta("judges_all") is None:
                database.mark_unjudged(signed(found.hashes[name]))
        database.add("marks", number, found.marks, None)
        if database.meta("judges_all") is None:
            self._mark_named(np.unique(column(found.marks, "half_queue_offset")))
        self._add_strays(found.scanned)
        said.add(found.scanned)
        self._keep_said(split.segment.base_offset, said, split.segment.size_bytes)

    def _mark_named(self, half_queue_offsets: Int64s) -> None:
        """The transactions whose half copies new op marks name are to be judged."""
        for table in ("halves", "damaged_halves"):
            self._database.connection.executemany(
                f"INSERT OR IGNORE INTO unjudged SELECT hash FROM {table} INDEXED BY {table}_by_queue_offset "
                "WHERE store = ? AND queue_offset = ?",
                ((self.number, value) for value in half_queue_offsets.tolist()),
            )

    def _add_strays(self, scanned: Scanned) -> None:
        """Keep the decisions that name no half copy of their own transaction in any split so far."""
        run = self._database.connection.execute
        pairs = zip(scanned.stray_offsets.tolist(), scanned.stray_prepared_offsets.tolist(), strict=True)
        for offset, prepared in pairs:
            named = run(
                "SELECT hash FROM halves WHERE store = ? AND commit_log_offset = ?", (self.number, prepared)
            ).fetchone()
            own = run(
                "SELECT hash FROM finals WHERE store = ? AND commit_log_offset = ?", (self.number, offset)
            ).fetchone()
            if named is None or (own is not None and own != named):
                run("INSERT OR REPLACE INTO strays VALUES (?, ?, ?)", (self.number, offset, prepared))

    # -- queues that come later than the log --------------------------------------------------------------------------

    def _late_slots(self) -> dict[str, int]:
        """How many slots each queue has now; those that came late, for what was read before, are compared with it."""
        visible: dict[str, int] = {}
        for topic in _CHECKED_TOPICS:
            try:
                with open_queue(self.store, topic, 0) as queue:
                    visible[topic] = queue.max_offset
                    first = self._place.compared.get(topic)
                    if first is None:
                        continue
                    upto = queue.offset_of(self._place.offset)
                    numbers, places, lengths, _ = queue.read(first, upto)
            except SourceError:
                continue  # a queue that cannot be read proves nothing against the log
            late = zip(numbers.tolist(), places.tolist(), lengths.tolist(), strict=True)
            self._compare(UnfoundSlot(topic, *slot) for slot in late)
            self._place.compared[topic] = max(first, upto)
        return visible

    def _slots_before(self, topic: str, offset: int) -> int:
        try:
            with open_queue(self.store, topic, 0) as queue:
                return queue.offset_of(offset)
        except SourceError:
            return 0

    def _compare(self, slots: Iterable[UnfoundSlot]) -> None:
        log = self.store.log()
        try:
            for slot in slots:
                segment = log.segment_at(slot.commit_log_offset)
                if segment is None or slot.commit_log_offset >= self._place.offset or self._is_there(log, slot):
                    continue
                said = self._said(segment)
                said.unfound.append(slot)
                with self._database.transaction():
                    self._keep_said(segment.base_offset, said, segment.size_bytes)
        finally:
            log.close()

    @staticmethod
    def _is_there(log: SegmentedLog, slot: UnfoundSlot) -> bool:
        block = block_at(log, slot.commit_log_offset)
        return (
            block is not None
            and bool(block.topic_is(slot.topic)[0])
            and int(block.header("queue_offset")[0]) == slot.queue_offset
            and int(block.header("queue_id")[0]) == 0
        )

    # -- what is known of the whole log -------------------------------------------------------------------------------

    def scanned(self) -> list[Scanned]:
        """What a scan of the whole log would have said, by segment, in log order."""
        files = {segment.base_offset: segment for segment in self.store.commit_log}
        last = last_with_data(self.store.commit_log)
        parts: list[Scanned] = []
        for base, (_, said) in self._segments().items():
            if base not in files:
                continue  # a hole in the middle: the file of what is still being read is gone
            segment = files[base]
            split = Split(len(parts), self.store, segment, 0, segment.size_bytes, base >= last)
            parts.append(
                Scanned(
                    split, spans=said.spans, findings=said.findings, unfound=said.unfound,
                    halves_count=said.halves_count, checks_seen_max=said.checks_seen_max,
                )
            )
        return parts

    def strays(self) -> tuple[Int64s, Int64s]:
        """The decisions that name no half copy of their own: where they stand, and the offsets they name."""
        rows = self._database.connection.execute(
            "SELECT final_offset, prepared_offset FROM strays WHERE store = ? ORDER BY final_offset", (self.number,)
        ).fetchall()
        pairs = np.array(rows, np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    # -- keeping ------------------------------------------------------------------------------------------------------

    def _said(self, segment: Segment) -> _Said:
        row = self._database.connection.execute(
            "SELECT said FROM segments WHERE store = ? AND base_offset = ?", (self.number, segment.base_offset)
        ).fetchone()
        return _Said() if row is None else _Said.of(row[0])

    def _keep_said(self, base: int, said: _Said, size_bytes: int | None = None) -> None:
        run = self._database.connection.execute
        if size_bytes is None:
            run("UPDATE segments SET said = ? WHERE store = ? AND base_offset = ?", (said.text(), self.number, base))
        else:
            run("INSERT OR REPLACE INTO segments VALUES (?, ?, ?, ?)", (self.number, base, size_bytes, said.text()))

    def _keep_place(self) -> None:
        self._database.set_of_store(self.number, "place", asdict(self._place))


@dataclass(slots=True)
class SplitReader:
    """Reads splits, in processes where there are many bytes, never much ahead of who takes what they give."""

    workers: Workers
    processes: int
    step_bytes: int = STEP_BYTES
    progress: Progress | None = None
    total_bytes: int = 0
    done_bytes: int = 0

    def read(self, splits: Iterable[Split]) -> Iterator[tuple[Split, SplitWitnesses]]:
        """The splits with what was found in each, in their order."""
        scan = partial(scan_witnesses, at_ms=None)
        left = iter(splits)
        while some := list(islice(left, 2 * self.processes)):
            alone = [replace(s, store=replace(s.store, commit_log=(s.segment,), findings=())) for s in some]
            for split, found in zip(some, self.workers.run(scan, alone), strict=True):
                yield split, found
                self.done_bytes += split.to_position - split.from_position
                if self.progress is not None:
                    self.progress(min(self.done_bytes, self.total_bytes), self.total_bytes)


def split_reader(total_bytes: int, processes: int | None, progress: Progress | None) -> SplitReader:
    """A reader for so many new bytes."""
    count = workers_count(total_bytes, processes)
    return SplitReader(Workers(count), count, progress=progress, total_bytes=total_bytes)


def _digest(store: Store, offset: int) -> str | None:
    """What tells the record at an offset from any other; None where there is none."""
    log = store.log()
    try:
        block = block_at(log, offset)
        if block is None:
            return None
        data = log.read(offset, int(block.lengths[0]))
        return hashlib.blake2b(data, digest_size=16).hexdigest()
    finally:
        log.close()
