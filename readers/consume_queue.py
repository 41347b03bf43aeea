"""Consume queues: for every topic and queue number the places of its records in the commit log, in queue order.

A slot's queue offset is its place: (file name + position) / 20. An unused slot is zeros; the last slot that is not
zeros ends the queue, so zeros before it are damage and zeros after it are preallocated space. A queue that began
above 0 has pre-blank slots in front. In batch queues a slot stands for several messages and carries its queue offset.

Queues are derived: the commit log is believed wherever the two differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from readers.errors import FileChanged, UnreadableFile
from readers.findings import Finding, as_text
from readers.layout import Field, Layout, VariablePart
from readers.reading import Coverage, Reading
from readers.sources import OpenFile, Segment, SegmentedLog
from readers.store import Store
from readers.tables import QUEUE_SLOTS

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]
Slots = npt.NDArray[np.void]

SLOT = Layout(
    "slot",
    "Entry of a consume queue",
    (
        Field("commit_log_offset", "q", "global position of the record", "byte"),
        Field("record_length_bytes", "i", "whole record; 7FFFFFFF in a pre-blank entry", "byte"),
        Field("tags_code", "q", "Java hash of the tag, due time in ms (delayed topics), or address in the extension"),
    ),
    20,
    "store/ConsumeQueue.java putMessagePositionInfo, FORMATS 3.1",
)
BATCH_SLOT = Layout(
    "batch_slot",
    "Entry of a batch consume queue",
    (
        Field("commit_log_offset", "q", "global position of the record", "byte"),
        Field("record_length_bytes", "i", "whole record", "byte"),
        Field("tags_code", "q", "Java hash of the tag"),
        Field("store_time_ms", "q", "broker clock at append", "ms"),
        Field("first_queue_offset", "q", "queue offset of the first message in it"),
        Field("batch_size", "h", "messages in it"),
        Field("compacted_offset", "i", "-1 unless the topic is compacted"),
        Field("reserved", "i", "unused"),
    ),
    46,
    "store/queue/BatchConsumeQueue.java putBatchMessagePositionInfo, FORMATS 3.5",
    since="5.0.0",
)
EXTENSION_UNIT = Layout(
    "extension_unit",
    "Unit of a consume queue's extension file",
    (
        Field("length_bytes", "h", "whole unit; -1 marks the end of the file", "byte"),
        Field("tags_code", "q", "what would stand in the slot"),
        Field("store_time_ms", "q", "broker clock at append", "ms"),
        Field("bitmap_length_bytes", "h", "filter bitmap that follows", "byte"),
    ),
    20,
    "store/ConsumeQueueExt.java CqExtUnit, FORMATS 3.4",
    (VariablePart("bitmap", "bitmap_length_bytes", "which consumer groups' filters match"),),
)

PRE_BLANK_LENGTH = 0x7FFFFFFF
#: Tags code of a slot whose record a bundle left out; its length is that of a pre-blank slot, its place the nearest
#: one in the log that the bundle has. No broker writes one.
LEFT_OUT_TAGS = int.from_bytes(b"RMQTXOUT", "big")
#: Tags codes up to this one are addresses in the extension file, counted from the smallest 64-bit number.
EXTENSION_ADDRESS_MAX = -(2**31) - 1
_ADDRESS_BITS = 2**63 - 1

BLOCK_SLOTS = 65_536
#: Bytes of an extension file held at a time while addresses are looked up in it.
_WINDOW_BYTES = 4 << 20
#: A file of garbage would make a finding of every second slot; what is beyond this is told in one.
_FINDINGS_MAX = 100
_PROBE_SLOTS = 64
#: What is fetched at once when the end of a queue's last file turns out to be unused: the usual file is no longer.
_PREPARED_BYTES = 6 << 20


def are_pre_blank(slots: Slots) -> Bools:
    """Which slots of a simple queue only fill the place before its first record."""
    pre_blank: Bools = (slots["commit_log_offset"] == 0) & (slots["record_length_bytes"] == PRE_BLANK_LENGTH)
    pre_blank &= slots["tags_code"] == 0
    return pre_blank


def are_left_out(slots: Slots) -> Bools:
    """Which slots of a simple queue are of records that a bundle left out."""
    left_out: Bools = (slots["record_length_bytes"] == PRE_BLANK_LENGTH) & (slots["tags_code"] == LEFT_OUT_TAGS)
    return left_out


def are_filler(slots: Slots) -> Bools:
    """Which slots of a simple queue stand for no record that is here: nothing is missing there."""
    return are_pre_blank(slots) | are_left_out(slots)


def are_sound(slots: Slots) -> Bools:
    """Which slots can be: the broker's own rule (ConsumeQueue.java recover), and that a slot is no filler."""
    sound: Bools = (slots["commit_log_offset"] >= 0) & (slots["record_length_bytes"] > 0)
    if slots.dtype == BATCH_SLOT.dtype:
        sound &= (slots["first_queue_offset"] >= 0) & (slots["batch_size"] > 0)
        return sound
    return sound & ~are_filler(slots)


