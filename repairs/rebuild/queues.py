"""Rebuilding consume queues from the records of a log: every record contains its queue and queue offset.

The queues are as a broker's dispatch writes them, with one difference: for a queue offset out of order a broker writes
the entry at the queue's end anyway, and all later queue offsets are wrong. Here each entry is at its record's queue
offset, and queue offsets of lost records are filled with the pre-blank slots that brokers put in front of a queue's
first record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.record_layout import RECORD_BYTES_MIN
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.queues.consume_queue import PRE_BLANK_LENGTH, SLOT, Slots
from rmqtx.readers.queues.consume_queue_extension import EXTENSION_UNIT
from rmqtx.readers.queues.slot_files import BATCH, LAYOUTS, QueueName, is_directory_name, queue_text, topic_text
from rmqtx.readers.store.store import Store
from rmqtx.repairs.changes.new_stores import write_at
from rmqtx.repairs.records.store_sizes import EXTENSION, StoreSizes
from rmqtx.verdicts.compared.queue_claims import ClaimedRows, QueueClaims

#: Slots of a queue that are collected for one write.
_WAITING_SLOTS = 8192
_NAME_BYTES_MAX = 255
#: Addresses in extension files count from the smallest 64-bit number.
_EXTENSION_BASE = -(1 << 63)
_EXTENSION_END_BYTES = 4
_FINDINGS_MAX = 100
_REFUSED_KEPT = 64


@dataclass(slots=True)
class BuiltQueue:
    """The state of one queue while it is built.

    Shape: `first` and `end`: queue offsets; `lost`: ranges [from, to) of queue offsets without a record, each with the
           commit-log offsets of the records on both sides. `first_offset` and `last_offset`: commit-log offsets of the
           first and the newest record added, `slots_count`: their number; `again`: a later record with queue offset 0,
           with which the queue may have been created again.
    """

    name: QueueName
    first: int = 0
    end: int = 0
    first_offset: int = 0
    last_offset: int = -1
    slots_count: int = 0
    extension_bytes: int = 0
    lost: list[tuple[int, int, int, int]] = field(default_factory=list)
    again: ClaimedRows | None = None
    waiting: list[Slots] = field(default_factory=list)
    waiting_at: int = 0
    waiting_count: int = 0

    @property
    def is_batch(self) -> bool:
        """Whether its slots contain their queue offset."""
        return self.name[0] == BATCH


@dataclass(slots=True)
class LogHoles:
    """How many records can be lost between two offsets of the log: a queue offset that is too high is itself damage.

    One record always can: a damaged header may have assigned it to another queue.
    """

    _ends: list[int] = field(default_factory=list)
    _sums: list[int] = field(default_factory=lambda: [0])
    _refused: list[tuple[int, int]] = field(default_factory=list)
    _end: int = 0

    def add(self, block: Block) -> None:
        """Add the records of the next block; the bytes between them, and before the very first, are holes."""
        if not len(block):
            return
        begins = block.commit_log_offsets
        before = np.concatenate([[self._end], (begins + block.lengths)[:-1]])
        for row in np.flatnonzero(begins > before).tolist():
            self._ends.append(int(begins[row]))
            self._sums.append(self._sums[-1] + int(begins[row] - before[row]))
        self._end = int(begins[-1] + block.lengths[-1])

    def refuse(self, offset: int, length: int) -> None:
        """Add a record that is in no queue: its queue lacks a queue offset."""
        self._refused.append((offset, length))
        del self._refused[:-_REFUSED_KEPT]

    def records_between(self, low: int, high: int) -> int:
        """Most records that can be lost between two offsets."""
        holes = self._sums[bisect_right(self._ends, high)] - self._sums[bisect_right(self._ends, low)]
        refused = sum(length for offset, length in self._refused if low < offset < high)
        return max(1, (holes + refused) // RECORD_BYTES_MIN)


@dataclass(slots=True)
class QueueBuilder:
    """Writes the queues of a store below `root`; blocks are added in the order of the log.

    `extended`: names of queues that have extension files (enableConsumeQueueExt=true).
    Damage: queue-number-missing, queue-number-taken.
    Raises: OSError where a file cannot be written.
    Source: store/ConsumeQueue.java putMessagePositionInfo, store/queue/BatchConsumeQueue.java;
            docs/formats/consume_queues.md#slot, docs/formats/consume_queues.md#dispatch,
            docs/formats/consume_queues.md#batch.
    """

    store: Store
    root: Path
    sizes: StoreSizes
    extended: frozenset[tuple[bytes, int]] = frozenset()
    queues: dict[QueueName, BuiltQueue] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    last_store_time_ms: int = 0
    _claims: QueueClaims = field(init=False)
    _findings_count: int = 0
    _holes: LogHoles = field(default_factory=LogHoles)

    def __post_init__(self) -> None:
        self._claims = QueueClaims(self.store)

    def add(self, block: Block) -> None:
        """Add the records of a block."""
        self._holes.add(block)
        self._claims.add(block)
        for name, rows in self._claims.taken():
            if not _can_be_directory(name):
                self._refuse(name, rows, 0, "topic and queue number cannot be the name of a directory")
                continue
            queue = self.queues.setdefault(name, BuiltQueue(name))
            self._add_rows(queue, rows)
            self.last_store_time_ms = max(self.last_store_time_ms, int(rows.store_times[-1]))

    def finish(self) -> Mapping[QueueName, BuiltQueue]:
        """Write what is still in memory, and return all queues."""
        for queue in self.queues.values():
            self._flush(queue)
            for low, high, _, _ in queue.lost:
                lost = f"{high - low} records from queue offset {low} on"
                self._report("queue-number-missing", queue.name, None, lost)
        return self.queues

    # --- order

    def _add_rows(self, queue: BuiltQueue, rows: ClaimedRows) -> None:
        """Add records, in runs of consecutive queue offsets."""
        before = np.cumsum(rows.sizes) - rows.sizes
        cuts = (np.flatnonzero(np.diff(rows.queue_offsets - before)) + 1).tolist()
        for begin, end in pairwise([0, *cuts, len(before)]):
            first = begin
            while first < end and not self._prepare(queue, rows, first):
                if queue.again is not None:
                    first += 1
                    continue
                # a later record of the run may have a free queue offset
                ahead = int(np.searchsorted(rows.queue_offsets[first + 1 : end], queue.end))
                is_ahead = first + 1 + ahead < end and rows.queue_offsets[first + 1 + ahead] == queue.end
                first = first + 1 + ahead if is_ahead else end
            if first < end:
                self._append(queue, rows, first, end)

    def _prepare(self, queue: BuiltQueue, rows: ClaimedRows, row: int) -> bool:
        """Prepare the queue for a record, and return whether the record can be added; a refusal is a finding.

        Adds slots for the queue offsets that are lost before the record; the record may also begin the queue again.
        """
        number, offset = int(rows.queue_offsets[row]), int(rows.offsets[row])
        if queue.last_offset < 0:
            return self._prepare_first(queue, rows, row)
        if number == queue.end:
            return True
        if queue.again is not None and number == int(queue.again.sizes[0]):  # it was deleted and created again
            again = queue.again
            self._flush(queue)
            self._restart(queue)
            self._append(queue, again, 0, 1)
            return True
        queue.again = _one(rows, row) if number == 0 else None
        if number < queue.end or number - queue.end > self._holes.records_between(queue.last_offset, offset):
            self._holes.refuse(offset, int(rows.lengths[row]))
            self._refuse(queue.name, rows, row, f"queue offset {number}, expected {queue.end}")
            return False
        queue.lost.append((queue.end, number, queue.last_offset, offset))
        if not queue.is_batch:
            self._fill(queue, number - queue.end)
        queue.end = number
        return True

    def _prepare_first(self, queue: BuiltQueue, rows: ClaimedRows, row: int) -> bool:
        """Begin a queue with a record, and return whether the log has room for the records before it."""
        number, offset = int(rows.queue_offsets[row]), int(rows.offsets[row])
        if not 0 <= number <= self._holes.records_between(-1, offset):
            self._holes.refuse(offset, int(rows.lengths[row]))
            self._refuse(queue.name, rows, row, f"queue offset {number}, more records than fit before it")
            return False
        queue.first = queue.end = number
        queue.first_offset = offset
        if not queue.is_batch:
            self._begin(queue, number)
        return True

    def _begin(self, queue: BuiltQueue, number: int) -> None:
        """Start a queue in the file of its first queue offset, with pre-blank slots in front of it."""
        per_file = self.sizes.queue_file_bytes[queue.name[0]] // SLOT.size_bytes
        queue.waiting_at = number - number % per_file
        self._fill(queue, number % per_file)

    def _restart(self, queue: BuiltQueue) -> None:
        for kind in {queue.name[0], EXTENSION}:
            for file in self._directory(kind, queue.name).glob("*"):
                file.unlink()
        what = f"{queue.end} queue offsets, then again from 0 on"
        self._report("queue-number-taken", queue.name, queue.last_offset, what)
        queue.first = queue.end = queue.slots_count = queue.extension_bytes = queue.first_offset = 0
        queue.waiting, queue.waiting_at, queue.waiting_count, queue.lost = [], 0, 0, []
        queue.again = None

    # --- slots

    def _append(self, queue: BuiltQueue, rows: ClaimedRows, begin: int, end: int) -> None:
        layout = LAYOUTS[queue.name[0]]
        slots = np.zeros(end - begin, layout.dtype)
        slots["commit_log_offset"] = rows.offsets[begin:end]
        slots["record_length_bytes"] = rows.lengths[begin:end]
        tags = self._tags(queue.name, rows, begin, end)
        if queue.is_batch:
            slots["store_time_ms"] = rows.store_times[begin:end]
            slots["first_queue_offset"] = rows.queue_offsets[begin:end]
            slots["batch_size"] = rows.sizes[begin:end]
            slots["compacted_offset"] = -1
        elif queue.name[1:] in self.extended:
            tags = self._extend(queue, tags, rows.store_times[begin:end])
        slots["tags_code"] = tags
        self._wait(queue, slots)
        queue.slots_count += len(slots)
        queue.end = int(rows.queue_offsets[end - 1] + rows.sizes[end - 1])
        queue.last_offset = int(rows.offsets[end - 1])

    def _tags(self, name: QueueName, rows: ClaimedRows, begin: int, end: int) -> Int64s:
        """Return the tags codes; for delayed messages the time when they are due (queue number: delay level minus 1).

        Source: store/CommitLog.java checkMessageAndReturnSize; docs/formats/record.md#tags-code.
        """
        delayed, times = rows.is_delayed[begin:end], rows.store_times[begin:end]
        levels = self.sizes.delay_levels_ms
        delay = levels[name[2]] if 0 <= name[2] < len(levels) else 1000
        return np.where(delayed, times + delay, rows.tags_codes[begin:end]).astype(np.int64)

    def _extend(self, queue: BuiltQueue, tags: Int64s, times: Int64s) -> Int64s:
        """Write the slots' tags codes to the extension files, and return their addresses there.

        Source: store/ConsumeQueueExt.java put. Bitmaps of filters (enableCalcFilterBitMap) are not rebuilt.
        """
        size, file_bytes = EXTENSION_UNIT.size_bytes, self.sizes.queue_file_bytes[EXTENSION]
        addresses = np.empty(len(tags), np.int64)
        directory = self._directory(EXTENSION, queue.name)
        for row, (tag, time) in enumerate(zip(tags.tolist(), times.tolist(), strict=True)):
            base, position = divmod(queue.extension_bytes, file_bytes)
            if position + size + _EXTENSION_END_BYTES > file_bytes:
                mark = (-1).to_bytes(2, "big", signed=True)
                write_at(directory / f"{base * file_bytes:020d}", file_bytes, position, mark)
                queue.extension_bytes = (base + 1) * file_bytes
                base, position = base + 1, 0
            unit = EXTENSION_UNIT.pack(length_bytes=size, tags_code=tag, store_time_ms=time)
            write_at(directory / f"{base * file_bytes:020d}", file_bytes, position, unit)
            addresses[row] = queue.extension_bytes + _EXTENSION_BASE
            queue.extension_bytes += size
        return addresses

    # --- files

    def _wait(self, queue: BuiltQueue, slots: Slots) -> None:
        queue.waiting.append(slots)
        queue.waiting_count += len(slots)
        if queue.waiting_count >= _WAITING_SLOTS:
            self._flush(queue)

    def _fill(self, queue: BuiltQueue, count: int) -> None:
        for begin in range(0, count, _WAITING_SLOTS):
            slots = np.zeros(min(_WAITING_SLOTS, count - begin), SLOT.dtype)
            slots["record_length_bytes"] = PRE_BLANK_LENGTH
            self._wait(queue, slots)

    def _flush(self, queue: BuiltQueue) -> None:
        layout, file_bytes = LAYOUTS[queue.name[0]], self.sizes.queue_file_bytes[queue.name[0]]
        directory = self._directory(queue.name[0], queue.name)
        data = b"".join(slots.tobytes() for slots in queue.waiting)
        place = queue.waiting_at * layout.size_bytes
        while data:
            base = place - place % file_bytes
            part, data = data[: base + file_bytes - place], data[base + file_bytes - place :]
            write_at(directory / f"{base:020d}", file_bytes, place - base, part)
            place += len(part)
        queue.waiting_at, queue.waiting, queue.waiting_count = place // layout.size_bytes, [], 0

    def _directory(self, kind: str, name: QueueName) -> Path:
        return self.root / kind / topic_text(name[1]) / str(name[2])

    # --- findings

    def _refuse(self, name: QueueName, rows: ClaimedRows, row: int, why: str) -> None:
        self._report("queue-number-taken", name, int(rows.offsets[row]), why)

    def _report(self, code: str, name: QueueName, offset: int | None, actual: str) -> None:
        self._findings_count += 1
        if self._findings_count <= _FINDINGS_MAX:
            self.findings.append(
                Finding(self.store.root, code, commit_log_offset=offset, actual=f"{queue_text(name)}: {actual}")
            )


def _one(rows: ClaimedRows, row: int) -> ClaimedRows:
    return ClaimedRows(*(getattr(rows, name)[row : row + 1] for name in ClaimedRows.__slots__))


def _can_be_directory(name: QueueName) -> bool:
    _, topic, queue_id = name
    return is_directory_name(topic) and len(topic) <= _NAME_BYTES_MAX and queue_id >= 0
