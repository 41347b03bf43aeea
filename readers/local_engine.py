"""Runs the kernels over a store on this machine: in this process for small stores, in one per core for large ones.

Memory is bounded whatever the log's length: witnesses are set aside by transaction (`spool.py`), and one partition
after another is judged. The rules are in `transactions.py`, and the same function judges what the fast path finds.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from readers.chains import Witnesses
from readers.columns import Int64s
from readers.commit_log import last_with_data, span_findings, written_bytes
from readers.errors import SourceError
from readers.findings import Finding
from readers.foreign import find_foreign_decisions
from readers.half_queue import JUDGED_HALVES, halves_of, marks_of, op_findings, witnesses_of
from readers.kernels import ACCELERATED_BYTES_MIN, is_accelerator_installed, use_accelerator
from readers.missing import UnfoundSlot, derived_findings, missing_bytes, unfound_slots
from readers.reading import Coverage, Reading
from readers.record_block import Block
from readers.segment_scan import SegmentScan, Span
from readers.sources import Segment
from readers.splits import SPLIT_BYTES
from readers.spool import Spool, identities, partition_numbers
from readers.store import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC, Store
from readers.store_view import SettingsOf, StoreFacts, store_facts
from readers.tables import TRANSACTIONS
from readers.transactions import StoreView, judge
from readers.workers import ONE_PROCESS_BYTES_MAX, Progress, Workers

#: Log bytes whose transactions are judged at once.
PARTITION_BYTES = 96 << 20


@dataclass(frozen=True, slots=True)
class _Split:
    """A range of a segment to scan, and where its witnesses go."""

    store: Store
    segment: Segment
    from_position: int
    to_position: int
    is_last: bool
    partitions_count: int
    directory: Path | None
    stem: str
    at_ms: int | None
    is_accelerated: bool

    @property
    def offsets(self) -> tuple[int, int]:
        """The commit-log offsets of its range."""
        return self.segment.base_offset + self.from_position, self.segment.base_offset + self.to_position

    def scanned_offsets(self, spans: list[Span]) -> tuple[int, int]:
        """The same without what a running broker had not written when the scan came there: queues are read later."""
        begin, end = self.offsets
        if self.store.in_use:
            places = [span.position_bytes for span in spans if span.kind in ("preallocated", "torn")]
            end = min([end, *(self.segment.base_offset + place for place in places)])
        return begin, max(begin, end)


@dataclass(slots=True)
class _Scanned:
    """What one split gave. `half_places`: queue offset and partition; offsets are of the commit log, in bytes."""

    split: _Split
    spool: Spool
    decoded_bytes: int = 0
    spans: list[Span] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    half_queue_offsets: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    half_partitions: npt.NDArray[np.uint16] = field(default_factory=lambda: np.empty(0, np.uint16))
    unfound: list[UnfoundSlot] = field(default_factory=list)
    final_prepared_offsets: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    final_offsets: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    checks_seen_max: int = 0
    last_store_time_ms: int = 0
    error: SourceError | None = None

    @property
    def is_segment_ended(self) -> bool:
        """Whether the segment's data ended here: records in later splits are those that recovery once cut off."""
        size = self.split.segment.size_bytes
        return any(span.position_bytes + span.length_bytes == size for span in self.spans)


def _scan_split(split: _Split) -> _Scanned:
    """Scan one split and set its witnesses aside."""
    use_accelerator(split.is_accelerated)
    scan = SegmentScan(
        split.segment, from_position=split.from_position, to_position=split.to_position, is_last=split.is_last
    )
    result = _Scanned(split, Spool(split.partitions_count, split.directory))
    found: dict[str, list[pa.RecordBatch]] = {"halves": [], "ops": [], "finals": [], "discards": []}
    try:
        for block in scan:
            kept = block if split.at_ms is None else block.within(None, split.at_ms + 1)
            for name, rows in witnesses_of(kept, split.store.root).items():
                found[name].append(rows)
    except SourceError as error:
        result.error = error
    result.decoded_bytes, result.spans = scan.decoded_bytes, scan.spans
    result.last_store_time_ms = scan.last_store_time_ms
    _set_aside(result, found)
    return result


