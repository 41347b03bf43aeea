"""What a start does with the consume queues: where each is cut, and which records it dispatches again, or never.

A broker reads the last three files of a queue up to the first invalid entry, cuts what points after the end of the
log, and then dispatches records by rules that can skip some permanently (docs/formats/consume_queues.md#recovery,
docs/formats/consume_queues.md#dispatch). Only slots that agree with no record, and records without a slot, are
examined: nothing changes for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rmqtx.readers.log.record_at import is_misplaced_at
from rmqtx.readers.log.record_layout import span_of
from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.model.ranges import inside
from rmqtx.readers.queues.consume_queue import are_filler
from rmqtx.readers.queues.slot_files import QueueName, QueuePart, SlotFiles
from rmqtx.readers.queues.unit_files import BLOCK_UNITS
from rmqtx.readers.storage.places import DirectoryEntry
from rmqtx.readers.storage.segments import Segment, SegmentedLog
from rmqtx.verdicts.startup.rules import RecoveryRules, loaded

#: The last files of a queue that a start reads. Source: store/ConsumeQueue.java recover.
QUEUE_FILES_READ = 3
#: The last slots among which one is sought that leads further than the last: pages of the log are lost at its end.
_OVERTAKEN_SLOTS = 10_000
#: The outcome for a record that a queue lacks; `_KEPT`: its old slot is valid again.
_SKIPPED, _DISPATCHED, _SHIFTED, _KEPT = range(4)


@dataclass(slots=True)
class QueueFacts:
    """The result of a verification for one simple queue.

    Shape: `invalid`: rows [from, to) of impossible slots; `doubted`: of all slots that agree with no record.
           `records`: the runs of slots that agree with a record, and the records that lack theirs.
    """

    name: QueueName
    files: SlotFiles
    used_end: int
    records: QueuePart
    invalid: Int64s
    doubted: Int64s


class AddedSlot(NamedTuple):
    """A slot that the dispatch adds: where it leads, and the number of its row in `QueueFate.rows`, -1 if in none."""

    commit_log_offset: int
    record_length_bytes: int
    row: int


@dataclass(slots=True)
class QueueFate:
    """What a start does with one queue.

    Shape: numbers of slots: before the start the queue ends at `used_end`, after the cut at `cut_end`, and after the
           dispatch at `end`; `first` is the first slot that is no filler. `segments`: the files that are loaded.
           `reason`: of the cut. `rows`: the records that the queue lacks (commit-log offset, length, number), with
           their `outcomes`. `kept_from`: from here to `end` old slots are valid again; -1 for none. `holes`: rows
           [from, to) of slots without a record that the start adds to the queue. `added`: the slots that the dispatch
           adds. `passed_until`: the place up to which the recovery gives no slot to the records behind the end of this
           log, if more are written before the start. `makes_empty_file`: the recovery makes a file that gets no slot.
    """

    facts: QueueFacts
    segments: Sequence[Segment]
    cut_end: int
    maximum: int
    reason: str = ""
    end: int = 0
    first: int = 0
    kept_from: int = -1
    rows: Int64s = field(default_factory=lambda: np.empty((0, 3), np.int64))
    outcomes: npt.NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))
    holes: list[tuple[int, int]] = field(default_factory=list)
    added: list[AddedSlot] = field(default_factory=list)
    passed_until: int = -1
    makes_empty_file: bool = False

    @property
    def last_file(self) -> Segment | None:
        """The last file that the start keeps: recovery deletes those that begin after the queue's end."""
        size = self.facts.files.layout.size_bytes
        kept = [one for one in self.segments if one.base_offset <= max(self.cut_end, self.end) * size]
        return kept[-1] if kept else None

    @property
    def empty_last_file(self) -> Segment | None:
        """The last file that the start keeps, if it has no slot."""
        last = self.last_file
        if last is None or (not last.base_offset and self.facts.used_end):
            return None
        return last if last.base_offset == max(self.cut_end, self.end) * self.facts.files.layout.size_bytes else None

    @property
    def left_end(self) -> int:
        """Where the slots from before the start end now."""
        return self.end if self.kept_from >= 0 else self.cut_end

    @property
    def dispatched(self) -> Int64s:
        """The records that get their own slot."""
        return self._of(_DISPATCHED)

    @property
    def shifted(self) -> Int64s:
        """The records that get another slot."""
        return self._of(_SHIFTED)

    @property
    def skipped(self) -> Int64s:
        """The records that get no slot."""
        return self._of(_SKIPPED)

    def _of(self, outcome: int) -> Int64s:
        found: Int64s = self.rows[self.outcomes == outcome]
        return found


