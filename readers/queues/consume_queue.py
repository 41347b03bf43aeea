"""Consume queues: for every topic and queue number the places of its records in the commit log, in queue order.

A slot's queue offset is its place: (file name + position) / 20. The last slot that is not zeros ends the queue. A queue
that began above 0 has pre-blank slots in front. In batch queues a slot stands for several messages and contains its
queue offset.

Queues are derived: where a queue and the commit log differ, the commit log decides.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from rmqtx.readers.model.columns import Bools, Int32s, Int64s
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.layout import Field, Layout
from rmqtx.readers.queues.consume_queue_extension import EXTENSION_ADDRESS_MAX, Extension
from rmqtx.readers.queues.unit_files import BLOCK_UNITS, UnitLog, UnitRuns, Units, gaps_as, misnamed, used_end
from rmqtx.readers.store.remembered import remembered
from rmqtx.readers.store.store import Store

SLOT = Layout(
    "slot",
    "Slot of a consume queue",
    (
        Field("commit_log_offset", "q", "commit-log offset of the record", "byte"),
        Field("record_length_bytes", "i", "length of the whole record; 7FFFFFFF in a pre-blank slot", "byte"),
        Field("tags_code", "q", "Java hash of the tag, due time in ms (delayed topics), or address in the extension"),
    ),
    20,
    "store/ConsumeQueue.java putMessagePositionInfo, docs/formats/consume_queues.md#slot",
)
BATCH_SLOT = Layout(
    "batch_slot",
    "Slot of a batch consume queue",
    (
        Field("commit_log_offset", "q", "commit-log offset of the record", "byte"),
        Field("record_length_bytes", "i", "length of the whole record", "byte"),
        Field("tags_code", "q", "Java hash of the tag"),
        Field("store_time_ms", "q", "broker clock at append", "ms"),
        Field("first_queue_offset", "q", "queue offset of the first message in the batch"),
        Field("batch_size", "h", "number of messages in the batch"),
        Field("compacted_offset", "i", "-1 unless the topic is compacted"),
        Field("reserved", "i", "unused"),
    ),
    46,
    "store/queue/BatchConsumeQueue.java putBatchMessagePositionInfo, docs/formats/consume_queues.md#batch",
    since="5.0.0",
)
#: Slots of a queue, simple or batch, as an array.
Slots = Units

INVALID, EXPECTED = "slot-invalid", "an offset and a length"
PRE_BLANK_LENGTH = 0x7FFFFFFF
#: Tags code of a slot whose record a bundle left out; its length is that of a pre-blank slot, its place the nearest
#: place in the log that the bundle contains. No broker writes this tags code.
LEFT_OUT_TAGS = int.from_bytes(b"RMQTXOUT", "big")

_PROBE_SLOTS = 64
#: Slots that are read together at the end of a binary search: a read costs more than these bytes.
_SEARCHED_AT_ONCE = 1024
#: A negative number begins with this byte or a higher one.
_NEGATIVE_BYTE = 0x80


def are_pre_blank(slots: Slots) -> Bools:
    """Return which slots of a simple queue only fill the place before its first record."""
    pre_blank: Bools = (slots["commit_log_offset"] == 0) & (slots["record_length_bytes"] == PRE_BLANK_LENGTH)
    pre_blank &= slots["tags_code"] == 0
    return pre_blank


def are_left_out(slots: Slots) -> Bools:
    """Return which slots of a simple queue belong to records that a bundle left out."""
    left_out: Bools = (slots["record_length_bytes"] == PRE_BLANK_LENGTH) & (slots["tags_code"] == LEFT_OUT_TAGS)
    return left_out


def are_filler(slots: Slots) -> Bools:
    """Return which slots of a simple queue are fillers: they have no record in the store, and none is missing."""
    return are_pre_blank(slots) | are_left_out(slots)


def are_sound(slots: Slots) -> Bools:
    """Return which slots are possible by the broker's rule (ConsumeQueue.java recover) and are not fillers."""
    sound: Bools = (slots["commit_log_offset"] >= 0) & (slots["record_length_bytes"] > 0)
    if slots.dtype == BATCH_SLOT.dtype:
        sound &= (slots["first_queue_offset"] >= 0) & (slots["batch_size"] > 0)
        return sound
    return sound & ~are_filler(slots)