def _set_aside(result: _Scanned, found: dict[str, list[pa.RecordBatch]]) -> None:
    split, spool = result.split, result.spool
    count = split.partitions_count
    for name in ("halves", "discards", "finals"):
        if found[name]:
            numbers = np.concatenate([partition_numbers(identities(rows), count) for rows in found[name]])
            spool.add(name, found[name], numbers, split.stem)
            if name == "halves":
                result.half_partitions = numbers.astype(np.uint16)
    if found["ops"]:
        # Where op numbers go is known when all halves are: until then they are one partition.
        marks = [marks_of(rows) for rows in found["ops"]]
        whole = Spool(1, split.directory)
        whole.add("marks-unsorted", marks, np.zeros(sum(len(rows) for rows in marks), np.int64), split.stem)
        spool.merge(whole)
        for rows in found["ops"]:
            result.findings.extend(op_findings(rows, split.store.root))
    result.half_queue_offsets = _column(found["halves"], "queue_offset")
    half_offsets = _column(found["halves"], "commit_log_offset")
    offsets = split.scanned_offsets(result.spans)
    for topic, name in ((HALF_TOPIC, "halves"), (OP_TOPIC, "ops"), (DISCARD_TOPIC, "discards")):
        if split.at_ms is None:
            mine = _column(found[name], "queue_id") == 0
            places, numbers = (_column(found[name], column)[mine] for column in ("commit_log_offset", "queue_offset"))
            result.unfound.extend(unfound_slots(split.store, topic, places, numbers, *offsets))
    # Decisions that name a half copy of this split need no look: what is left are few, most across the split's border.
    # A commit of a diverted half message is in the half topic again, so halves may be decisions too.
    decisions = [*found["finals"], *found["halves"]]
    prepared = _column(decisions, "prepared_transaction_offset")
    elsewhere = (prepared > 0) & ~np.isin(prepared, half_offsets)
    result.final_prepared_offsets = prepared[elsewhere]
    result.final_offsets = _column(decisions, "commit_log_offset")[elsewhere]
    result.checks_seen_max = int(_column(found["halves"], "checks_count").max(initial=0))


def _column(batches: list[pa.RecordBatch], name: str) -> Int64s:
    parts = [np.asarray(rows[name].fill_null(0).cast(pa.int64())) for rows in batches]
    return np.concatenate([np.empty(0, np.int64), *parts])


def _splits(
    number: int, store: Store, partitions_count: int, directory: Path | None, at_ms: int | None, is_accelerated: bool
) -> Iterator[_Split]:
    last = last_with_data(store.commit_log)
    for segment in store.commit_log:
        is_last = segment.base_offset >= last
        for begin in range(0, segment.size_bytes, SPLIT_BYTES):
            end = min(begin + SPLIT_BYTES, segment.size_bytes)
            stem = f"{number}-{segment.base_offset:020d}-{begin}"
            yield _Split(
                store, segment, begin, end, is_last, partitions_count, directory, stem, at_ms, is_accelerated
            )


