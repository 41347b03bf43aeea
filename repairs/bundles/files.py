"""The files of a bundle, planned before any is written: sparse segments, reduced queues, small files.

Between two kept records of a segment there is one record of LEFT_OUT_TOPIC (several for a long range) with a body of
zeros, which is a hole on disk; a blank record ends every segment except the last. So the log stays a chain of sound
records at their own offsets, and every reader, including a broker, can read it. A slot of a left-out record keeps its
number and loses its offset (`consume_queue.are_left_out`).
"""

from __future__ import annotations

import functools
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

import numpy as np

from rmqtx.readers.log.commit_log import written_bytes
from rmqtx.readers.log.dledger import BLANK_MAGIC, ENTRY_HEADER, ENTRY_MAGIC
from rmqtx.readers.log.record_layout import BLANK, MAGIC_V1, RECORD, RECORD_BYTES_MIN, signed
from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.queues.consume_queue import LEFT_OUT_TAGS, PRE_BLANK_LENGTH, SLOT, Slots, are_pre_blank, are_sound
from rmqtx.readers.queues.slot_files import SIMPLE, slot_files, topic_bytes
from rmqtx.readers.queues.unit_files import BLOCK_UNITS
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.store import LEFT_OUT_TOPIC, Store
from rmqtx.repairs.records.record_writer import blank_head

#: Longer ranges become several records, because readers need a record's length in memory.
_LEFT_OUT_BYTES_MAX = 4 << 20
_PIECE_BYTES = 1 << 20
#: A queue that ends at most this number of files after its last kept slot is kept to its end.
_FILES_BEHIND_MAX = 16

Change = Callable[[bytes], bytes]
_BLANK = struct.Struct(">ii")


