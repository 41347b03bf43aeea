"""One split of a verification: the faults of its records, and the facts that the whole store needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from rmqtx.readers.log import compression
from rmqtx.readers.log.commit_log import crc_findings
from rmqtx.readers.log.dledger import EntryHeaders
from rmqtx.readers.log.header_rules import PLACE_RULES, RECORD_RULES, broken_rules, property_crc_findings
from rmqtx.readers.log.op_messages import marks_of, op_findings, ops_of
from rmqtx.readers.log.prepared_records import OldRecords
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.record_layout import COMPRESSED, PREPARED, ROLLBACK, TRANSACTION_MASK
from rmqtx.readers.log.segment_scan import SegmentScan, Span
from rmqtx.readers.log.splits import Split
from rmqtx.readers.log.topic_doubts import topic_findings
from rmqtx.readers.log.torn_properties import are_incomplete, have_torn_properties, torn_findings, unreadable_copies
from rmqtx.readers.log.transaction_records import are_halves, witnesses_of
from rmqtx.readers.model.columns import Int64s, no_numbers
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.moments import BROKER_TIME_MAX_MS
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, Store
from rmqtx.verdicts.compared.queue_claims import QueueClaims, QueueParts
from rmqtx.verdicts.ends.named_halves import identified_rows, unmatched_ends
from rmqtx.verdicts.ends.taken_numbers import half_queue_end
from rmqtx.verdicts.missing.split_numbers import SplitNumbers, split_numbers
from rmqtx.verdicts.startup.log_cut import unaccepted_bodies
from rmqtx.verdicts.verify.index_entries import IndexClaims, IndexPart
from rmqtx.verdicts.verify.store_files import values_of_records

#: Records at which a broker with forceVerifyPropCRC=true may end its reading.
_UNPROVED_PROPERTIES = ("record-properties", "record-property-crc")


@dataclass(slots=True)
class VerifiedSplit:
    """The facts of a split that the whole store needs.

    Units: commit-log offsets in bytes. `damaged`: rows [begin, end) of the log that are damaged or could not be read.
           `backwards`: rows (record, its time, record before it, time of that record). `op_marks`: rows (op message,
           half queue offset) of numbers that no half message has. `spans`: every span of the file that is neither
           record nor filler. `breaks`: rows [from, to) of the file, in bytes, where a starting broker may end its
           reading. `first`, `last`: offset and time of the first and last record with a possible time.
           `older_offsets`: records of designs before 4.3. `is_unread`: not read for lack of time, nothing is known.
           `checkpoint_values`: the times and offsets of the checkpoint that a record of the split has. `numbers`: the
           queue offsets of the half messages of half queue 0. `ends`: rows (decision, place that it names) of those
           that name no half copy of their own in the split, without those with a damaged header.
    """

    damaged: Int64s
    file: str = ""
    breaks: Int64s = field(default_factory=lambda: np.empty((0, 2), np.int64))
    spans: list[Span] = field(default_factory=list)
    end_offset: int = 0
    first: tuple[int, int] | None = None
    last: tuple[int, int] | None = None
    latest_time_ms: int | None = None
    backwards: Int64s = field(default_factory=lambda: np.empty((0, 4), np.int64))
    op_marks: Int64s = field(default_factory=lambda: np.empty((0, 2), np.int64))
    older_offsets: Int64s = field(default_factory=no_numbers)
    has_halves: bool = False
    is_unread: bool = False
    checkpoint_values: set[int] = field(default_factory=set)
    queues: QueueParts = field(default_factory=QueueParts)
    index: IndexPart = field(default_factory=IndexPart)
    old_records: OldRecords = field(default_factory=OldRecords.none)
    numbers: SplitNumbers = field(default_factory=SplitNumbers)
    ends: Int64s = field(default_factory=lambda: np.empty((0, 2), np.int64))


#: The kinds of witnesses: half copies, and the decisions that name them.
_NAMED = ("halves", "finals", "offset_marks")


class SplitWork:
    """The work on one split, block by block.

    `is_quick`, `is_full`: the level. `with_old`: also collect the records of designs before 4.3.
    """

    def __init__(self, split: Split, *, is_quick: bool, is_full: bool, with_old: bool) -> None:
        self._split, self._is_quick, self._is_full = split, is_quick, is_full
        self._store = split.store
        self._queues, self._index = QueueClaims(split.store), IndexClaims(split.store)
        self._known = VerifiedSplit(np.empty((0, 2), np.int64))
        self._checkpoint = np.array(values_of_records(split.store), np.int64)
        self._backwards: list[Int64s] = []
        self._op_marks: list[Int64s] = []
        self._older: list[Int64s] = []
        self._old: list[OldRecords] = []
        self._halves: list[tuple[Int64s, Int64s]] = [(no_numbers(), no_numbers())]
        self._reported: list[int] = []
        self._named: dict[str, list[pa.RecordBatch]] = {name: [] for name in _NAMED}
        self._with_old = with_old
        self._breaks: list[Int64s] = []
        self.is_unreadable = False
        self._entries = EntryHeaders(split.store.root) if split.segment.frame_bytes else None

    def findings(self, block: Block) -> Iterator[Finding]:
        """Return the faults in the records of a block, and keep the facts that the store needs."""
        self._add_times(block)
        if self._entries is not None:
            yield from self._entries.findings(self._split.segment, block)
        self._older.append(block.commit_log_offsets[older_design_rows(block)])
        doubtful: list[int] = []
        for finding in record_findings(
            self._store, block, with_bodies=not self._is_quick, with_everything=self._is_full
        ):
            if finding.code in _UNPROVED_PROPERTIES and finding.position_bytes is not None:
                begin, length = finding.position_bytes, finding.length_bytes or 0
                self._breaks.append(np.array([[begin, begin + length]], np.int64))
                doubtful.append(begin)
            if finding.code == "record-header" and finding.commit_log_offset is not None:
                self._reported.append(finding.commit_log_offset)
            yield finding
        if self._is_full:
            halves = block.take(are_halves(block))
            doubtful += halves.positions[are_incomplete(halves)].tolist()
        if doubtful:  # what an audit says about half messages among them
            yield from unreadable_copies(block.take(np.isin(block.positions, doubtful)), self._store.root)
        if self._is_quick:
            self._known.has_halves |= bool(block.topic_is(HALF_TOPIC).any())
            return
        self._breaks.append(unaccepted_bodies(block))
        self._queues.add(block)
        self._index.add(block)
        if self._with_old:
            self._old.append(OldRecords.of_block(block))
        halves = block.take(block.topic_is(HALF_TOPIC) & (block.header("queue_id") == 0))
        self._halves.append((halves.commit_log_offsets, halves.header("queue_offset").astype(np.int64)))
        found = witnesses_of(block, self._store.root)
        for name in self._named.keys() & found.keys():
            self._named[name].append(found[name])
        is_op = block.topic_is(OP_TOPIC)
        if is_op.any():
            ops = ops_of(block.take(is_op), self._store.root)
            yield from op_findings(ops, self._store.root)
            self._add_marks(ops)

    def _add_times(self, block: Block) -> None:
        offsets, times = block.commit_log_offsets, block.header("store_time_ms")
        known = self._known
        known.end_offset = int(offsets[-1] + block.lengths[-1])
        for values in (offsets, offsets + block.lengths, times):
            known.checkpoint_values.update(self._checkpoint[np.isin(self._checkpoint, values)].tolist())
        good = (times >= 0) & (times <= BROKER_TIME_MAX_MS)  # an impossible time is reported as such
        offsets, times = offsets[good], times[good]
        if not len(times):
            return
        if known.first is None:
            known.first = int(offsets[0]), int(times[0])
        if known.last is not None:
            offsets, times = np.append(known.last[0], offsets), np.append(known.last[1], times)
        rows = np.flatnonzero(np.diff(times) < 0)
        if len(rows):
            columns = (offsets[rows + 1], times[rows + 1], offsets[rows], times[rows])
            self._backwards.append(np.stack(columns, axis=1))
        known.last = int(offsets[-1]), int(times[-1])
        known.latest_time_ms = max(int(times.max()), known.latest_time_ms or 0)

    def _add_marks(self, ops: pa.RecordBatch) -> None:
        end = half_queue_end(self._store)
        if end is None or self._store.in_use:
            return
        marks = marks_of(ops)
        numbers = np.asarray(marks["half_queue_offset"])
        beyond = numbers >= end
        if beyond.any():
            offsets = np.asarray(marks["commit_log_offset"])
            self._op_marks.append(np.stack([offsets[beyond], numbers[beyond]], axis=1))

    def known(self, scan: SegmentScan) -> VerifiedSplit:
        """Return the facts of the split for the whole store."""
        known, segment = self._known, self._split.segment
        known.file = segment.file
        known.spans = [span for span in scan.spans if not span.is_filler]
        spans = [(span.position_bytes, span.length_bytes) for span in scan.spans if span.kind == "damaged"]
        damaged = [(segment.base_offset + place, segment.base_offset + place + length) for place, length in spans]
        if self.is_unreadable:
            damaged.append(self._split.offsets)
        ends = [(span.position_bytes, span.position_bytes + span.length_bytes) for span in scan.spans]
        known.breaks = np.concatenate([np.array(ends, np.int64).reshape(-1, 2), *self._breaks])
        known.damaged = np.array(damaged, np.int64).reshape(-1, 2)
        known.backwards = np.concatenate([known.backwards, *self._backwards])
        known.op_marks = np.concatenate([known.op_marks, *self._op_marks])
        known.older_offsets = np.concatenate([no_numbers(), *self._older])
        known.old_records = OldRecords.joined(self._old)
        offsets, numbers = (np.concatenate(columns) for columns in zip(*self._halves, strict=True))
        known.numbers = split_numbers(self._store, offsets, numbers, *self._split.offsets)
        decisions, places, _ = unmatched_ends(*(identified_rows(self._named[name]) for name in _NAMED))
        is_new = ~np.isin(decisions, np.array(self._reported, np.int64))
        known.ends = np.stack([decisions, places], axis=1)[is_new]
        known.queues = self._queues.compared()
        known.index = self._index.compared(self._split.offsets[0])
        return known


# Faults of single records: impossible header values, wrong CRCs, unreadable properties and bodies.
#
# The header has no checksum (readers/log/header_rules.py has its rules); the body has one, and properties have one if
# the broker is configured for it (enabledAppendPropCRC, 5.2.0+).


def record_findings(store: Store, block: Block, *, with_bodies: bool, with_everything: bool) -> Iterator[Finding]:
    """Return the findings about the records of a block.

    `with_bodies`: CRCs of bodies and properties; those of ops are checked elsewhere. `with_everything`: also whether
    compressed bodies can be inflated, and every property area; zeros at the end of properties are always found.
    Order: kind of finding, then commit-log offset.
    """
    # If bodies are read, records are compared with their slots: a wrong topic, queue or number is reported there.
    with_queues = not with_bodies or store.has_rocksdb_queues
    yield from broken_rules(block, store.root, (*PLACE_RULES, *RECORD_RULES) if with_queues else RECORD_RULES)
    if with_queues:
        yield from topic_findings(store, block)
    torn = have_torn_properties(block)
    yield from torn_findings(block.take(torn), store.root)
    if not with_bodies:
        return
    matches = block.body_crc_matches()
    if not matches.all():  # a wrong CRC of an op message is reported where its numbers are read
        is_reported = block.topic_is(OP_TOPIC) | (block.header("body_crc") < 0)
        yield from crc_findings(store, block, pa.array(matches | is_reported))
    yield from property_crc_findings(block, store.root)
    if with_everything:
        yield from _property_findings(store, block.take(~torn))
        yield from _stream_findings(store, block)


def _finding(store: Store, block: Block, row: int, code: str, expected: str, actual: str | None) -> Finding:
    return Finding(
        store.root, code, block.file, int(block.positions[row]), int(block.lengths[row]),
        commit_log_offset=int(block.commit_log_offsets[row]), expected=expected, actual=actual,
    )


def older_design_rows(block: Block) -> Int64s:
    """Return the rows of prepared and rollback records, which only designs before 4.3 write."""
    kinds = block.sys_flag & TRANSACTION_MASK
    return np.flatnonzero((kinds == PREPARED) | (kinds == ROLLBACK))


# --- what only a full verification reads ------------------------------------------------------------------------------


def _property_findings(store: Store, block: Block) -> Iterator[Finding]:
    for row in np.flatnonzero(block.properties.malformed()).tolist():
        yield _finding(store, block, row, "record-properties", "names and values", None)


def _stream_findings(store: Store, block: Block) -> Iterator[Finding]:
    rows = np.flatnonzero(block.sys_flag & COMPRESSED)
    if not len(rows):
        return
    bodies = block.take(rows).bodies().cast(pa.binary()).to_pylist()
    for row, body in zip(rows.tolist(), bodies, strict=True):
        if body and compression.inflate(body, int(block.sys_flag[row])) is None:
            yield _finding(store, block, row, "body-stream", "a compressed stream, by its flag", None)
