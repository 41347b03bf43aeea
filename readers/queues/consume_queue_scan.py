"""Every slot of consume queues, simple and batch, as rows, with findings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.model.findings import FINDINGS_MAX, as_text
from rmqtx.readers.model.layout import Layout
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.model.tables import QUEUE_SLOTS
from rmqtx.readers.queues.consume_queue import (
    BATCH_SLOT,
    EXPECTED,
    INVALID,
    Slots,
    are_filler,
    are_pre_blank,
    are_sound,
    native,
)
from rmqtx.readers.queues.consume_queue_extension import ADDRESS_BITS, EXTENSION_ADDRESS_MAX, Extension
from rmqtx.readers.queues.slot_files import LAYOUTS
from rmqtx.readers.queues.unit_files import UnitBlock, UnitRuns, UnitScan, addressable, gaps_as
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.store import Store


def scan_slots(
    store: Store, *, topic: str | None = None, queue_id: int | None = None, from_queue_offset: int | None = None,
    to_queue_offset: int | None = None,
) -> Reading:
    """Return every slot of the consume queues in files, or of one topic, one queue number, one range of queue offsets.

    Shape:  rows of QUEUE_SLOTS, at most 65,536 a batch; pre-blank slots are rows without offset and length; slots whose
            record a bundle left out are not rows.
    Order:  simple queues, then batch queues; topic, queue number, position.
    Damage: slot-invalid (no row), slot-expired and slot-dangling (a row), queue-gap, segment-size, stray-file,
            unreadable-file.
    Source: store/ConsumeQueue.java, store/queue/BatchConsumeQueue.java; docs/formats/consume_queues.md#slot.
    """
    reading = Reading(QUEUE_SLOTS, ())
    bounds = (from_queue_offset or 0, 2**63 - 1 if to_queue_offset is None else to_queue_offset)
    reading.batches = _scan(store, reading, topic, queue_id, bounds)
    return reading


def _scan(
    store: Store, reading: Reading, topic: str | None, queue_id: int | None, bounds: tuple[int, int]
) -> Iterator[pa.RecordBatch]:
    for directory, layout in LAYOUTS.items():
        wanted = (
            (name, number)
            for name, number in store.queues(directory)
            if topic in (None, name) and queue_id in (None, number)
        )
        for name, number in store.queues_opened_together(wanted, directory):
            yield from _QueueScan(store, reading, name, number, directory, layout, bounds).batches()


@dataclass(slots=True)
class _QueueScan:
    store: Store
    reading: Reading
    topic: str
    queue_id: int
    directory: str
    layout: Layout
    bounds: tuple[int, int]
    _extension: Extension | None = field(default=None, init=False)

    @property
    def _is_batch(self) -> bool:
        return self.layout is BATCH_SLOT

    def batches(self) -> Iterator[pa.RecordBatch]:
        segments, found = self.store.queue_segments(self.topic, self.queue_id, self.directory)
        self.reading.findings.extend(gaps_as("queue-gap", found))
        bounds = (0, 2**63 - 1) if self._is_batch else self.bounds  # a batch has its queue offset in a field
        reading = self.reading
        scan = UnitScan(
            self.store, self.layout, INVALID, EXPECTED, self._kinds, reading.findings, reading.coverage, bounds
        )
        for block in scan.blocks(segments):
            yield from self._block(block)

    def _kinds(self, slots: Slots) -> tuple[Bools, Bools]:
        return are_sound(slots), np.zeros(len(slots), np.bool_) if self._is_batch else are_filler(slots)

    def _runs(self, segment: Segment, code: str, expected: str, meaning: str | None = None) -> UnitRuns:
        return UnitRuns(self.store.root, segment.file, code, expected, self.reading.findings, meaning)

    def _block(self, block: UnitBlock) -> Iterator[pa.RecordBatch]:
        segment, slots, sound, size = block.segment, block.units, block.sound, self.layout.size_bytes
        if self._is_batch:
            first, count = native(slots, "first_queue_offset"), native(slots, "batch_size")
            sound = sound & (first < self.bounds[1]) & (first > self.bounds[0] - count)
        block.coverage.decoded_bytes += int(sound.sum()) * size
        rows = np.flatnonzero(sound if self._is_batch else sound | are_pre_blank(slots))
        if not len(rows):
            return
        self._report_dangling(segment, slots, sound, block.position)
        yield self._rows(segment, slots[rows], rows * size + block.position)

    def _report_dangling(self, segment: Segment, slots: Slots, sound: Bools, position: int) -> None:
        begins = native(slots, "commit_log_offset")
        ends = begins + native(slots, "record_length_bytes")
        log = addressable(self.store.commit_log)
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
        tags_codes: Int64s = native(slots, "tags_code")
        addressed = np.zeros(count, np.bool_) if self._is_batch else tags_codes <= EXTENSION_ADDRESS_MAX
        resolved, lost = self._resolved(segment, tags_codes, positions) if addressed.any() else (tags_codes, addressed)
        if self._is_batch:
            queue_offsets = native(slots, "first_queue_offset")
            times = pa.array(native(slots, "store_time_ms"))
            sizes = pa.array(native(slots, "batch_size", np.int16))
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
            pa.array(native(slots, "commit_log_offset"), mask=pre_blank),
            pa.array(native(slots, "record_length_bytes", np.int32), mask=pre_blank),
            pa.array(resolved, mask=pre_blank | lost),
            kinds.take(pa.array(pre_blank.astype(np.int8))),
            times,
            sizes,
            pa.array(tags_codes & ADDRESS_BITS, mask=~addressed),
        ]
        return pa.record_batch(columns, schema=QUEUE_SLOTS)

    def _resolved(self, segment: Segment, tags_codes: Int64s, positions: Int64s) -> tuple[Int64s, Bools]:
        if self._extension is None:
            self._extension = Extension(self.store, self.topic, self.queue_id)
        resolved, lost = self._extension.resolve(tags_codes)
        self.reading.findings.extend(self._extension.findings)
        self._extension.findings = []
        if lost.any():
            runs = self._runs(
                segment, INVALID, "an address of a unit in consumequeue_ext/", "only the tag's hash is unknown"
            )
            spread = positions[lost]
            for begin in spread[:FINDINGS_MAX].tolist():
                runs.add_range(begin, begin + self.layout.size_bytes)
            runs.close()
        return resolved, lost


def _merged(log: tuple[Segment, ...]) -> list[tuple[int, int]]:
    """Return the ranges of the log that files hold without a gap; the first three, for a sentence."""
    cuts = [number + 1 for number, (one, two) in enumerate(pairwise(log)) if one.end_offset != two.base_offset]
    edges = [0, *cuts, len(log)] if log else [0]
    return [(log[low].base_offset, log[high - 1].end_offset) for low, high in pairwise(edges)][:3]


def _same(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)