class ChangeBytes(Protocol):
    """Changes bytes at a commit-log offset that are not a record."""

    def __call__(self, data: bytes, *, offset: int) -> bytes:
        """Return the same number of bytes."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Bytes at a position of a file, read when they are written. Units: bytes."""

    position_bytes: int
    length_bytes: int
    pieces: Callable[[], Iterator[bytes]]

    @staticmethod
    def of(position_bytes: int, data: bytes) -> Extent:
        """Make an extent from bytes in memory."""
        return Extent(position_bytes, len(data), lambda: iter((data,)))


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file of the bundle by its path below the bundle's root; everything outside its extents is a hole.

    Order: extents by position, none touching another.
    """

    path: str
    size_bytes: int
    extents: tuple[Extent, ...]

    @staticmethod
    def of(path: str, data: bytes) -> PlannedFile:
        """Make a small file from bytes in memory."""
        return PlannedFile(path, len(data), (Extent.of(0, data),) if data else ())


@dataclass(frozen=True, slots=True, order=True)
class KeptRange:
    """A range of the commit log that the bundle has. Units: bytes of the commit log.

    Shape: `kind`: `record` (a sound record), `bytes` (unchanged), or `hole` (damaged bytes without content: they stay
           damaged).
    """

    offset: int
    length_bytes: int
    kind: str = field(default="record", compare=False)


# --- the commit log ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeptLog:
    """What the segments of a bundle have of the log. Units: milliseconds.

    `change`, `change_bytes`: what becomes of a kept record, and of kept bytes. `times`: commit-log offset of each kept
    record → its store time. `last_offset`: the begin of the last segment with data. `last_time_ms`: store time at the
    end of the log; a last left-out record gets it, because the checkpoint would be ahead of the log otherwise.
    """

    change: Change
    change_bytes: ChangeBytes
    times: Mapping[int, int]
    last_offset: int
    last_time_ms: int


def planned_segment(segment: Segment, path: str, kept: list[KeptRange], log: KeptLog) -> PlannedFile:
    """Plan a segment with its kept ranges, ascending."""
    times = log.times
    has_data, is_last = segment.base_offset <= log.last_offset, segment.base_offset >= log.last_offset
    extents: list[Extent] = []
    position, time_ms = 0, next((times[one.offset] for one in kept if one.offset in times), 0)
    for one in kept:
        frame = segment.frame_bytes if one.kind == "record" else 0
        begin = one.offset - segment.base_offset
        extents.extend(_left_out(segment, position, begin - frame, time_ms))
        time_ms = times.get(one.offset, time_ms)
        position = begin + one.length_bytes
        if one.kind != "hole":
            chosen = log.change if one.kind == "record" else functools.partial(log.change_bytes, offset=one.offset)
            extents.append(_kept(segment, begin, one.length_bytes, chosen, frame))
    left = segment.size_bytes - position
    if has_data and not is_last and left >= BLANK.size_bytes:
        extents.append(Extent.of(position, blank_entry(left) if segment.frame_bytes else blank_head(left)))
    end = position + segment.frame_bytes + RECORD_BYTES_MIN + len(LEFT_OUT_TOPIC)
    if has_data and is_last and end <= written_bytes(segment) and log.last_time_ms > time_ms:
        extents.extend(_left_out(segment, position, end, log.last_time_ms))
    return PlannedFile(path, segment.size_bytes, tuple(extents))


def _kept(segment: Segment, position: int, length: int, change: Change, frame: int) -> Extent:
    """A kept record, with the header of its DLedger entry if the log has entries; or kept bytes."""

    def pieces() -> Iterator[bytes]:
        with segment.open() as file:
            head, raw = file.read(position - frame, frame), file.read(position, length)
        data = change(raw)
        if frame:
            data = entry_of(head, raw, data) + data
        for begin in range(0, len(data), _PIECE_BYTES):
            yield data[begin : begin + _PIECE_BYTES]

    return Extent(position - frame, frame + length, pieces)


def _left_out(segment: Segment, begin: int, end: int, time_ms: int) -> Iterator[Extent]:
    """Yield the records in place of [begin, end) of a segment; if there is no room for one, the bytes stay zero."""
    topic, frame = LEFT_OUT_TOPIC.encode(), segment.frame_bytes
    least = frame + RECORD_BYTES_MIN + 1
    if end - begin < least:
        return
    count = -(-(end - begin) // _LEFT_OUT_BYTES_MAX)
    edges = [begin + (end - begin) * number // count for number in range(count + 1)]
    for low, high in pairwise(edges):
        length = high - low - frame
        name = topic[: length - RECORD_BYTES_MIN]
        body_length = length - RECORD_BYTES_MIN - len(name)
        place = segment.base_offset + low
        header = left_out_entry(place, length) if frame else b""
        header += RECORD.pack(
            length_bytes=length, magic=signed(MAGIC_V1), body_crc=_crc_of_zeros(body_length),
            commit_log_offset=place + frame, born_time_ms=time_ms, store_time_ms=time_ms,
            body_length_bytes=body_length,
        )
        tail = bytes([len(name)]) + name + b"\0\0"
        if body_length:
            yield Extent.of(low, header)
            yield Extent.of(high - len(tail), tail)
        else:
            yield Extent.of(low, header + tail)


@functools.lru_cache(64)
def _crc_of_zeros(length: int) -> int:
    return zlib.crc32(bytes(length)) & 0x7FFFFFFF


# --- consume queues ---------------------------------------------------------------------------------------------------


def planned_queue(
    store: Store, topic: str, queue_id: int, directory: str, kept: KeptSlots, *, whole: bool
) -> Iterator[PlannedFile]:
    """Yield the files of a queue with the slots of kept records.

    `whole`: from the first file to the last slot, so that the queue's ends are those of the original; else from the
    first file with a kept slot to the last, and to the queue's end if that is near.
    """
    files = slot_files(store, (SIMPLE, topic_bytes(topic), queue_id))
    files.close()
    work = _QueueWork(store, kept)
    segments = list(files.segments)
    if not whole:
        rows = [row for row, segment in enumerate(segments) if work.holds_kept(segment)]
        near = rows[-1] + _FILES_BEHIND_MAX if rows and len(segments) - rows[-1] <= _FILES_BEHIND_MAX else 0
        segments = segments[rows[0] : max(rows[-1] + 1, near)] if rows else []
    used = [work.used_slots(segment) for segment in segments]
    last = max((row for row, count in enumerate(used) if count), default=0)
    for segment, count in zip(segments[: last + 1], used, strict=False):
        name = f"{directory}/{segment.base_offset:020d}"
        yield PlannedFile(name, segment.size_bytes, tuple(work.extents(segment, count)))


@dataclass(frozen=True, slots=True)
class KeptSlots:
    """The slots of a queue that are kept.

    Shape: `offsets`: commit-log offsets of all kept records, ascending; `numbers`: slots that records of this queue
           claim; `forced`: slots that are kept whatever they point at. `tags_codes`: new tags codes of slots, by the
           commit-log offset of their record.
    """

    offsets: Int64s
    numbers: frozenset[int]
    forced: frozenset[int]
    tags_codes: Mapping[int, int]


#: An invalid slot: offsets of a log are never negative.
_NO_SLOT = np.array([(-1, 0, 0)], SLOT.dtype)[0]


@dataclass(frozen=True, slots=True)
class _QueueWork:
    """One queue to write to a bundle."""

    store: Store
    kept: KeptSlots

    def holds_kept(self, segment: Segment) -> bool:
        """Whether a file contains a slot that is kept."""
        first = segment.base_offset // SLOT.size_bytes
        end = segment.end_offset // SLOT.size_bytes
        return any(first <= number < end for number in (*self.kept.numbers, *self.kept.forced))

    def used_slots(self, segment: Segment) -> int:
        """Number of used slots of a file."""
        used = 0
        for first, slots in self._blocks(segment, segment.size_bytes // SLOT.size_bytes):
            rows = np.flatnonzero((slots["record_length_bytes"] != 0) | (slots["commit_log_offset"] != 0))
            if len(rows):
                used = first + int(rows[-1]) + 1
        return used

    @staticmethod
    def _blocks(segment: Segment, count: int) -> Iterator[tuple[int, Slots]]:
        size = SLOT.size_bytes
        with segment.open() as file:
            for first in range(0, count, BLOCK_UNITS):
                end = min(first + BLOCK_UNITS, count)
                if file.next_data(first * size) >= end * size:
                    continue
                yield first, np.frombuffer(file.read(first * size, (end - first) * size), SLOT.dtype)

    def _is_kept(self, segment: Segment, first: int, slots: Slots) -> Bools:
        places = slots["commit_log_offset"].astype(np.int64)
        kept: Bools = are_sound(slots) & np.isin(places, self.kept.offsets)
        if self.kept.forced:
            own = segment.base_offset // SLOT.size_bytes + first + np.arange(len(slots))
            kept |= np.isin(own, np.array(sorted(self.kept.forced), np.int64))
        return kept

    def extents(self, segment: Segment, used: int) -> Iterator[Extent]:
        """Yield the slots of a file, in blocks that are read when they are written."""
        size = SLOT.size_bytes
        for first, slots in self._blocks(segment, used):
            yield Extent(first * size, len(slots) * size, functools.partial(self._pieces, segment, first, len(slots)))

    def _pieces(self, segment: Segment, first: int, count: int) -> Iterator[bytes]:
        size = SLOT.size_bytes
        with segment.open() as file:
            slots = np.frombuffer(file.read(first * size, count * size), SLOT.dtype)
        yield self._changed(segment, first, slots).tobytes()

    def _changed(self, segment: Segment, first: int, slots: Slots) -> Slots:
        kept = self._is_kept(segment, first, slots)
        places = slots["commit_log_offset"].astype(np.int64)
        sound, end = are_sound(slots), self.store.log().end_offset
        changed = slots.copy()
        left_out = sound & ~kept & (places < end)
        floor = np.concatenate([[max(self.store.log_begin_offset, 1)], self.kept.offsets])
        nearest = floor[np.searchsorted(self.kept.offsets, places, "right")]
        is_expired = places < self.store.log_begin_offset
        changed["commit_log_offset"][left_out] = np.where(is_expired, 0, nearest)[left_out]
        changed["record_length_bytes"][left_out] = PRE_BLANK_LENGTH
        changed["tags_code"][left_out] = np.where(is_expired, 0, LEFT_OUT_TAGS)[left_out]
        changed["tags_code"][sound & ~kept & (places >= end)] = 0  # only that it points after the log matters
        invalid = ~(sound | kept | are_pre_blank(slots)) & (slots != np.zeros((), SLOT.dtype))
        changed[invalid] = _NO_SLOT  # an invalid slot stays invalid, without its bytes
        for row in np.flatnonzero(kept).tolist():
            tags_code = self.kept.tags_codes.get(int(places[row]))
            if tags_code is not None:
                changed["tags_code"][row] = tags_code
        return changed


# The entries of a DLedger log (4.5.0+) in a bundle: kept records keep theirs, left-out records get one without index.
#
# A reader of the bundle must find every record in an entry: bare records would have gaps of a header's length.


def entry_of(header: bytes, record: bytes, changed: bytes) -> bytes:
    """Return the header of a kept record; its CRC is updated if the record was changed (to the same length)."""
    values = {name: int(value) for name, value in ENTRY_HEADER.unpack(header).items()}
    if changed == record or values["body_crc"] & 0xFFFFFFFF != zlib.crc32(record):
        return header
    return ENTRY_HEADER.pack(**values | {"body_crc": _signed(zlib.crc32(changed))})


def left_out_entry(place: int, record_length_bytes: int) -> bytes:
    """Return the header of the entry, at a commit-log offset, of a record that replaces left-out ones."""
    return ENTRY_HEADER.pack(
        magic=ENTRY_MAGIC, length_bytes=ENTRY_HEADER.size_bytes + record_length_bytes, entry_index=-1,
        entry_offset=place, body_length_bytes=record_length_bytes,
    )


def blank_entry(length_bytes: int) -> bytes:
    """Return the head of the blank that ends a file. Units: bytes, including the head."""
    return _BLANK.pack(BLANK_MAGIC, length_bytes)


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value