def recovered(facts: QueueFacts, rules: RecoveryRules, first_left_out: DirectoryEntry | None) -> QueueFate:
    """Return a queue as it is before the log is read: up to the first invalid entry.

    `first_left_out`: the first entry of its directory that the start does not load, nor any after it.
    Raises: FileChanged, UnreadableFile.
    Source: store/ConsumeQueue.java recover.
    """
    segments = loaded(facts.files.segments, first_left_out)
    size = facts.files.layout.size_bytes
    first = facts.files.first if segments else 0
    end = last = first
    is_cut = False
    reason = ""
    if first_left_out is not None and len(segments) < len(facts.files.segments):
        name = first_left_out.name
        reason = f"the broker does not load {name}, which has another length, nor any later file"
    for segment in segments[-QUEUE_FILES_READ:]:
        begin = segment.base_offset // size
        past = segment.end_offset // size
        bad = facts.invalid[facts.invalid[:, 1] > begin]
        stop = min(past, facts.used_end, int(bad[0, 0]) if len(bad) else past)
        end = max(begin, stop)
        last = end if end > begin else last
        if end < past:
            is_cut = end < facts.used_end
            break
    maximum = _maximum(facts, last, rules) if last > first else -1
    fate = QueueFate(facts, segments, end, maximum, f"slot {end} is invalid" if is_cut else reason)
    if facts.used_end < end:  # the last file is empty, and files before it are missing
        fate.holes.append((facts.used_end, end))
    return fate


def _maximum(facts: QueueFacts, end: int, rules: RecoveryRules) -> int:
    """Return the log offset up to which a queue that ends before slot `end` reaches, as the broker counts it."""
    slot = facts.files.read(end - 1, end)[0]
    offset = int(slot["commit_log_offset"])
    return offset + int(slot["record_length_bytes"]) if rules.queue_maximum_is_end else offset