def native(slots: Slots, name: str, kind: type[np.signedinteger[Any]] = np.int64) -> npt.NDArray[Any]:
    """Return a field of all slots in this machine's byte order."""
    return slots[name].astype(kind)


def _are_plain(slots: Slots) -> bool:
    """Whether all slots of a simple queue are sound, and none has an address in the extension."""
    lengths, tags_codes = native(slots, "record_length_bytes", np.int32), native(slots, "tags_code")
    first_bytes = np.frombuffer(slots, np.uint8)[:: SLOT.size_bytes]
    return bool(
        lengths.min() > 0 and lengths.max() < PRE_BLANK_LENGTH and tags_codes.min() > EXTENSION_ADDRESS_MAX
        and first_bytes.max() < _NEGATIVE_BYTE
    )


def _is_usable(slots: Slots) -> Bools:
    return are_sound(slots) | are_filler(slots)


_Bounds = tuple[int, int, bool, tuple[Finding, ...]]


@remembered
def _known_bounds(_: Store) -> dict[tuple[str, int, str], _Bounds]:
    """Return where to keep the bounds of a store's queues: a command opens a queue ten times."""
    return {}


class Queue:
    """One consume queue, to read some of its slots; only the requested slots are read.

    Shape:  `first_offset` is the first slot in a file, `min_offset` the first slot whose record the commit log can
            still contain, `max_offset` the number past the last slot; all 0 if the queue does not exist.
            `has_bytes_after_end`: the bytes after the last slot are not all zeros.
    Damage: `findings` grows with each read; impossible slots are left out.
    """

    def __init__(self, store: Store, topic: str, queue_id: int, kind: str = "consumequeue") -> None:
        """`kind`: the directory of the queue's topic. Raises: UnreadableFile, FileChanged."""
        segments, found = store.queue_segments(topic, queue_id, kind)
        self.store = store.root
        self.topic = topic
        self.queue_id = queue_id
        self.findings = gaps_as("queue-gap", found)
        self._files = UnitLog(segments, SLOT)
        self.findings.extend(
            misnamed(store, segment, SLOT, INVALID) for segment in segments if segment not in self._files.segments
        )
        self._extension: Extension | None = None
        self._store = store
        self.first_offset = self.max_offset = self.min_offset = 0
        self.has_bytes_after_end = False
        if self.exists:
            self.first_offset = self._files.first
            known, place = _known_bounds(store), (topic, queue_id, kind)
            if place not in known:
                known[place] = self._bounds(store.log_begin_offset)
            self.max_offset, self.min_offset, self.has_bytes_after_end, of_bounds = known[place]
            self.findings.extend(of_bounds)

    def _bounds(self, log_begin_offset: int) -> _Bounds:
        """Return the end and the least number, whether bytes follow the end, and the findings of the search for these.

        Raises: UnreadableFile, FileChanged.
        """
        end = used_end(self._store, self._files.segments, SLOT, self._are_usable_at_end)
        self.max_offset = end or self.first_offset
        min_offset, before = self.offset_of(log_begin_offset), len(self.findings)
        # An impossible slot right before `min_offset` did not expire: it may be the first slot.
        for first, slots in self._blocks(max(self.first_offset, min_offset - 1), min_offset):
            self._report(first, ~(are_sound(slots) | are_filler(slots)))
        found = tuple(self.findings[before:])
        del self.findings[before:]
        return self.max_offset, min_offset, self.has_bytes_after_end, found

    def _are_usable_at_end(self, slots: Slots) -> Bools:
        """Return which slots are usable, for a backward search; also record whether bytes after the last are zeros."""
        usable = _is_usable(slots)
        behind = slots[len(slots) - int(usable[::-1].argmax()) if usable.any() else 0 :]
        self.has_bytes_after_end |= bool(np.frombuffer(behind, np.uint8).any())
        return usable

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all files."""
        self._files.close()

    @property
    def exists(self) -> bool:
        """Whether the queue has a file."""
        return self._files.exists

    def read(self, from_queue_offset: int, to_queue_offset: int) -> tuple[Int64s, Int64s, Int32s, Int64s]:
        """Return the sound slots of [from, to): queue offsets, commit-log offsets, record lengths, tags codes.

        Shape:  four arrays of the same length; pre-blank and impossible slots are left out. Addresses in the extension
                are resolved; an address that cannot be resolved stays unchanged.
        Units:  bytes. 24 bytes of memory per slot: read long ranges in parts.
        Order:  queue offset ascending.
        Damage: slot-invalid.
        Raises: UnreadableFile, FileChanged.
        """
        kept: list[Slots] = []
        offsets: list[Int64s] = []
        for first, slots in self._blocks(max(from_queue_offset, self.first_offset), to_queue_offset):
            sound = are_sound(slots)
            self._report(first, ~(sound | are_filler(slots)))
            kept.append(slots[sound])
            offsets.append(np.flatnonzero(sound) + first)
        slots = np.concatenate(kept) if kept else np.empty(0, SLOT.dtype)
        queue_offsets = np.concatenate(offsets) if offsets else np.empty(0, np.int64)
        tags_codes: Int64s = native(slots, "tags_code")
        if (tags_codes <= EXTENSION_ADDRESS_MAX).any():
            if self._extension is None:
                self._extension = Extension(self._store, self.topic, self.queue_id)
            tags_codes = self._extension.resolve(tags_codes)[0]
            self.findings.extend(self._extension.findings)
            self._extension.findings = []
        lengths: Int32s = native(slots, "record_length_bytes", np.int32)
        return queue_offsets, native(slots, "commit_log_offset"), lengths, tags_codes

    def place_at(self, queue_offset: int) -> int | None:
        """Return the commit-log offset in a slot; None without a sound one. Raises: UnreadableFile, FileChanged."""
        places = self.read(queue_offset, queue_offset + 1)[1]
        return int(places[0]) if len(places) else None

    def last_place(self) -> int | None:
        """Return the commit-log offset in the last slot, as `place_at`."""
        return self.place_at(self.max_offset - 1)

    def places(self, from_queue_offset: int, to_queue_offset: int) -> tuple[Int64s, Int32s]:
        """Return commit-log offset and record length in every slot of [from, to), also in fillers and impossible ones.

        Shape:  -1 and 0 for a slot that is in no file, or that a bundle left out.
        Units:  bytes.
        Raises: UnreadableFile, FileChanged.
        """
        count = max(0, to_queue_offset - from_queue_offset)
        offsets, lengths = np.full(count, -1, np.int64), np.zeros(count, np.int32)
        for first, slots in self._blocks(from_queue_offset, to_queue_offset):
            here = slice(first - from_queue_offset, first - from_queue_offset + len(slots))
            is_known = ~are_left_out(slots)
            offsets[here] = np.where(is_known, native(slots, "commit_log_offset"), -1)
            lengths[here] = np.where(is_known, native(slots, "record_length_bytes", np.int32), 0)
        return offsets, lengths

    def left_out(self, from_queue_offset: int, to_queue_offset: int) -> Int64s:
        """Return the numbers of the slots of [from, to) that a bundle left out. Raises: UnreadableFile, FileChanged."""
        blocks = self._blocks(from_queue_offset, to_queue_offset)
        return np.concatenate([
            np.empty(0, np.int64), *(first + np.flatnonzero(are_left_out(slots)) for first, slots in blocks)
        ])

    def is_in_file(self, number: int) -> bool:
        """Return whether a file of the queue has room for a slot, used or not."""
        return self._files.segment_at(number) is not None

    @property
    def file_ends(self) -> Int64s:
        """The number past the last slot of each file, ascending."""
        size = SLOT.size_bytes
        return np.array([segment.end_offset // size for segment in self._files.segments], np.int64)

    def offsets_at(self, numbers: Int64s) -> Int64s:
        """Return the commit-log offset in each of some slots; -1 for a slot that cannot be used.

        `numbers`: queue offsets, ascending. All slots between two near ones are examined too.
        Units:  bytes.
        Damage: slot-invalid.
        Raises: UnreadableFile, FileChanged.
        """
        found = np.full(len(numbers), -1, np.int64)
        bounds = np.flatnonzero(np.diff(numbers // BLOCK_UNITS)) + 1
        for rows in np.split(np.arange(len(numbers)), bounds) if len(numbers) else ():
            begin, end = int(numbers[rows[0]]), int(numbers[rows[-1]]) + 1
            for first, slots in self._blocks(max(begin, self.first_offset), end):
                here = rows[slice(*np.searchsorted(numbers[rows], [first, first + len(slots)]))]
                if _are_plain(slots):
                    found[here] = slots["commit_log_offset"][numbers[here] - first]
                    continue
                known, places, _, _ = self.read(first, first + len(slots))
                row = np.searchsorted(known, numbers[here])
                is_known = np.append(known, -1)[row] == numbers[here]
                found[here[is_known]] = places[row[is_known]]
        return found

    def offset_of(self, commit_log_offset: int) -> int:
        """Return the queue offset of the first slot at or after a place of the commit log, or `max_offset`.

        Binary search, because a queue's records are in the log in the queue's order; for place 0 the first.
        Raises: UnreadableFile, FileChanged.
        """
        low, high = self.first_offset, self.max_offset
        if commit_log_offset <= 0 and (first := self._place_from(low, high)) is not None and first[1] >= 0:
            return first[0]
        while low < high:
            if high - low <= _SEARCHED_AT_ONCE and (plain := self._plain_places(low, high)) is not None:
                low += bisect_left(plain, commit_log_offset)
                break
            middle = (low + high) // 2
            found = self._place_from(middle, high)
            if found is None or found[1] >= commit_log_offset:
                high = middle
            else:
                low = found[0] + 1
        # damaged slots that the search skipped stand before the slot that it found
        following = self._place_from(low, self.max_offset)
        return self.max_offset if following is None else following[0]

    def _plain_places(self, begin: int, end: int) -> list[int] | None:
        """Return the commit-log offsets in the slots of [begin, end), or None if one of them cannot be used."""
        places = [slots["commit_log_offset"].tolist() for _, slots in self._blocks(begin, end) if _are_plain(slots)]
        whole = list(itertools.chain.from_iterable(places))
        return whole if len(whole) == end - begin else None

    def _place_from(self, queue_offset: int, end: int) -> tuple[int, int] | None:
        """Return the first usable slot in [queue_offset, end) and its commit-log offset, -1 for a pre-blank slot."""
        step = _PROBE_SLOTS
        while queue_offset < end:
            upto = min(queue_offset + step, end)
            for first, slots in self._blocks(queue_offset, upto):
                usable = np.flatnonzero(_is_usable(slots))
                if len(usable):
                    slot = slots[usable[0]]
                    is_filler = bool(are_pre_blank(slots[usable[:1]])[0])
                    return first + int(usable[0]), -1 if is_filler else int(slot["commit_log_offset"])
            queue_offset, step = upto, min(step * 4, BLOCK_UNITS)
        return None

    def _blocks(self, from_offset: int, to_offset: int) -> Iterator[tuple[int, Slots]]:
        """Return the slots of [from, to) that are in files, in blocks with the queue offset of the first slot."""
        return self._files.parts(from_offset, min(to_offset, self.max_offset), BLOCK_UNITS)

    def _report(self, first: int, wrong: Bools) -> None:
        if not wrong.any():
            return
        segment = self._files.segment_at(first)
        assert segment is not None
        runs = UnitRuns(self.store, segment.file, INVALID, EXPECTED, self.findings)
        runs.add(wrong, first * SLOT.size_bytes - segment.base_offset, SLOT.size_bytes)
        runs.close()


def open_queue(store: Store, topic: str, queue_id: int) -> Queue:
    """Return a queue for random access; a queue that does not exist is empty, and its `exists` is false.

    Raises: UnreadableFile, FileChanged.
    """
    return Queue(store, topic, queue_id)