def _is_usable(slots: Slots) -> Bools:
    return are_sound(slots) | are_filler(slots)


def _is_not_zero(slots: Slots) -> Bools:
    raw = np.frombuffer(slots, np.uint8).reshape(len(slots), slots.dtype.itemsize)
    return np.asarray(raw.any(axis=1))


def _native(slots: Slots, name: str, kind: type[np.signedinteger[Any]] = np.int64) -> npt.NDArray[Any]:
    return slots[name].astype(kind)


def _slots(data: bytes, layout: Layout) -> Slots:
    return np.frombuffer(data, layout.dtype, len(data) // layout.size_bytes)


def _end_of(file: OpenFile, layout: Layout, is_wanted: Callable[[Slots], Bools]) -> int:
    """Position just past the last wanted slot; 0 if there is none. Reads backwards, and no holes."""
    size = layout.size_bytes
    end = file.size_bytes // size * size
    while end > 0:
        begin = (end - 1) // (BLOCK_SLOTS * size) * BLOCK_SLOTS * size
        if file.next_data(begin) < end:
            wanted = is_wanted(_slots(file.read(begin, end - begin), layout))
            if wanted.any():
                return begin + (len(wanted) - int(wanted[::-1].argmax())) * size
            file.prepare([(max(0, begin - _PREPARED_BYTES), min(begin, _PREPARED_BYTES))])
        end = begin
    return 0


def _last_used(
    segments: tuple[Segment, ...], layout: Layout, is_wanted: Callable[[Slots], Bools]
) -> tuple[int, int] | None:
    """Number of the last segment with a wanted slot, and the position past that slot."""
    for number in range(len(segments) - 1, -1, -1):
        with segments[number].open() as file:
            end = _end_of(file, layout, is_wanted)
        if end:
            return number, end
    return None


def used_end(segments: tuple[Segment, ...], layout: Layout) -> int:
    """Number past the last slot that is not zeros, of the files of a queue; 0 if there is none.

    Raises: UnreadableFile, FileChanged.
    """
    last = _last_used(segments, layout, _is_not_zero)
    return 0 if last is None else (segments[last[0]].base_offset + last[1]) // layout.size_bytes


def _addressable(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """The segments that a 64-bit offset can name: 20 digits can say more, and a broker would not start on them."""
    return tuple(segment for segment in segments if segment.end_offset < 2**63)


def _is_well_named(segment: Segment, layout: Layout) -> bool:
    return segment.base_offset % layout.size_bytes == 0 and bool(_addressable((segment,)))


def _queue_findings(findings: list[Finding]) -> list[Finding]:
    """The findings about a queue's files in a queue's words."""
    return [
        replace(finding, code="queue-gap", commit_log_offset=None) if finding.code == "segment-gap" else finding
        for finding in findings
    ]


@dataclass(slots=True)
class _Runs:
    """Slots of one file that one thing is wrong with: each run of neighbours becomes one finding."""

    store: str
    file: str
    code: str
    expected: str
    findings: list[Finding]
    meaning: str | None = None
    _open: tuple[int, int] | None = None
    _made: int = 0

    def add(self, wrong: Bools, position_bytes: int, unit_bytes: int) -> None:
        """The slots of one block, in file order."""
        edges = np.flatnonzero(np.diff(wrong, prepend=False, append=False))
        for begin, end in (edges.reshape(-1, 2) * unit_bytes + position_bytes).tolist():
            self.add_range(begin, end)

    def add_range(self, begin: int, end: int) -> None:
        """Bytes of the file from `begin` to `end`."""
        if self._open is not None and (self._open[1] == begin or self._made == _FINDINGS_MAX - 1):
            self._open = (self._open[0], end)
            return
        self.close()
        self._open = (begin, end)

    def close(self) -> None:
        """Nothing more follows."""
        if self._open is None:
            return
        begin, end = self._open
        more = "more damage than is told one by one, from here on" if self._made == _FINDINGS_MAX - 1 else None
        self.findings.append(
            Finding(
                self.store, self.code, self.file, begin, end - begin,
                expected=self.expected, actual=more, meaning=self.meaning,
            )
        )
        self._made += 1
        self._open = None


class _Extension:
    """The extension files of one queue (enableConsumeQueueExt=true), by address."""

    def __init__(self, store: Store, topic: str, queue_id: int) -> None:
        segments, found = store.queue_segments(topic, queue_id, "consumequeue_ext")
        self._store = store.root
        self._segments = _addressable(segments)
        self.findings = _queue_findings(found)
        self._bases = np.array([segment.base_offset for segment in self._segments], np.int64)

    def resolve(self, tags_codes: Int64s) -> tuple[Int64s, Bools]:
        """The tags codes with addresses followed, and which of them had an address that leads nowhere."""
        rows = np.flatnonzero(tags_codes <= EXTENSION_ADDRESS_MAX)
        lost = np.zeros(len(tags_codes), np.bool_)
        if not len(rows):
            return tags_codes, lost
        resolved = tags_codes.copy()
        lost[rows] = True
        places = tags_codes[rows] & _ADDRESS_BITS
        numbers = np.searchsorted(self._bases, places, "right") - 1
        for number in np.unique(numbers[numbers >= 0]).tolist():
            mine = numbers == number
            self._resolve_in(self._segments[number], rows[mine], places[mine], resolved, lost)
        return resolved, lost

    def _resolve_in(self, segment: Segment, rows: Int64s, places: Int64s, resolved: Int64s, lost: Bools) -> None:
        order = np.argsort(places, kind="stable")
        rows, positions = rows[order], places[order] - segment.base_offset
        inside = positions <= segment.size_bytes - EXTENSION_UNIT.size_bytes
        rows, positions = rows[inside], positions[inside]
        try:
            with segment.open() as file:
                done = 0
                while done < len(positions):
                    begin = int(positions[done])
                    upto = int(np.searchsorted(positions, begin + _WINDOW_BYTES))
                    self._resolve_window(file, rows[done:upto], positions[done:upto], resolved, lost)
                    done = upto
        except (UnreadableFile, FileChanged) as error:
            self.findings.append(_unreadable(segment.file, self._store, error))

    @staticmethod
    def _resolve_window(file: OpenFile, rows: Int64s, positions: Int64s, resolved: Int64s, lost: Bools) -> None:
        begin = int(positions[0])
        data = np.frombuffer(file.read(begin, int(positions[-1]) - begin + EXTENSION_UNIT.size_bytes), np.uint8)
        cut = np.lib.stride_tricks.sliding_window_view(data, EXTENSION_UNIT.size_bytes)[positions - begin]
        units = np.frombuffer(np.ascontiguousarray(cut), EXTENSION_UNIT.dtype)
        good = units["length_bytes"] == EXTENSION_UNIT.size_bytes + units["bitmap_length_bytes"].astype(np.int32)
        good &= units["bitmap_length_bytes"] >= 0
        resolved[rows[good]] = units["tags_code"][good]
        lost[rows[good]] = False


def _unreadable(file: str, store: str, error: UnreadableFile | FileChanged) -> Finding:
    return Finding(store, "unreadable-file", file, error.position_bytes, actual=error.message)


# --- random access ---------------------------------------------------------------------------------------------------


class Queue:
    """One consume queue for reading some of its slots; reads nothing but what is asked for.

    Shape:  `first_offset` is the first slot that a file holds, `min_offset` the first one whose record the commit log
            can still hold, `max_offset` the one after the last; all 0 where the queue does not exist.
    Damage: `findings` grows with what was met; slots that cannot be are left out.
    """

    def __init__(self, store: Store, topic: str, queue_id: int) -> None:
        """Raises: UnreadableFile, FileChanged."""
        segments, found = store.queue_segments(topic, queue_id)
        self.store = store.root
        self.topic = topic
        self.queue_id = queue_id
        self.findings = _queue_findings(found)
        self._segments = tuple(segment for segment in segments if _is_well_named(segment, SLOT))
        self.findings.extend(_misnamed(store, segment, SLOT) for segment in segments if segment not in self._segments)
        self._log = SegmentedLog(self._segments)
        self._extension: _Extension | None = None
        self._store = store
        self.first_offset = self.max_offset = self.min_offset = 0
        if self._segments:
            self.first_offset = self.max_offset = self._segments[0].base_offset // SLOT.size_bytes
            last = _last_used(self._segments, SLOT, _is_usable)
            if last is not None:
                number, end = last
                self.max_offset = (self._segments[number].base_offset + end) // SLOT.size_bytes
            self.min_offset = self.offset_of(store.log_begin_offset)

    def __enter__(self) -> Queue:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give all descriptors back."""
        self._log.close()

    @property
    def exists(self) -> bool:
        """Whether the queue has a file."""
        return bool(self._segments)

    def read(self, from_queue_offset: int, to_queue_offset: int) -> tuple[Int64s, Int64s, Int32s, Int64s]:
        """The sound slots of [from, to): queue offsets, commit-log offsets, record lengths, tags codes.

        Shape:  four arrays of the same length; pre-blank slots and slots that cannot be are left out. Addresses in
                the extension are followed; one that leads nowhere stays as it is.
        Units:  bytes. 24 bytes of memory per slot: ask in portions for long ranges.
        Order:  queue offset ascending.
        Damage: slot-invalid.
        Raises: UnreadableFile, FileChanged.
        """
        kept: list[Slots] = []
        offsets: list[Int64s] = []
        for first, slots in self._blocks(max(from_queue_offset, self.first_offset), to_queue_offset):
            sound = are_sound(slots)
            self._tell(first, ~(sound | are_filler(slots)))
            kept.append(slots[sound])
            offsets.append(np.flatnonzero(sound) + first)
        slots = np.concatenate(kept) if kept else np.empty(0, SLOT.dtype)
        queue_offsets = np.concatenate(offsets) if offsets else np.empty(0, np.int64)
        tags_codes: Int64s = _native(slots, "tags_code")
        if (tags_codes <= EXTENSION_ADDRESS_MAX).any():
            if self._extension is None:
                self._extension = _Extension(self._store, self.topic, self.queue_id)
            tags_codes = self._extension.resolve(tags_codes)[0]
            self.findings.extend(self._extension.findings)
            self._extension.findings = []
        lengths: Int32s = _native(slots, "record_length_bytes", np.int32)
        return queue_offsets, _native(slots, "commit_log_offset"), lengths, tags_codes

    def offset_of(self, commit_log_offset: int) -> int:
        """Queue offset of the first slot that points at or behind a place of the commit log; `max_offset` if none does.

        Searches by halves, because a queue's records lie in the log in the queue's order.
        Raises: UnreadableFile, FileChanged.
        """
        low, high = self.first_offset, self.max_offset
        while low < high:
            middle = (low + high) // 2
            found = self._place_from(middle, high)
            if found is None or found[1] >= commit_log_offset:
                high = middle
            else:
                low = found[0] + 1
        # what was skipped as damaged stands before the slot that was meant
        following = self._place_from(low, self.max_offset)
        return self.max_offset if following is None else following[0]

    def _place_from(self, queue_offset: int, end: int) -> tuple[int, int] | None:
        """The first usable slot in [queue_offset, end) with its commit-log offset; -1 for a pre-blank one."""
        step = _PROBE_SLOTS
        while queue_offset < end:
            upto = min(queue_offset + step, end)
            for first, slots in self._blocks(queue_offset, upto):
                usable = np.flatnonzero(_is_usable(slots))
                if len(usable):
                    slot = slots[usable[0]]
                    is_filler = bool(are_pre_blank(slots[usable[:1]])[0])
                    return first + int(usable[0]), -1 if is_filler else int(slot["commit_log_offset"])
            queue_offset, step = upto, min(step * 4, BLOCK_SLOTS)
        return None

    def _blocks(self, from_offset: int, to_offset: int) -> Iterator[tuple[int, Slots]]:
        """Slots of [from, to) as far as files hold them, with the queue offset of each block's first."""
        to_offset = min(to_offset, self.max_offset)
        for segment in self._segments:
            first = max(from_offset, segment.base_offset // SLOT.size_bytes)
            end = min(to_offset, segment.base_offset // SLOT.size_bytes + segment.size_bytes // SLOT.size_bytes)
            while first < end:
                count = min(end - first, BLOCK_SLOTS)
                yield first, _slots(self._log.read(first * SLOT.size_bytes, count * SLOT.size_bytes), SLOT)
                first += count

    def _tell(self, first: int, wrong: Bools) -> None:
        if not wrong.any():
            return
        segment = self._log.segment_at(first * SLOT.size_bytes)
        assert segment is not None
        runs = _Runs(self.store, segment.file, "slot-invalid", "an offset and a length", self.findings)
        runs.add(wrong, first * SLOT.size_bytes - segment.base_offset, SLOT.size_bytes)
        runs.close()


def open_queue(store: Store, topic: str, queue_id: int) -> Queue:
    """One queue for random access; one that does not exist is empty and says so.

    Raises: UnreadableFile, FileChanged.
    """
    return Queue(store, topic, queue_id)


# --- full scan -------------------------------------------------------------------------------------------------------


def scan_slots(
    store: Store,
    *,
    topic: str | None = None,
    queue_id: int | None = None,
    from_queue_offset: int | None = None,
    to_queue_offset: int | None = None,
) -> Reading:
    """Every slot of the consume queues in files, or of one topic, one queue number, one range of queue offsets.

    Shape:  rows of QUEUE_SLOTS, at most 65,536 a batch; pre-blank slots are rows without offset and length, slots whose
            record a bundle left out are none.
    Order:  simple queues, then batch queues; topic, queue number, position.
    Damage: slot-invalid (no row), slot-expired and slot-dangling (a row), queue-gap, segment-size, stray-file,
            unreadable-file.
    Source: store/ConsumeQueue.java, store/queue/BatchConsumeQueue.java; FORMATS 3.
    """
    reading = Reading(QUEUE_SLOTS, ())
    bounds = (from_queue_offset or 0, 2**63 - 1 if to_queue_offset is None else to_queue_offset)
    reading.batches = _scan(store, reading, topic, queue_id, bounds)
    return reading


def _scan(
    store: Store, reading: Reading, topic: str | None, queue_id: int | None, bounds: tuple[int, int]
) -> Iterator[pa.RecordBatch]:
    for directory, layout in (("consumequeue", SLOT), ("batchconsumequeue", BATCH_SLOT)):
        wanted = (
            (name, number)
            for name, number in store.queues(directory)
            if topic in (None, name) and queue_id in (None, number)
        )
        for name, number in store.prepared_queues(wanted, directory):
            yield from _QueueScan(store, reading, name, number, directory, layout, bounds).batches()


def _misnamed(store: Store, segment: Segment, layout: Layout) -> Finding:
    return Finding(
        store.root, "slot-invalid", segment.file, 0, segment.size_bytes,
        expected=f"a file name that is a multiple of {layout.size_bytes} and a 64-bit number",
        actual=str(segment.base_offset),
    )


@dataclass(slots=True)
class _QueueScan:
    store: Store
    reading: Reading
    topic: str
    queue_id: int
    directory: str
    layout: Layout
    bounds: tuple[int, int]
    _extension: _Extension | None = field(default=None, init=False)

    @property
    def _is_batch(self) -> bool:
        return self.layout is BATCH_SLOT

    def batches(self) -> Iterator[pa.RecordBatch]:
        segments, found = self.store.queue_segments(self.topic, self.queue_id, self.directory)
        self.reading.findings.extend(_queue_findings(found))
        try:
            last = _last_used(segments, self.layout, _is_not_zero)
        except (UnreadableFile, FileChanged):  # told below, where the file is read
            last = len(segments) - 1, segments[-1].size_bytes
        for number, segment in enumerate(segments):
            used = 0
            if last is not None and number <= last[0]:
                used = last[1] if number == last[0] else segment.size_bytes
            yield from self._segment(segment, used)

    def _segment(self, segment: Segment, used_bytes: int) -> Iterator[pa.RecordBatch]:
        coverage = Coverage(self.store.root, segment.file, segment.size_bytes)
        self.reading.coverage.append(coverage)
        size = self.layout.size_bytes
        if not _is_well_named(segment, self.layout):
            coverage.damaged_bytes = segment.size_bytes
            self.reading.findings.append(_misnamed(self.store, segment, self.layout))
            return
        begin, end = self._wanted(segment)
        whole = segment.size_bytes // size * size
        invalid = self._runs(segment, "slot-invalid", "an offset and a length")
        try:
            with segment.open() as file:
                stop = min(end, used_bytes, whole)
                for position in range(begin, stop, BLOCK_SLOTS * size):
                    data = file.read(position, min(BLOCK_SLOTS * size, stop - position))
                    yield from self._block(segment, coverage, _slots(data, self.layout), position, invalid)
                coverage.filler_bytes += max(0, min(end, whole) - max(begin, stop))
                if end == segment.size_bytes and whole < end:
                    self._rest(coverage, file.read(whole, end - whole), whole, invalid)
        except (UnreadableFile, FileChanged) as error:
            self.reading.findings.append(_unreadable(segment.file, self.store.root, error))
        finally:
            invalid.close()

    def _runs(self, segment: Segment, code: str, expected: str, meaning: str | None = None) -> _Runs:
        return _Runs(self.store.root, segment.file, code, expected, self.reading.findings, meaning)

    def _wanted(self, segment: Segment) -> tuple[int, int]:
        """The range of the file that the bounds leave; its end where they reach the last whole slot."""
        if self._is_batch:  # which slots are wanted stands in the slots
            return 0, segment.size_bytes
        size = self.layout.size_bytes
        begin = min(max(self.bounds[0] * size - segment.base_offset, 0), segment.size_bytes)
        end = max(self.bounds[1] * size - segment.base_offset, begin)
        return begin, segment.size_bytes if end >= segment.size_bytes else end

    @staticmethod
    def _rest(coverage: Coverage, rest: bytes, position: int, invalid: _Runs) -> None:
        """What a length that is no multiple of the slot's leaves over."""
        if rest.strip(b"\0"):
            coverage.damaged_bytes += len(rest)
            invalid.add_range(position, position + len(rest))
        else:
            coverage.filler_bytes += len(rest)

    def _block(
        self, segment: Segment, coverage: Coverage, slots: Slots, position: int, invalid: _Runs
    ) -> Iterator[pa.RecordBatch]:
        size = self.layout.size_bytes
        sound = are_sound(slots)
        pre_blank = np.zeros(len(slots), np.bool_) if self._is_batch else are_pre_blank(slots)
        filler = pre_blank if self._is_batch else are_filler(slots)
        wrong = ~(sound | filler)
        if wrong.any():
            invalid.add(wrong, position, size)
        coverage.damaged_bytes += int(wrong.sum()) * size
        coverage.filler_bytes += int(filler.sum()) * size
        if self._is_batch:
            first, count = _native(slots, "first_queue_offset"), _native(slots, "batch_size")
            sound &= (first < self.bounds[1]) & (first > self.bounds[0] - count)
        coverage.decoded_bytes += int(sound.sum()) * size
        rows = np.flatnonzero(sound | pre_blank)
        if not len(rows):
            return
        self._tell_dangling(segment, slots, sound, position)
        yield self._rows(segment, slots[rows], rows * size + position)

    def _tell_dangling(self, segment: Segment, slots: Slots, sound: Bools, position: int) -> None:
        begins = _native(slots, "commit_log_offset")
        ends = begins + _native(slots, "record_length_bytes")
        log = _addressable(self.store.commit_log)
        bases = np.array([part.base_offset for part in log], np.int64)
        limits = np.array([part.end_offset for part in log], np.int64)
        numbers = np.searchsorted(bases, begins, "right") - 1
        inside = np.zeros(len(slots), np.bool_)
        known = np.flatnonzero(numbers >= 0)
        inside[known] = ends[known] <= limits[numbers[known]]
        dangling = sound & ~inside
        if dangling.any():
            held = ", ".join(f"[{low}, {high})" for low, high in _merged(log)) or "a commit log"
            expired = dangling & (begins < min((low for low, _ in _merged(log)), default=0))
            for code, wrong in (("slot-expired", expired), ("slot-dangling", dangling & ~expired)):
                runs = self._runs(segment, code, f"an offset in {held}")
                runs.add(wrong, position, self.layout.size_bytes)
                runs.close()

    def _rows(self, segment: Segment, slots: Slots, positions: Int64s) -> pa.RecordBatch:
        count = len(slots)
        pre_blank = np.zeros(count, np.bool_) if self._is_batch else are_pre_blank(slots)
        tags_codes: Int64s = _native(slots, "tags_code")
        addressed = np.zeros(count, np.bool_) if self._is_batch else tags_codes <= EXTENSION_ADDRESS_MAX
        resolved, lost = self._resolved(segment, tags_codes, positions) if addressed.any() else (tags_codes, addressed)
        if self._is_batch:
            queue_offsets = _native(slots, "first_queue_offset")
            times = pa.array(_native(slots, "store_time_ms"))
            sizes = pa.array(_native(slots, "batch_size", np.int16))
        else:
            queue_offsets = (segment.base_offset + positions) // self.layout.size_bytes
            times, sizes = pa.nulls(count, pa.int64()), pa.nulls(count, pa.int16())
        kinds = pa.array(["batch" if self._is_batch else "simple", "pre-blank"])
        columns = [
            _same(self.store.root, count),
            _same(segment.file, count),
            pa.array(positions),
            pa.repeat(pa.scalar(self.layout.size_bytes, pa.int32()), count),
            _same(as_text(self.topic), count),
            pa.repeat(pa.scalar(self.queue_id, pa.int32()), count),
            pa.array(queue_offsets),
            pa.array(_native(slots, "commit_log_offset"), mask=pre_blank),
            pa.array(_native(slots, "record_length_bytes", np.int32), mask=pre_blank),
            pa.array(resolved, mask=pre_blank | lost),
            kinds.take(pa.array(pre_blank.astype(np.int8))),
            times,
            sizes,
            pa.array(tags_codes & _ADDRESS_BITS, mask=~addressed),
        ]
        return pa.record_batch(columns, schema=QUEUE_SLOTS)

    def _resolved(self, segment: Segment, tags_codes: Int64s, positions: Int64s) -> tuple[Int64s, Bools]:
        if self._extension is None:
            self._extension = _Extension(self.store, self.topic, self.queue_id)
        resolved, lost = self._extension.resolve(tags_codes)
        self.reading.findings.extend(self._extension.findings)
        self._extension.findings = []
        if lost.any():
            runs = self._runs(
                segment, "slot-invalid", "an address that consumequeue_ext/ holds", "only the tag's hash is unknown"
            )
            spread = positions[lost]
            for begin in spread[:_FINDINGS_MAX].tolist():
                runs.add_range(begin, begin + self.layout.size_bytes)
            runs.close()
        return resolved, lost


def _merged(log: tuple[Segment, ...]) -> list[tuple[int, int]]:
    """The ranges that files hold without a gap; the first few, for a sentence."""
    cuts = [number + 1 for number, (one, two) in enumerate(pairwise(log)) if one.end_offset != two.base_offset]
    edges = [0, *cuts, len(log)] if log else [0]
    return [(log[low].base_offset, log[high - 1].end_offset) for low, high in pairwise(edges)][:3]


def _same(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)