def cut_at(
    fate: QueueFate, end_offset: int, rules: RecoveryRules, *, only_doubted: bool, gets_slots: bool = False
) -> None:
    """Cut a queue where it points after the end of the log. `only_doubted`: slots that agree with records are kept.

    `gets_slots`: the recovery of the log dispatches records to the queue before this cut.

    Raises: FileChanged, UnreadableFile.
    Source: store/ConsumeQueue.java truncateDirtyLogicFiles.
    """
    facts = fate.facts
    if not fate.segments:
        fate.maximum = end_offset
        return
    if (empty := fate.empty_last_file) is not None and end_offset > 0 and not gets_slots:
        add_zero_slot(fate, empty.base_offset // facts.files.layout.size_bytes)
        return
    if only_doubted and not len(facts.doubted):
        return
    size = facts.files.layout.size_bytes
    for segment in reversed(fate.segments):
        begin, past = segment.base_offset // size, min(segment.end_offset // size, facts.used_end)
        if begin >= max(fate.cut_end, facts.files.first + 1) and begin > facts.files.first:
            continue  # recovery has deleted it
        slots = facts.files.read(begin, max(begin + 1, past))
        offsets = slots["commit_log_offset"].astype(np.int64)
        if offsets[0] >= end_offset:
            fate.cut_end, fate.maximum = begin, end_offset
            fate.reason = f"the queue points after {end_offset}, the end of the log"
            continue
        stops = (offsets >= end_offset) | (offsets < 0) | (slots["record_length_bytes"] <= 0)
        stops[0] = False
        kept = int(stops.argmax()) if stops.any() else len(slots)
        if begin + kept < fate.cut_end:
            fate.reason = f"slot {begin + kept} points after {end_offset}, the end of the log"
        fate.cut_end = min(fate.cut_end, begin + kept)
        fate.maximum = _maximum(facts, fate.cut_end, rules) if fate.cut_end > begin else end_offset
        return


def add_zero_slot(fate: QueueFate, number: int) -> None:
    """Count the first slot of an empty last file: a broker keeps the first slot of the file whatever it contains.

    Source: store/ConsumeQueue.java truncateDirtyLogicFiles; #9728; seen on 4.9.7 to 5.5.0.
    """
    fate.holes.append((number, number + 1))
    fate.cut_end, fate.maximum = number + 1, 0


def dispatch(
    fate: QueueFate, rules: RecoveryRules, log: SegmentedLog, is_dispatched: Callable[[Int64s, Int64s], Bools],
    end_offset: int,
) -> None:
    """Add the missing slots to a queue, by the broker's rules. `is_dispatched`: which records a start dispatches, by
    their places and the offsets in their headers.

    A slot gets the offset in the header of its record. If that is damaged, the slot leads elsewhere, and a large one
    keeps the records after it from a slot. A record with number 0 is dispatched again though it has its slot.

    Raises: FileChanged, UnreadableFile.
    Source: store/ConsumeQueue.java putMessagePositionInfo; docs/formats/consume_queues.md#dispatch.
    """
    current, maximum = fate.cut_end, fate.maximum
    has_files = bool(fate.segments)
    fate.first = fate.facts.files.first if has_files else 0
    rows = _lacking(fate, end_offset)
    fate.rows = rows[np.argsort(rows[:, 0], kind="stable")]
    fate.outcomes = np.full(len(rows), _SKIPPED, np.uint8)
    due = np.concatenate([fate.rows, _first_again(fate, log, end_offset)])
    own = own_offsets(log, due[:, 0])
    due = np.column_stack([due, own, np.arange(len(due))])[is_dispatched(due[:, 0], own)]
    for offset, length, number, own_offset, row in due[np.argsort(due[:, 0], kind="stable")].tolist():
        reached = own_offset + length if rules.queue_maximum_is_end else own_offset
        if reached <= maximum or (number and current > number):
            continue
        if not has_files:
            fate.first, current, has_files = number, number, True
        if row < len(rows) and own_offset == offset:
            fate.outcomes[row] = _DISPATCHED if current == number else _SHIFTED
        fate.added.append(AddedSlot(own_offset, length, row if row < len(rows) else -1))
        current += 1
        maximum = reached
    fate.end, fate.maximum = current, maximum


def is_overtaken(files: SlotFiles, end: int) -> bool:
    """Whether the last file of a queue is full, and a slot before the last one leads further into the log.

    A power loss can leave this last slot. For a record that leads further than the queue, a recovery asks for the
    file of the next slot, and then finds that the record has its slot.
    Raises: FileChanged, UnreadableFile.
    Source: store/ConsumeQueue.java putMessagePositionInfo, MappedFileQueue.java getLastMappedFile.
    """
    size = files.layout.size_bytes
    if not files.segments or not end or files.segments[-1].end_offset != end * size:
        return False
    slots = files.read(max(files.first, end - _OVERTAKEN_SLOTS), end)
    ends = slots["commit_log_offset"].astype(np.int64) + slots["record_length_bytes"]
    are_slots = ~are_filler(slots) & (slots["record_length_bytes"] > 0)
    return bool((are_slots & (ends > ends[-1])).any())


def cut_added(fate: QueueFate, end_offset: int, rules: RecoveryRules) -> None:
    """Cut the slots that the recovery of the log has added, from the first that leads behind the end of the log on.

    Only the slot of a record with a damaged own offset does. Raises: FileChanged, UnreadableFile.
    Source: store/ConsumeQueue.java truncateDirtyLogicFiles.
    """
    beyond = (number for number, slot in enumerate(fate.added) if slot.commit_log_offset >= end_offset)
    kept = next(beyond, None)
    if kept is None:
        return
    fate.end += kept - len(fate.added)
    rows = [slot.row for slot in fate.added[kept:] if slot.row >= 0]
    fate.outcomes[rows] = _SKIPPED
    fate.passed_until = fate.maximum
    del fate.added[kept:]
    if fate.added:
        offset, length, _ = fate.added[-1]
        fate.maximum = offset + length if rules.queue_maximum_is_end else offset
    else:
        fate.maximum = _maximum(fate.facts, fate.end, rules) if fate.end > fate.first else end_offset


def _first_again(fate: QueueFate, log: SegmentedLog, end_offset: int) -> Int64s:
    """The record with number 0 that has its slot, if the offset in its header is damaged or the queue ends with a
    filler, and that which has a filler instead: offset, length, number.

    A broker compares the number of any other record with the end of the queue. With the right offset this one ends
    before the place that the queue reaches, and is passed; a filler at the end of a queue reaches none before 4.5.0.
    """
    files, records = fate.facts.files, fate.facts.records
    if not fate.segments or fate.cut_end <= 0 or files.first:
        return np.empty((0, 3), np.int64)
    slots = files.read(0, 1)
    if len(slots) and are_filler(slots)[0]:
        rows = (records.numbers == 0) & (records.offsets < end_offset)
        return np.stack([records.offsets[rows], records.lengths[rows], records.numbers[rows]], axis=1)
    last = files.read(fate.cut_end - 1, fate.cut_end)
    if not (len(last) and are_filler(last)[0]) and not has_misplaced_first(files, log, end_offset):
        return np.empty((0, 3), np.int64)
    place = int(slots[0]["commit_log_offset"]) if len(slots) else end_offset
    if place >= end_offset or slots["record_length_bytes"][0] <= 0:
        return np.empty((0, 3), np.int64)
    return np.array([[place, int(slots[0]["record_length_bytes"]), 0]], np.int64)


def has_misplaced_first(files: SlotFiles, log: SegmentedLog, end_offset: int) -> bool:
    """Whether the slot 0 of a queue leads to a record with a damaged own offset before an end of the log.

    Raises: FileChanged, UnreadableFile.
    """
    if not len(files.segments) or files.first:
        return False
    slots = files.read(0, 1)
    if not len(slots) or slots["record_length_bytes"][0] <= 0:
        return False
    place = slots["commit_log_offset"].astype(np.int64)
    is_other = 0 <= place[0] < end_offset and place[0] != own_offsets(log, place)[0]
    return bool(is_other) and is_misplaced_at(log, int(place[0]))


def own_offsets(log: SegmentedLog, places: Int64s) -> Int64s:
    """Return the commit-log offset in the header of the record at each place, ascending; the place if it is not read.

    Raises: FileChanged, UnreadableFile.
    """
    found = places.copy()
    order = np.argsort(places, kind="stable")
    span = span_of("commit_log_offset")
    for segment, part in log.segments_of(places[order]):
        rows = order[part]
        rows = rows[places[rows] + span.stop <= segment.end_offset]
        if len(rows):
            data = log.read_runs(places[rows] + span.start, places[rows] + span.stop)
            found[rows] = np.frombuffer(data, ">i8")
    return found


def read_again(fate: QueueFate, end_offset: int, rules: RecoveryRules, *, only_doubted: bool) -> None:
    """Cut a queue as `cut_at` does, but after the dispatch: its last file is read from its beginning, so old slots
    after the new ones are valid again, up to the first invalid one.

    Raises: FileChanged, UnreadableFile.
    Source: store/queue/ConsumeQueueStore.java truncateDirty (5.3.4 and later), ConsumeQueue.java
            truncateDirtyLogicFiles; docs/starts.md.
    """
    facts, dispatched_end = fate.facts, fate.end
    if dispatched_end == fate.cut_end:
        cut_at(fate, end_offset, rules, only_doubted=only_doubted)
        fate.end = fate.cut_end
        if fate.end < dispatched_end:  # nothing dispatches the records of these slots again
            rows = _lacking(fate, end_offset)
            fate.rows = rows[np.argsort(rows[:, 0], kind="stable")]
            fate.outcomes = np.full(len(fate.rows), _SKIPPED, np.uint8)
        return
    size = facts.files.layout.size_bytes
    place = fate.cut_end * size
    segment = next((one for one in fate.segments if one.base_offset <= place < one.end_offset), None)
    if segment is None or not segment.base_offset <= dispatched_end * size < segment.end_offset:
        return  # the last file is new: only zeros follow the new slots
    slots = facts.files.read(dispatched_end, max(dispatched_end, min(segment.end_offset // size, facts.used_end)))
    offsets = slots["commit_log_offset"].astype(np.int64)
    stops = (offsets >= end_offset) | (offsets < 0) | (slots["record_length_bytes"] <= 0)
    kept = int(stops.argmax()) if stops.any() else len(slots)
    if not kept:
        return
    fate.kept_from, fate.end = dispatched_end, dispatched_end + kept
    fate.maximum = _maximum(facts, fate.end, rules)
    agree = inside(facts.records.runs, fate.rows[:, 2])
    has_old_slot = (fate.rows[:, 2] >= fate.kept_from) & (fate.rows[:, 2] < fate.end) & agree
    fate.outcomes[has_old_slot & (fate.outcomes == _SKIPPED)] = _KEPT


def _lacking(fate: QueueFate, end_offset: int) -> Int64s:
    """Records before the end of the log that are not in the queue after the cut: offset, length, number."""
    facts = fate.facts
    records = facts.records
    rows = (records.numbers >= fate.cut_end) & (records.offsets < end_offset)
    rows[rows] = ~_are_led_to(fate, records.offsets[rows], records.lengths[rows])
    lacking = np.stack([records.offsets[rows], records.lengths[rows], records.numbers[rows]], axis=1)
    found = [lacking]
    for first, slots in facts.files.parts(fate.cut_end, facts.used_end):
        numbers = first + np.arange(len(slots))
        offsets, lengths = (slots[name].astype(np.int64) for name in ("commit_log_offset", "record_length_bytes"))
        good = inside(records.runs, numbers) & (offsets < end_offset)
        found.append(np.stack([offsets[good], lengths[good], numbers[good]], axis=1))
    return np.concatenate(found)


def _are_led_to(fate: QueueFate, offsets: Int64s, lengths: Int64s) -> Bools:
    """Which records a slot that the cut keeps leads to, with whatever number: a broker reads them there."""
    facts = fate.facts
    found = np.zeros(len(offsets), np.bool_)
    if not len(offsets):
        return found
    for low, high in facts.doubted.tolist():
        for _, slots in facts.files.parts(low, min(high, fate.cut_end), BLOCK_UNITS):
            places, sizes = (slots[name].astype(np.int64) for name in ("commit_log_offset", "record_length_bytes"))
            order = np.argsort(places, kind="stable")
            at = order[np.minimum(np.searchsorted(places[order], offsets), len(places) - 1)]
            found |= (places[at] == offsets) & (sizes[at] == lengths)
    return found