class _Marks:
    """Op marks sent to the partitions of the halves that they name."""

    def __init__(self, scanned: list[_Scanned], partitions_count: int) -> None:
        self.partitions_count = partitions_count
        offsets = np.concatenate([np.empty(0, np.int64), *(s.half_queue_offsets for s in scanned)])
        partitions = np.concatenate([np.empty(0, np.uint16), *(s.half_partitions for s in scanned)])
        if (np.diff(offsets) < 0).any():
            order = np.argsort(offsets, kind="stable")
            offsets, partitions = offsets[order], partitions[order]
        self._offsets, self._partitions = offsets, partitions
        self._first = int(offsets[0]) if len(offsets) else 0
        self._is_dense = len(offsets) > 0 and bool((np.diff(offsets) == 1).all())

    def spread(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Int64s]:
        """The marks that name a half, once for each partition that has one; and those partitions."""
        numbers = np.asarray(rows["half_queue_offset"])
        if self._is_dense:  # every number has one half: its place is its distance from the first
            owners = np.flatnonzero((numbers >= self._first) & (numbers < self._first + len(self._offsets)))
            partitions = self._partitions[numbers[owners] - self._first].astype(np.int64)
            return (rows if len(owners) == len(numbers) else rows.take(pa.array(owners))), partitions
        low = np.searchsorted(self._offsets, numbers, "left")
        high = np.searchsorted(self._offsets, numbers, "right")
        counts = high - low
        owners = np.repeat(np.arange(len(numbers)), counts)
        steps = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        partitions = self._partitions[np.repeat(low, counts) + steps].astype(np.int64)
        if (counts > 1).any():  # a damaged queue offset: two halves claim one number
            _, kept = np.unique(owners * self.partitions_count + partitions, return_index=True)
            owners, partitions = owners[kept], partitions[kept]
        return rows.take(pa.array(owners)), partitions


@dataclass(frozen=True, slots=True)
class _Verdict:
    """One partition to judge."""

    spool: Spool
    number: int
    views: dict[str, StoreView]


def _judge_partition(task: _Verdict) -> list[pa.RecordBatch]:
    spool, number = task.spool, task.number
    table = judge(
        Witnesses.of(*(spool.part(name, number) for name in ("halves", "marks", "finals", "discards"))), task.views
    )
    return list(table.combine_chunks().to_batches())


def _judge_to_file(task: _Verdict) -> Path:
    assert task.spool.directory is not None
    path = task.spool.directory / f"verdicts-{task.number}.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, TRANSACTIONS) as writer:
        for batch in _judge_partition(task):
            writer.write_batch(batch)
    return path


def audit(
    stores: list[Store],
    settings_of: SettingsOf,
    *,
    at_ms: int | None = None,
    processes: int | None = None,
    temporary_directory: str | None = None,
    progress: Progress | None = None,
) -> Reading:
    """The verdict on every transaction of the stores, which are one audit: copies and decisions join across them.

    Shape:  batches of TRANSACTIONS. `processes`: at most so many; None is one per core, and one for small stores.
    Order:  of the first witness, within a partition; a store below ONE_PROCESS_BYTES_MAX is one partition.
    Damage: findings; what it makes unknowable is UNDECIDABLE.
    Raises: SourceError if nothing at all can be read.
    """
    reading = Reading(TRANSACTIONS, [])
    reading.batches = _audit(reading, stores, settings_of, at_ms, processes, temporary_directory, progress)
    return reading


