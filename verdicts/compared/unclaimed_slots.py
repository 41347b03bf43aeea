"""Slots and records that are left after all splits of a store have compared their records with the consume queues.

Slots that no record claimed and records with a different slot are matched here, so one damaged field is one finding: at
the slot if there is one, else at the record. Neighbouring slots with the same fault are one finding.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from rmqtx.readers.finding_kinds.queues import KEEP_QUEUE, RESUME_SLOTLESS
from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.log.record_layout import RECORD_BYTES_MIN
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import FINDINGS_MAX, Finding, as_text
from rmqtx.readers.model.ranges import LogRanges, between, inside, merged
from rmqtx.readers.queues.consume_queue import Slots, are_filler, are_sound
from rmqtx.readers.queues.consume_queue_extension import ADDRESS_BITS, EXTENSION_ADDRESS_MAX
from rmqtx.readers.queues.slot_files import (
    BATCH,
    RECORD_COLUMNS,
    SIMPLE,
    QueueName,
    QueuePart,
    SlotFiles,
    queue_text,
    slot_files,
    topic_bytes,
    topic_text,
)
from rmqtx.readers.queues.unit_files import BLOCK_UNITS, gaps_as, is_well_named, misnamed, used_end
from rmqtx.readers.rocksdb.rocksdb_queues import queue_bounds
from rmqtx.readers.store.store import HALF_TOPIC, Store
from rmqtx.verdicts.compared.losses import meaning_of_mismatch
from rmqtx.verdicts.compared.queue_claims import QueueParts
from rmqtx.verdicts.startup.losses import amount
from rmqtx.verdicts.startup.queues import QueueFacts
from rmqtx.verdicts.startup.started_queues import queue_reach

_FINE, _INVALID, _EXPIRED, _DANGLING, _MISMATCH, _OTHER_TAGS, _IMPOSSIBLE = range(7)
_CODES = {
    _INVALID: "slot-invalid", _IMPOSSIBLE: "slot-invalid", _EXPIRED: "slot-expired", _DANGLING: "slot-dangling",
    _MISMATCH: "slot-mismatch", _OTHER_TAGS: "slot-tags-mismatch",
}


@dataclass(slots=True)
class _Queue:
    """One queue with the results of all splits."""

    name: QueueName
    files: SlotFiles
    records: QueuePart
    used_end: int = 0
    is_readable: bool = True
    reported: list[tuple[int, int]] = field(default_factory=list)


class _Parts:
    """The parts of all splits, for access queue by queue."""

    def __init__(self, parts: list[QueueParts]) -> None:
        self.names: dict[QueueName, int] = {}
        owners = [
            np.array([self.names.setdefault(name, len(self.names)) for name in part.names], np.int64) for part in parts
        ]
        none = QueueParts()
        run_owners = np.concatenate(
            [none.run_owners, *(mine[part.run_owners] for mine, part in zip(owners, parts, strict=True))]
        )
        record_owners = np.concatenate(
            [none.record_owners, *(mine[part.record_owners] for mine, part in zip(owners, parts, strict=True))]
        )
        order = np.argsort(run_owners, kind="stable")
        self._runs = np.concatenate([none.runs, *(part.runs for part in parts)])[order]
        self._run_cuts = np.searchsorted(run_owners[order], np.arange(len(self.names) + 1))
        order = np.argsort(record_owners, kind="stable")
        self.record_owners = record_owners[order]
        self.records = np.concatenate([none.records, *(part.records for part in parts)], axis=1)[:, order]
        self._record_cuts = np.searchsorted(self.record_owners, np.arange(len(self.names) + 1))
        self._parts, self._owners = parts, owners

    def spans(self) -> dict[QueueName, Int64s]:
        """Return for each queue the ranges between the first and the last agreeing slot of each split."""
        names = list(self.names)
        rows: dict[QueueName, list[Int64s]] = defaultdict(list)
        for part, owners in zip(self._parts, self._owners, strict=True):
            for owner in np.unique(part.run_owners).tolist():
                runs = part.runs[part.run_owners == owner]
                rows[names[owners[owner]]].append(np.array([[runs[:, 0].min(), runs[:, 1].max()]], np.int64))
        return {name: merged(found) for name, found in rows.items()}

    def of(self, name: QueueName) -> QueuePart:
        """Return the results of all splits for a queue."""
        number = self.names.get(name)
        runs, records = slice(0), slice(0)
        if number is not None:
            runs = slice(self._run_cuts[number], self._run_cuts[number + 1])
            records = slice(self._record_cuts[number], self._record_cuts[number + 1])
        return QueuePart(merged([self._runs[runs]]), *self.records[:, records])


class QueueComparison:
    """The queues of a store compared with its records, after all splits: the slots and records that are left."""

    def __init__(
        self, store: Store, parts: list[QueueParts], log: LogRanges, *, only_ends: bool = False,
        is_partial: bool = False, topics: frozenset[bytes] | None = None, unread: frozenset[QueueName] = frozenset(),
    ) -> None:
        """`topics`: those whose queues are compared; None: all. `unread`: queues of which only the facts are needed.

        `only_ends`: nothing was compared, and only the last slot of each queue is examined.

        `is_partial`: not all splits were read; only slots between those that agree with the same split are examined.
        """
        self._store = store
        self._is_partial = is_partial
        self._only_ends = only_ends
        self._topics = topics
        self._unread = unread
        self._ranges = log
        self._log = store.log()
        self._parts = _Parts(parts)
        self._in_files = {(kind, *name) for kind in (SIMPLE, BATCH) for name in store.queues(kind)}
        self._bounds_in_rocksdb = queue_bounds(store, []) if store.has_rocksdb_queues else {}
        offsets, numbers = (self._parts.records[RECORD_COLUMNS.index(name)] for name in ("offsets", "numbers"))
        self._spans = self._parts.spans() if is_partial else {}
        names = list(self._parts.names)
        rows = zip(offsets.tolist(), self._parts.record_owners.tolist(), numbers.tolist(), strict=True)
        self._claims = {offset: (names[owner], number) for offset, owner, number in rows}
        self.reported_offsets: set[int] = set()
        #: Simple queues, in the form that the prediction of a start needs.
        self.facts: list[QueueFacts] = []

    def findings(self) -> Iterator[Finding]:
        """Return all findings. Order: slots queue by queue, then records without a slot."""
        try:
            doubtful: list[_Queue] = []
            for name in self._names():
                queue = self._queue(name)
                yield from (one for one in self._of_queue(queue) if name not in self._unread)
                queue.files.close()
                if len(queue.records.numbers) and name not in self._unread:
                    doubtful.append(queue)
            for queue in doubtful:
                yield from self._slotless(queue)
        finally:
            self._log.close()

    def _names(self) -> list[QueueName]:
        here = {(kind, topic_bytes(topic), number) for kind, topic, number in self._in_files}
        return sorted(
            name for name in here | self._parts.names.keys() if self._topics is None or name[1] in self._topics
        )

    def _queue(self, name: QueueName) -> _Queue:
        return _Queue(name, slot_files(self._store, name), self._parts.of(name))

    # -- slots ---------------------------------------------------------------------------------------------------------

    def _of_queue(self, queue: _Queue) -> Iterator[Finding]:
        kind, topic, queue_id = queue.name
        if (kind, topic_text(topic), queue_id) in self._in_files:
            segments, gaps = self._store.queue_segments(topic_text(topic), queue_id, kind)
            yield from gaps_as("queue-gap", gaps) if queue.files.exists else ()
            for segment in segments:
                if not is_well_named(segment, queue.files.layout):
                    yield misnamed(self._store, segment, queue.files.layout, _CODES[_INVALID])
        try:
            queue.used_end = used_end(self._store, queue.files.segments, queue.files.layout)
            if self._only_ends:
                queue.records.runs = np.array([(queue.files.first, queue.used_end - 1)], np.int64)
            elif self._is_partial:
                seen = self._spans.get(queue.name, np.empty((0, 2), np.int64))
                unseen = between(seen, queue.files.first, queue.used_end - 1)
                queue.records.runs = merged([queue.records.runs, unseen])
            runs: list[_Run] = []
            for begin, end in self._unclaimed(queue):
                for first, slots in queue.files.parts(begin, end, BLOCK_UNITS):
                    self._add_hole(queue, runs, begin, first)
                    self._add_runs(queue, runs, first, slots)
                    begin = first + len(slots)
                self._add_hole(queue, runs, begin, end)
        except SourceError as error:
            queue.is_readable = False
            yield Finding(self._store.root, "unreadable-file", error.file, error.position_bytes, actual=error.message)
            return
        if kind == SIMPLE:
            invalid = [(run.begin, run.end) for run in runs if run.kind == _INVALID]
            reported = merged([np.array(queue.reported, np.int64).reshape(-1, 2)])
            self.facts.append(QueueFacts(queue.name, queue.files, queue.used_end, queue.records,
                                         np.array(invalid, np.int64).reshape(-1, 2), reported))
        for code in _CODES:
            yield from self._run_findings(queue, [run for run in runs if run.kind == code])

    def _add_runs(self, queue: _Queue, runs: list[_Run], first: int, slots: Slots) -> None:
        """Add the runs of one block; the first may continue the last run before. No run crosses the end of a file."""
        numbers = first + np.arange(len(slots))
        classes = self._classes(queue, numbers, slots)
        files = np.searchsorted(queue.files.bases, numbers, "right")
        cuts = np.flatnonzero((np.diff(classes) != 0) | (np.diff(files) != 0)) + 1
        for begin, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(slots)], strict=True):
            kind = int(classes[begin])
            if kind == _FINE:
                continue
            if kind in (_MISMATCH, _OTHER_TAGS):
                self.reported_offsets.update(slots["commit_log_offset"][begin:end].tolist())
            run = _Run(kind, int(files[begin]), first + begin, first + end, slots[begin : begin + 1].copy())
            self._add_run(queue, runs, run)

    def _add_hole(self, queue: _Queue, runs: list[_Run], begin: int, end: int) -> None:
        """Add the slots of [begin, end), which no file has; a file with a wrong name leaves billions of them."""
        if begin < end:
            file = int(np.searchsorted(queue.files.bases, begin, "right"))
            self._add_run(queue, runs, _Run(_INVALID, file, begin, end, np.zeros(1, queue.files.layout.dtype)))

    @staticmethod
    def _add_run(queue: _Queue, runs: list[_Run], run: _Run) -> None:
        queue.reported.append((run.begin, run.end))
        last = runs[-1] if runs else None
        if last is not None and (last.kind, last.end, last.file) == (run.kind, run.begin, run.file):
            last.end = run.end
        else:
            runs.append(run)

    def _run_findings(self, queue: _Queue, runs: list[_Run]) -> Iterator[Finding]:
        """A finding for each run; the last one stands for the rest: garbage gives a run for every second slot."""
        size = queue.files.layout.size_bytes
        for number, run in enumerate(runs[:FINDINGS_MAX]):
            expected, actual = self._words(queue, run.kind, run.begin, run.slot[0])
            left = runs[number:] if number == FINDINGS_MAX - 1 else [run]
            more = sum(one.end - one.begin for one in left) - 1
            segment = queue.files.segments[run.file - 1]
            is_mismatch = run.kind == _MISMATCH
            yield Finding(
                self._store.root, _CODES[run.kind], segment.file, run.begin * size - segment.base_offset,
                (run.end - run.begin) * size, expected=expected,
                actual=f"{actual or 'neither'}, and {more} more slots" if more else actual,
                meaning=meaning_of_mismatch(topic_text(queue.name[1]), more + 1) if is_mismatch else None,
                advice=KEEP_QUEUE if is_mismatch and self._has_impossible_number(queue, run.slot[0]) else None,
            )

    def _has_impossible_number(self, queue: _Queue, slot: Slots) -> bool:
        """Whether the record of a slot is of its queue, but claims a slot that the queue lacks or another record has.

        Then the number in the record is damaged, and not the queue.
        """
        offset = int(slot["commit_log_offset"])
        name, claimed = self._claims.get(offset, (queue.name, queue.used_end - 1))
        records = queue.records
        if name != queue.name or int(slot["record_length_bytes"]) not in records.lengths[records.offsets == offset]:
            return False
        is_outside = not queue.files.first <= claimed < queue.used_end
        return is_outside or bool(inside(records.runs, np.array([claimed]))[0])

    @staticmethod
    def _unclaimed(queue: _Queue) -> Iterator[tuple[int, int]]:
        """Ranges of slots that agree with no record."""
        begin = queue.files.first
        for low, high in [*queue.records.runs.tolist(), (queue.used_end, queue.used_end)]:
            if begin < (end := min(low, queue.used_end)):
                yield begin, end
            begin = max(begin, high)

    def _classes(self, queue: _Queue, numbers: Int64s, slots: Slots) -> Int64s:
        """The class of each unclaimed slot."""
        offsets = slots["commit_log_offset"].astype(np.int64)
        sound = are_sound(slots)
        classes = np.where(sound, _MISMATCH, _INVALID)
        if self._only_ends:  # the record at its place was not read
            classes[sound] = _FINE
        if queue.name[0] == SIMPLE:
            classes[are_filler(slots)] = _FINE
        outside = sound & ~self._ranges.is_held(offsets)
        # The record of a dangling slot was cut off; if the log has a record of this number, the slot is damaged.
        classes[outside] = np.where(np.isin(numbers[outside], queue.records.numbers), _IMPOSSIBLE, _DANGLING)
        if self._store.in_use:  # written by the broker since
            classes[sound & (offsets >= self._ranges.end_offset)] = _FINE
        classes[outside & (offsets < self._ranges.begin_offset)] = _EXPIRED
        classes[sound & self._ranges.is_damaged(offsets)] = _FINE
        classes[(classes == _MISMATCH) & np.isin(numbers, _with_other_tags(queue))] = _OTHER_TAGS
        return classes.astype(np.int64)

    def _words(self, queue: _Queue, kind: int, number: int, slot: Slots) -> tuple[str | None, str | None]:
        """Expected and actual of a slot."""
        if kind == _INVALID:
            return "an offset and a length", None
        offset, length = int(slot["commit_log_offset"]), int(slot["record_length_bytes"])
        records = queue.records
        rows = np.flatnonzero(records.numbers == number)
        mine = rows[records.offsets[rows] == offset]
        if kind in (_EXPIRED, _DANGLING, _IMPOSSIBLE):
            low, high = self._ranges.begin_offset, self._ranges.end_offset
            if len(rows):
                return f"commit-log offset {records.offsets[rows[0]]}", f"commit-log offset {offset}"
            return f"an offset in [{low}, {high})", str(offset)
        if len(mine):
            row = mine[0]
            if int(records.lengths[row]) != length:
                return f"a length of {records.lengths[row]} bytes", f"{length} bytes"
            wanted, found = int(records.tags_codes[row]), int(records.slot_tags[row])
            if found != wanted:
                is_address = queue.name[0] == SIMPLE and found <= EXTENSION_ADDRESS_MAX
                place = f"address {found & ADDRESS_BITS} of consumequeue_ext/, which has no unit there"
                return f"tags code {wanted}", place if is_address else f"tags code {found}"
            return "the batch values of its record", "another number, time or size"
        if len(rows):
            return f"commit-log offset {records.offsets[rows[0]]}", f"commit-log offset {offset}"
        return f"slot {number} of {queue_text(queue.name)}", self._record_text(offset)

    def _record_text(self, offset: int) -> str:
        claim = self._claims.get(offset)
        if claim is not None:
            return f"a record that claims slot {claim[1]} of {queue_text(claim[0])}"
        try:
            block = block_at(self._log, offset)
        except SourceError as error:
            return error.message
        if block is None:
            return f"no record begins at commit-log offset {offset}"
        name = (SIMPLE, block.topics().to_pylist()[0], int(block.header("queue_id")[0]))
        return f"a record that claims slot {int(block.header('queue_offset')[0])} of {queue_text(name)}"

    # -- records -------------------------------------------------------------------------------------------------------

    def _slotless(self, queue: _Queue) -> Iterator[Finding]:
        """Records whose slot is missing, unless a finding about a slot explains it."""
        records = queue.records
        is_reported = np.array([offset in self.reported_offsets for offset in records.offsets.tolist()], np.bool_)
        is_reported |= inside(merged([np.array(queue.reported, np.int64).reshape(-1, 2)]), records.numbers)
        rows = np.flatnonzero(~is_reported)
        if not len(rows) or not queue.is_readable:
            return
        is_late = self._store.aborted or self._store.in_use
        if not queue.files.exists:
            if self._store.has_rocksdb_queues:
                return
            if is_late and self._are_undispatched(int(records.offsets[rows].min())):
                yield self._of_records(queue, "slot-pending", rows)
            else:
                kind, topic, number = queue.name
                path = self._store.queue_directory(topic_text(topic), number, kind)
                yield Finding(
                    self._store.root, "queue-missing", as_text(path),
                    commit_log_offset=int(records.offsets[rows].min()),
                    expected=f"slots for {len(rows)} records", actual="no file",
                )
            return
        if queue.name[0] == SIMPLE:  # of what only RocksDB has, a broker left the files of before
            in_rocksdb = self._bounds_in_rocksdb.get((topic_text(queue.name[1]), queue.name[2]), (0, 0))[1]
            rows = rows[(records.numbers[rows] < queue.used_end) | (records.numbers[rows] >= in_rocksdb)]
        rows = rows[np.lexsort((records.offsets[rows], records.numbers[rows]))]
        numbers = records.numbers[rows]
        late = ((numbers >= queue.used_end) | (numbers < 0)) & is_late
        for code, mine in (("slot-missing", rows[~late]), ("slot-pending", rows[late])):
            cuts = np.flatnonzero(np.diff(records.numbers[mine]) != 1) + 1
            for number, run in enumerate(np.split(mine, cuts) if len(mine) else []):
                if number == FINDINGS_MAX - 1:
                    run = mine[np.flatnonzero(mine == run[0])[0] :]
                yield self._of_records(queue, code, run)
                if number == FINDINGS_MAX - 1:
                    break

    def _are_undispatched(self, offset: int) -> bool:
        """Whether all queues end before a record, so that the next start makes its slot; not if no queue has a slot."""
        try:
            return 0 <= queue_reach(self._store).end <= offset
        except SourceError:
            return False

    def _of_records(self, queue: _Queue, code: str, rows: Int64s) -> Finding:
        records, row = queue.records, int(rows[0])
        offset = int(records.offsets[row])
        more = f", and of {amount('more record', len(rows) - 1)}" if len(rows) > 1 else ""
        pointed, claimed = int(records.slot_offsets[row]), int(records.numbers[row])
        slot = "a slot" if claimed < 0 else f"slot {claimed}"  # batch slots are found by their offset alone
        is_taken = pointed >= 0 and claimed >= 0 and bool(inside(records.runs, np.array([claimed]))[0])
        # A rebuilt queue has no slot for a number that the log has no room for.
        is_taken |= claimed > queue.used_end + self._ranges.end_offset // RECORD_BYTES_MIN
        return Finding(
            self._store.root, code, *self._log.place_of(offset), int(records.lengths[row]),
            commit_log_offset=offset,
            expected=f"{slot} of {queue_text(queue.name)}{more}",
            actual="no slot" if pointed < 0 else f"a slot that points to {pointed}",
            advice=RESUME_SLOTLESS if is_taken and queue.name[1] == topic_bytes(HALF_TOPIC) else None,
        )


def _with_other_tags(queue: _Queue) -> Int64s:
    """The numbers of simple slots that lead to their record, but with another tags code."""
    if queue.name[0] == BATCH:  # its further values are compared at the same time
        return np.empty(0, np.int64)
    records = queue.records
    is_led_to = (records.slot_offsets == records.offsets) & (records.slot_lengths == records.lengths)
    found: Int64s = records.numbers[is_led_to & (records.slot_tags != records.tags_codes)]
    return found


@dataclass(slots=True)
class _Run:
    """Neighbouring slots of one file with the same fault. `file`: its number, from 1."""

    kind: int
    file: int
    begin: int
    end: int
    slot: Slots
