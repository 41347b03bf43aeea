"""The files of a bundle, planned before any is written: sparse segments, cut queues, small files.

What a segment leaves out between two kept records is one record of LEFT_OUT_TOPIC (several, where it is long) with a
body of zeros, which is a hole on disk; a blank record ends every segment but the last. So the log stays a chain of
sound records at their own offsets, and every reader, a broker too, goes through it. A slot of a record that was left
out keeps its number and loses its place (`consume_queue.are_left_out`).
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from readers.columns import Int64s
from readers.commit_log import written_bytes
from readers.consume_queue import BLOCK_SLOTS, LEFT_OUT_TAGS, PRE_BLANK_LENGTH, SLOT, Slots, are_pre_blank, are_sound
from readers.record_layout import BLANK, MAGIC_BLANK, MAGIC_V1, RECORD, RECORD_BYTES_MIN
from readers.slot_files import SIMPLE, slot_files
from readers.sources import Segment
from readers.store import LEFT_OUT_TOPIC, Store

#: Longer gaps are several records: whatever reads one takes its length in memory.
_LEFT_OUT_BYTES_MAX = 4 << 20
_PIECE_BYTES = 1 << 20

Change = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class Extent:
    """Bytes at a place of a file, read when they are written. Units: bytes."""

    position_bytes: int
    length_bytes: int
    pieces: Callable[[], Iterator[bytes]]

    @staticmethod
    def of(position_bytes: int, data: bytes) -> Extent:
        """Bytes that are at hand."""
        return Extent(position_bytes, len(data), lambda: iter((data,)))


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file of the bundle by its path below the bundle's root; what no extent holds is a hole.

    Order: extents by position, none touching another.
    """

    path: str
    size_bytes: int
    extents: tuple[Extent, ...]

    @staticmethod
    def of(path: str, data: bytes) -> PlannedFile:
        """A small file."""
        return PlannedFile(path, len(data), (Extent.of(0, data),) if data else ())


@dataclass(frozen=True, slots=True, order=True)
class KeptRange:
    """A range of the commit log that the bundle has. Units: bytes of the commit log.

    Shape: `kind` is `record` (a sound one), `bytes` (as they are), or `hole` (damaged bytes, whose place alone is
           kept: they stay damaged).
    """

    offset: int
    length_bytes: int
    kind: str = field(default="record", compare=False)


# --- the commit log ---------------------------------------------------------------------------------------------------


def planned_segment(
    segment: Segment, path: str, kept: list[KeptRange], *, has_data: bool, is_last: bool, change: Change,
    change_bytes: Change, times: Mapping[int, int], last_time_ms: int,
) -> PlannedFile:
    """A segment with what is kept of it.

    `kept`: its ranges, ascending. `has_data`: whether the original holds anything; `is_last`: no later one does.
    `times`: commit-log offset of each kept record → its store time. `last_time_ms`: until when the log goes; a last
    record that was left out says it, for the checkpoint would be ahead of the log otherwise.
    Units: milliseconds.
    """
    extents: list[Extent] = []
    position, time_ms = 0, next((times[one.offset] for one in kept if one.offset in times), 0)
    for one in kept:
        begin = one.offset - segment.base_offset
        extents.extend(_left_out(segment.base_offset, position, begin, time_ms))
        time_ms = times.get(one.offset, time_ms)
        position = begin + one.length_bytes
        if one.kind != "hole":
            extents.append(_kept(segment, begin, one.length_bytes, change if one.kind == "record" else change_bytes))
    left = segment.size_bytes - position
    if has_data and not is_last and left >= BLANK.size_bytes:
        extents.append(Extent.of(position, BLANK.pack(length_bytes=left, magic=_signed(MAGIC_BLANK))))
    end = position + RECORD_BYTES_MIN + len(LEFT_OUT_TOPIC)
    if has_data and is_last and end <= written_bytes(segment) and last_time_ms > time_ms:
        extents.extend(_left_out(segment.base_offset, position, end, last_time_ms))
    return PlannedFile(path, segment.size_bytes, tuple(extents))


def _kept(segment: Segment, position: int, length: int, change: Change) -> Extent:
    def pieces() -> Iterator[bytes]:
        with segment.open() as file:
            data = change(file.read(position, length))
        for begin in range(0, len(data), _PIECE_BYTES):
            yield data[begin : begin + _PIECE_BYTES]

    return Extent(position, length, pieces)