def _audit(
    reading: Reading,
    stores: list[Store],
    settings_of: SettingsOf,
    at_ms: int | None,
    processes: int | None,
    temporary_directory: str | None,
    progress: Progress | None,
) -> Iterator[pa.RecordBatch]:
    facts = {store.root: store_facts(store, settings_of) for store in stores}
    total = sum(written_bytes(segment) for store in stores for segment in store.commit_log)
    workers = processes or os.cpu_count() or 1
    is_small = total <= ONE_PROCESS_BYTES_MAX
    fast = total >= ACCELERATED_BYTES_MIN * workers and is_accelerator_installed()
    reading.notes.append(f"scanned by {'the accelerator' if fast else 'the reference path'}")
    with tempfile.TemporaryDirectory(prefix="rmqtx-", dir=temporary_directory) as name:
        directory = None if is_small else Path(name)
        count = 1 if is_small else max(2, -(-total // PARTITION_BYTES))
        splits = [
            split
            for number, store in enumerate(stores)
            for split in _splits(number, store, count, directory, at_ms, fast)
        ]
        with Workers(1 if is_small else workers) as pool:
            spool = Spool(count, directory)
            scanned: dict[str, list[_Scanned]] = {store.root: [] for store in stores}
            done = 0
            ended: set[str] = set()
            for result in pool.run(_scan_split, splits):
                if result.split.segment.file in ended:
                    continue
                if result.is_segment_ended:
                    ended.add(result.split.segment.file)
                spool.merge(result.spool)
                scanned[result.split.store.root].append(result)
                done += result.decoded_bytes
                if progress is not None:
                    progress(min(done, total), total)
            for store in stores:
                _conclude(facts[store.root], scanned[store.root], reading, spool)
            views = {root: fact.view(at_ms) for root, fact in facts.items()}
            tasks = [_Verdict(spool, number, views) for number in range(count)]
            if directory is None:
                yield from _judge_partition(tasks[0])
            else:
                for path in pool.run(_judge_to_file, tasks):
                    with pa.memory_map(str(path)) as file:
                        verdicts = pa.ipc.open_file(file)
                        yield from (verdicts.get_batch(i) for i in range(verdicts.num_record_batches))
                    path.unlink()


def _conclude(facts: StoreFacts, scanned: list[_Scanned], reading: Reading, spool: Spool) -> None:
    """What is known of a store when all its splits are scanned: coverage, findings, missing bytes, where marks go."""
    store = facts.store
    coverage = {segment.file: Coverage(store.root, segment.file, segment.size_bytes) for segment in store.commit_log}
    found: list[Finding] = []
    damaged: list[tuple[Segment, int, int]] = []
    for result in scanned:
        segment = result.split.segment
        coverage[segment.file].count(result.decoded_bytes, result.spans)
        found.extend(span_findings(store, segment, result.spans))
        found.extend(result.findings)
        damaged.extend((segment, s.position_bytes, s.length_bytes) for s in result.spans if s.kind == "damaged")
        if result.error is not None:
            found.append(Finding(store.root, "unreadable-file", segment.file, actual=str(result.error)))
        facts.checks_seen_max = max(facts.checks_seen_max, result.checks_seen_max)
    reading.coverage.extend(coverage.values())

    def every(name: str) -> Int64s:
        return np.concatenate([np.empty(0, np.int64), *(getattr(result, name) for result in scanned)])

    facts.foreign_decisions.extend(
        find_foreign_decisions(store, every("final_offsets"), every("final_prepared_offsets"))
    )
    unfound = [slot for result in scanned for slot in result.unfound]
    missing = missing_bytes(store, damaged, [*facts.findings, *found], unfound)
    facts.missing.extend(missing.ranges)
    has_halves = any(len(result.half_queue_offsets) for result in scanned)
    facts.findings.extend(
        [*found, *missing.findings, *derived_findings(store, facts.cursors.half, has_halves)]
    )
    _add_damaged_halves(missing.damaged_halves, scanned, spool, store)
    marks = _Marks(scanned, spool.partitions_count)
    for result in scanned:
        for batch in result.spool.part("marks-unsorted", 0):
            rows, partitions = marks.spread(batch)
            if len(rows):
                spool.add("marks", [rows], partitions, result.split.stem)
    reading.findings.extend(facts.findings)


def _add_damaged_halves(blocks: list[Block], scanned: list[_Scanned], spool: Spool, store: Store) -> None:
    """Half copies that are damaged stay in their chains, so that marks and copies still find their transaction."""
    if not blocks:
        return
    rows = [halves_of(block, store.root, JUDGED_HALVES) for block in blocks]
    numbers = np.concatenate([partition_numbers(identities(row), spool.partitions_count) for row in rows])
    spool.add("halves", rows, numbers, f"{scanned[0].split.stem}-damaged")
    scanned[0].half_queue_offsets = np.append(scanned[0].half_queue_offsets, _column(rows, "queue_offset"))
    scanned[0].half_partitions = np.append(scanned[0].half_partitions, numbers.astype(np.uint16))
