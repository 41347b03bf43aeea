"""The end of a stopped broker's log, and the records to append there: planned in memory, returned as steps of a change.

The end is found as a broker finds it in recovery after a crash, which it does when there is a file `abort`: it reads
from the last file that its checkpoint covers, and stops at the first invalid record. A log with damage between that
file and its end is refused, because recovery would cut off appended records together with the damage.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from rmqtx.readers.log.commit_log import last_with_data
from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.record_layout import BLANK, PREPARED, ROLLBACK, TRANSACTION_MASK
from rmqtx.readers.log.segment_scan import SegmentScan
from rmqtx.readers.model.errors import UnsafeStore
from rmqtx.readers.model.shell_words import quoted
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.storage.segments import Segment, SegmentedLog
from rmqtx.readers.store.checkpoint import checkpoint_values
from rmqtx.readers.store.store import Store
from rmqtx.repairs.changes.change_sets import Barrier, ChangeSet, CreateFile, ReplaceFile, Step, WriteAt
from rmqtx.repairs.changes.clones import COMMIT_LOG
from rmqtx.repairs.records.record_writer import PROPERTY_CRC, RecordDraft, WritingRules, blank_head, draft_of

__all__ = ["LogEnd", "LogTail", "Placed", "log_end"]

#: The broker starts a little before its checkpoint. Source: store/StoreCheckpoint.java getMinTimestamp.
_CHECKPOINT_MARGIN_MS = 3_000
#: A scan ends at these bytes: neither a length nor a magic code.
_END_MARK = bytes(BLANK.size_bytes)
_Queue = tuple[str, int]


@dataclass(slots=True)
class LogEnd:
    """The end of a log, and facts from its last records.

    Shape: `segment` is the file that contains the end, or the last file if that is full; `position_bytes` the end
           within it. `next_queue_offsets`: by topic and queue number, the queue offset after the last record that was
           scanned. `store_host`: the broker's address in the last record; None for an empty log.
    """

    segment: Segment
    position_bytes: int = 0
    last_store_time_ms: int = 0
    has_property_crc: bool = False
    store_host: bytes | None = None
    next_queue_offsets: dict[_Queue, int] = field(default_factory=dict)

    @property
    def offset(self) -> int:
        """The end as a commit-log offset. Units: bytes."""
        return self.segment.base_offset + self.position_bytes


def log_end(store: Store) -> LogEnd:
    """Return the end of the log of a store.

    Raises: UnsafeStore where a broker's recovery would stop before the end, or the broker would not start; SourceError.
    Source: store/CommitLog.java recoverAbnormally, isMappedFileMatchedRecover; docs/formats/record.md#validation,
            docs/formats/recovery.md#crash.
    """
    _require_whole_files(store)
    last = last_with_data(store.commit_log)
    walked = [segment for segment in _from_recovery_start(store) if segment.base_offset <= last]
    end = LogEnd(walked[0])
    for segment in walked:
        end.segment, end.position_bytes = segment, 0
        _walk(segment, end, is_last=segment.base_offset == last)
    return end


def _require_whole_files(store: Store) -> None:
    """Refuse files that a broker does not load."""
    for finding in store.findings:
        if finding.code in ("segment-gap", "segment-overlap", "segment-size", "stray-file", "unreadable-file"):
            raise UnsafeStore(
                f"the commit log of {store.root} is damaged: {finding.line()}",
                advice=f"list all findings and repair the log first: rmqtx verify {quoted(store.root)}",
            )
    if not store.commit_log:
        raise UnsafeStore(f"cannot append to {store.root}: it has no commit log")


def _from_recovery_start(store: Store) -> list[Segment]:
    """The files that a broker reads in recovery after a crash.

    It starts at the newest file whose first record is not newer than the checkpoint, else at the first file.
    """
    values = checkpoint_values(store)
    times = (values.get("physic_msg_time_ms", 0), values.get("logics_msg_time_ms", 0))
    sure_ms = max(0, min(times) - _CHECKPOINT_MARGIN_MS)
    segments = list(store.commit_log)
    for number in range(len(segments) - 1, -1, -1):
        first_ms = _first_store_time_ms(segments[number])
        if first_ms is not None and 0 < first_ms <= sure_ms:
            return segments[number:]
    return segments


def _first_store_time_ms(segment: Segment) -> int | None:
    for block in SegmentScan(segment, to_position=1, stops_at_break=True):
        return int(block.header("store_time_ms")[0])
    return None


def _walk(segment: Segment, end: LogEnd, *, is_last: bool) -> None:
    """Scan one file, and update `end`."""
    scan = SegmentScan(segment, is_last=is_last, with_fillers=True)  # the fillers of a salvage are records for a broker
    for block in scan:
        _require_sound_bodies(segment, block)
        _count(block, end)
        if not len(block):
            continue
        newest = block.take(np.array([len(block) - 1]))
        record = block.raw[int(newest.starts[0]) : int(newest.starts[0]) + int(newest.lengths[0])]
        end.last_store_time_ms = int(newest.header("store_time_ms")[0])
        end.has_property_crc = PROPERTY_CRC in record
        end.store_host = draft_of(record).store_host
        end.position_bytes = int(newest.positions[0]) + len(record)
    for span in scan.spans:
        if span.kind == "blank":
            end.position_bytes = segment.size_bytes
        elif not span.is_filler and not (is_last and span.kind == "foreign"):
            raise _broken(segment, span.position_bytes, f"{span.length_bytes} {span.kind} bytes")
    if not is_last and end.position_bytes != segment.size_bytes:
        raise _broken(segment, end.position_bytes, "no blank record before the next file")


def _require_sound_bodies(segment: Segment, block: Block) -> None:
    """Refuse a block with a wrong body CRC: a recovery with checkCRCOnRecover stops there."""
    matches = block.body_crc_matches()
    if not matches.all():
        raise _broken(segment, int(block.positions[~matches][0]), "a record with a wrong body CRC")


def _broken(segment: Segment, position_bytes: int, what: str) -> UnsafeStore:
    return UnsafeStore(
        "cannot append: the log is damaged in the range that the broker's recovery reads: "
        f"{what} in {segment.file} at byte {position_bytes}",
        file=segment.file, position_bytes=position_bytes,
        advice="recovery would cut off records appended after it; list the damage with rmqtx verify, then make a sound "
        "store with rmqtx salvage",
    )


def _count(block: Block, end: LogEnd) -> None:
    """Update the next queue offset of every queue that has records in a block.

    Prepared and rollback records have no queue offset (before 4.3).
    """
    kinds = block.sys_flag & TRANSACTION_MASK
    counted = block.take((kinds != PREPARED) & (kinds != ROLLBACK))
    table = pa.table(
        {"topic": counted.topic_texts(), "queue": counted.header("queue_id"), "last": counted.header("queue_offset")}
    )
    for row in table.group_by(["topic", "queue"]).aggregate([("last", "max")]).to_pylist():
        end.next_queue_offsets[row["topic"], row["queue"]] = row["last_max"] + 1


@dataclass(frozen=True, slots=True)
class Placed:
    """A record to append, with its offsets."""

    commit_log_offset: int
    queue_offset: int
    record: bytes
    draft: RecordDraft


class LogTail:
    """Plans records at the end of a log.

    Nothing is written: `change_set()` returns the steps, with paths relative to the store's root.
    """

    def __init__(
        self, store: Store, end: LogEnd, rules: WritingRules, *, now_ms: int, abort: bytes | None, is_copied: bool
    ) -> None:
        """`abort`: the content of that file; None where the broker must not find one.

        `is_copied`: whether the steps are for a copy of the store.
        """
        self._store = store
        self._abort = abort
        self._is_copied = is_copied
        self._rules = rules
        self._end = end
        self._segment_bytes = max(segment.size_bytes for segment in store.commit_log)
        self._base = end.segment.base_offset
        self._position = end.position_bytes
        #: New bytes by the base offset of their file, with their position in it.
        self._pieces: dict[int, tuple[int, bytearray]] = {}
        self._next: dict[_Queue, int] = {}
        # Store times must not fall along the log: searches by time and recovery rely on it.
        self._store_time_ms = max(now_ms, end.last_store_time_ms)
        self.placed: list[Placed] = []

    def append(self, draft: RecordDraft) -> Placed:
        """Append a record; a file in which it does not fit is closed with a blank record.

        Raises: UnsafeStore where its queue and the log contradict each other, SourceError, FormatError.
        """
        length = draft.length_bytes(self._rules)
        if length + BLANK.size_bytes > self._segment_bytes:
            raise UnsafeStore(f"a record of {length} bytes does not fit into a file of {self._segment_bytes}")
        if length + BLANK.size_bytes > self._segment_bytes - self._position:
            self._roll_over()
        is_queued = draft.queue_offset is None
        queue_offset = self._next_queue_offset(draft.topic, draft.queue_id) if is_queued else draft.queue_offset
        assert queue_offset is not None
        offset = self._base + self._position
        record = draft.record(
            self._rules, queue_offset=queue_offset, commit_log_offset=offset, store_time_ms=self._store_time_ms
        )
        self._write(record)
        if is_queued:
            self._next[draft.topic, draft.queue_id] = queue_offset + 1
        placed = Placed(offset, queue_offset, record, draft)
        self.placed.append(placed)
        return placed

    def _roll_over(self) -> None:
        left = self._segment_bytes - self._position
        if left:
            self._write(blank_head(left))
        self._base += self._segment_bytes
        self._position = 0

    def _write(self, data: bytes) -> None:
        begin, piece = self._pieces.setdefault(self._base, (self._position, bytearray()))
        assert begin + len(piece) == self._position
        piece += data
        self._position += len(data)

    def next_offset(self, topic: str) -> int | None:
        """Return the queue offset that the next half or op message gets; None where its queue contradicts the log."""
        try:
            return self._next_queue_offset(topic, 0)
        except UnsafeStore:
            return None  # the act is refused when it is planned

    def _next_queue_offset(self, topic: str, queue_id: int) -> int:
        """Return the next queue offset of a queue, from its files and from log records that the files may lack.

        Raises: UnsafeStore where slots and records are numbered differently: the broker would use another offset.
        """
        if (topic, queue_id) in self._next:
            return self._next[topic, queue_id]
        with open_queue(self._store, topic, queue_id) as queue:
            in_queue = queue.max_offset
            last = queue.read(in_queue - 1, in_queue)[1].tolist() if in_queue else []
            findings = list(queue.findings)
        in_log = self._end.next_queue_offsets.get((topic, queue_id), 0)
        name = f"queue {queue_id} of {topic}"
        if findings:
            raise _contradiction(f"{name} is damaged: {findings[0].line()}")
        if last and last[0] >= self._end.offset:
            raise _contradiction(f"{name} points at offset {last[0]}, after the end of the log ({self._end.offset})")
        is_behind = in_log > in_queue and self._store.aborted  # recovery after a crash adds them to the queue
        if in_log and in_log != in_queue and not is_behind:
            raise _contradiction(
                f"{name} ends at queue offset {in_queue}, and its last record in the log has queue offset {in_log - 1}"
            )
        if last and not in_log:
            self._require_record(topic, queue_id, in_queue - 1, last[0])
        return max(in_queue, in_log)

    def _require_record(self, topic: str, queue_id: int, queue_offset: int, offset: int) -> None:
        """Refuse a queue whose last slot contradicts its record, which was not in the scanned files."""
        if offset < self._store.log_begin_offset:  # the record has expired and cannot be compared
            return
        name = f"queue {queue_id} of {topic}"
        with SegmentedLog(self._store.commit_log) as log:
            block = block_at(log, offset)
        if block is None:
            raise _contradiction(f"the last slot of {name} points at offset {offset}, which has no record")
        found = (block.topic_texts()[0].as_py(), int(block.header("queue_id")[0]), int(block.header("queue_offset")[0]))
        if found != (topic, queue_id, queue_offset):
            raise _contradiction(
                f"slot {queue_offset} of {name} points at a record with queue offset {found[2]} of queue {found[1]} "
                f"of {found[0]}"
            )

    # -- as steps -----------------------------------------------------------------------------------------------------

    def change_set(self) -> ChangeSet:
        """The changes to the files of the store.

        Order: `abort` first, so that a broker started on an incomplete change runs recovery; then the files of the log,
        the new file before the file that a blank record closes; last the length and magic code of the first record.
        Without these every scan ends where the log ended before (docs/formats/record.md#validation), so a broker finds
        all records or none. A real 5.1.4 accepted a record with torn properties and an intact body.
        """
        steps: list[Step] = []
        if self._abort is not None and not self._store.aborted:
            steps += [ReplaceFile("abort", self._abort), Barrier()]
        files = {segment.base_offset: segment for segment in self._store.commit_log}
        for base in sorted(self._pieces, reverse=True):
            begin, piece = self._pieces[base]
            segment = files.get(base)
            if segment is None:
                steps.append(CreateFile(self._new_file(base), self._segment_bytes, bytes(piece)))
            else:
                path = self._below_root(segment.file)
                data = bytes(piece) + self._end_mark(segment, begin + len(piece))
                head = BLANK.size_bytes if base == min(self._pieces) else 0
                if data[head:]:
                    steps += [WriteAt(path, begin + head, data[head:]), Barrier()]
                if head:
                    steps.append(WriteAt(path, begin, data[:head]))
            steps.append(Barrier())
        return ChangeSet(tuple(steps))

    def _end_mark(self, segment: Segment, position: int) -> bytes:
        """Zeros to write after the last record, where older bytes could be read as another record."""
        with segment.open() as file:
            behind = file.read(position, len(_END_MARK))
        return bytes(len(behind)) if behind.strip(b"\0") else b""

    def _new_file(self, base: int) -> str:
        """The path of a new file of the log, below the root.

        Source: store/MultiPathMappedFileQueue.java tryCreateMappedFile; docs/formats/store.md#several-paths.
        """
        directories = sorted(self._store.commit_log_directories)
        directory = directories[base // self._segment_bytes % len(directories)]
        return self._below_root(str(Path(directory) / f"{base:020}"))

    def _below_root(self, file: str) -> str:
        """The path of a file of the log below the root; for a file outside the root, its path in the copy.

        Raises: UnsafeStore for a file outside the root if no copy is made: an undo file names only files of its store.
        """
        root = Path(self._store.root).resolve()
        place = Path(file).parent.resolve() / Path(file).name
        if place.is_relative_to(root):
            return place.relative_to(root).as_posix()
        if not self._is_copied:
            raise UnsafeStore(
                f"cannot change {file} in place: it lies outside {root}", advice="make a changed copy: --to DIR"
            )
        return f"{COMMIT_LOG}/{place.name}"


def _contradiction(what: str) -> UnsafeStore:
    return UnsafeStore(
        f"cannot append: the broker could give the record another queue offset: {what}",
        advice="rmqtx verify lists the findings; where slots are missing, rebuild the queues with rmqtx rebuild "
        "queues; where a queue was deleted and its numbers began again, act on the running broker (-n HOST:PORT)",
    )