def _left_out(base_offset: int, begin: int, end: int, time_ms: int) -> Iterator[Extent]:
    """The records that stand for [begin, end) of a segment; where none has room the bytes stay zero."""
    topic = LEFT_OUT_TOPIC.encode()
    least = RECORD_BYTES_MIN + 1
    if end - begin < least:
        return
    count = -(-(end - begin) // _LEFT_OUT_BYTES_MAX)
    edges = [begin + (end - begin) * number // count for number in range(count + 1)]
    for low, high in pairwise(edges):
        name = topic[: high - low - RECORD_BYTES_MIN]
        body_length = high - low - RECORD_BYTES_MIN - len(name)
        header = RECORD.pack(
            length_bytes=high - low, magic=_signed(MAGIC_V1), body_crc=_crc_of_zeros(body_length),
            commit_log_offset=base_offset + low, born_time_ms=time_ms, store_time_ms=time_ms,
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


def _signed(magic: int) -> int:
    return magic - (1 << 32)


# --- consume queues ---------------------------------------------------------------------------------------------------


def planned_queue(
    store: Store, topic: str, queue_id: int, directory: str, offsets: Int64s, tags_codes: Mapping[int, int],
    numbers: frozenset[int] = frozenset(), *, whole: bool,
) -> Iterator[PlannedFile]:
    """The files of a queue with the slots of kept records.

    `offsets`: commit-log offsets of all kept records, ascending; `tags_codes`: what their slots say instead of what
    they said, where it differs. `numbers`: slots that are kept whatever they point at. `whole`: from the first file to
    the last slot, so that the queue's ends are those of the original; else only the files that hold kept slots, and
    those between.
    """
    files = slot_files(store, (SIMPLE, topic.encode("utf-8", "surrogateescape"), queue_id))
    files.close()
    work = _QueueWork(store, offsets, tags_codes, numbers)
    planned: list[tuple[Segment, int, bool]] = []
    for segment in files.segments:
        used, has_kept = work.looked_at(segment)
        planned.append((segment, used, has_kept))
    rows = [row for row, (_, _, has_kept) in enumerate(planned) if has_kept]
    last = max((row for row, (_, used, _) in enumerate(planned) if used), default=-1)
    chosen = planned[: last + 1] if whole else planned[rows[0] : rows[-1] + 1] if rows else []
    if whole and planned and not chosen:
        chosen = planned[:1]
    for segment, used, _ in chosen:
        name = f"{directory}/{segment.base_offset:020d}"
        yield PlannedFile(name, segment.size_bytes, tuple(work.extents(segment, used)))


@dataclass(frozen=True, slots=True)
class _QueueWork:
    """One queue on its way into a bundle."""

    store: Store
    offsets: Int64s
    tags_codes: Mapping[int, int]
    numbers: frozenset[int]

    def looked_at(self, segment: Segment) -> tuple[int, bool]:
        """How many slots of a file are used, and whether one is kept."""
        used, has_kept = 0, False
        for first, slots in self._blocks(segment, segment.size_bytes // SLOT.size_bytes):
            rows = np.flatnonzero((slots["record_length_bytes"] != 0) | (slots["commit_log_offset"] != 0))
            if len(rows):
                used = first + int(rows[-1]) + 1
                has_kept = has_kept or bool(self._is_kept(segment, first, slots).any())
        return used, has_kept

    @staticmethod
    def _blocks(segment: Segment, count: int) -> Iterator[tuple[int, Slots]]:
        size = SLOT.size_bytes
        with segment.open() as file:
            for first in range(0, count, BLOCK_SLOTS):
                end = min(first + BLOCK_SLOTS, count)
                if file.next_data(first * size) >= end * size:
                    continue
                yield first, np.frombuffer(file.read(first * size, (end - first) * size), SLOT.dtype)

    def _is_kept(self, segment: Segment, first: int, slots: Slots) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        places = slots["commit_log_offset"].astype(np.int64)
        kept = are_sound(slots) & np.isin(places, self.offsets)
        if self.numbers:
            own = segment.base_offset // SLOT.size_bytes + first + np.arange(len(slots))
            kept |= np.isin(own, np.array(sorted(self.numbers), np.int64))
        return kept

    def extents(self, segment: Segment, used: int) -> Iterator[Extent]:
        """The slots of a file, in blocks."""
        size = SLOT.size_bytes
        for first, slots in self._blocks(segment, used):
            data = self._changed(segment, first, slots).tobytes()
            yield Extent.of(first * size, data)

    def _changed(self, segment: Segment, first: int, slots: Slots) -> Slots:
        kept = self._is_kept(segment, first, slots)
        places = slots["commit_log_offset"].astype(np.int64)
        sound, end = are_sound(slots), self.store.log().end_offset
        changed = slots.copy()
        left_out = sound & ~kept & (places < end)
        floor = np.concatenate([[max(self.store.log_begin_offset, 1)], self.offsets])
        nearest = floor[np.searchsorted(self.offsets, places, "right")]
        is_expired = places < self.store.log_begin_offset
        changed["commit_log_offset"][left_out] = np.where(is_expired, 0, nearest)[left_out]
        changed["record_length_bytes"][left_out] = PRE_BLANK_LENGTH
        changed["tags_code"][left_out] = np.where(is_expired, 0, LEFT_OUT_TAGS)[left_out]
        changed["tags_code"][sound & ~kept & (places >= end)] = 0  # it points behind the log: that is what matters
        changed[~(sound | kept | are_pre_blank(slots))] = np.zeros((), SLOT.dtype)
        for row in np.flatnonzero(kept).tolist():
            tags_code = self.tags_codes.get(int(places[row]))
            if tags_code is not None:
                changed["tags_code"][row] = tags_code
        return changed
