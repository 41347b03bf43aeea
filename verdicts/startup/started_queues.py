"""The half and op queue after the next start of a stopped broker: what the check will read.

The rules are those of `recovery.py`. They are applied to little more than what the queues lack, so that a lookup can
afford it: the log itself counts as sound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from rmqtx.readers.log.commit_log import scan_segments, written_end
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.ranges import merged, runs_of
from rmqtx.readers.model.releases import Version
from rmqtx.readers.queues.consume_queue import are_left_out
from rmqtx.readers.queues.slot_files import BATCH, SIMPLE, QueueName, QueuePart, SlotFiles, topic_bytes, topic_text
from rmqtx.readers.queues.unit_files import used_end
from rmqtx.readers.store.remembered import remembered
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, Store
from rmqtx.verdicts.startup.dledger_log import committed_offset, queues_cut_at
from rmqtx.verdicts.startup.findings import cut_finding, dispatched_findings
from rmqtx.verdicts.startup.log_walk import BLANK_OK, LogWalk, check_record
from rmqtx.verdicts.startup.queues import (
    QUEUE_FILES_READ,
    QueueFacts,
    QueueFate,
    has_misplaced_first,
    is_overtaken,
    own_offsets,
    recovered,
)
from rmqtx.verdicts.startup.recovery import OtherQueues, loaded_log, recover_queues, start_file
from rmqtx.verdicts.startup.rules import (
    DEFAULT_QUEUE_FILE_BYTES,
    RecoveryRules,
    not_predictable,
    queue_file_bytes,
    rules_of,
)

_NONE = np.empty(0, np.int64)
_NO_RANGES = np.empty((0, 2), np.int64)
_TOPICS = (HALF_TOPIC, OP_TOPIC)
_SLOTS_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class StartedQueue:
    """The slots of a queue after a start.

    Shape: the stored slots before `kept_end`; then `added`, the commit-log offset and length of each record that gets a
           slot; then up to `end` the stored slots again, which a start may leave behind new ones. `begin`: the first
           slot of a queue that the start makes, as its broker counts it; None for another queue. From there to
           `kept_end` it has fillers, and its first file ends before the slot `file_end`.
           `is_complete`: no record lacks a slot.
           `lost`: the stored slots, first and end, that the start cuts off and that no record gets again.
           `maximum`: the place of the log up to which new records get no slot, if that is after `log_end`, the end of
           the log; `compares_ends`: whether a record counts by its end; `begins_behind`: whether dispatch begins there.
           `passed_until`: the same for records that are written before the start. `cuts`: that the start cuts off
           stored slots, and that records get no slot, or that of another one.
    """

    kept_end: int
    added: tuple[tuple[int, int], ...] = ()
    end: int = 0
    begin: int | None = None
    file_end: int = 0
    is_complete: bool = False
    lost: tuple[int, int] = (0, 0)
    maximum: int = -1
    log_end: int = 0
    compares_ends: bool = False
    begins_behind: bool = False
    passed_until: int = -1
    cuts: tuple[Finding, ...] = ()

    @property
    def added_numbers(self) -> Int64s:
        """The numbers of the slots that the start adds; a shifted record has another one."""
        return np.arange(self.kept_end, self.kept_end + len(self.added))

    @property
    def passes_written(self) -> bool:
        """Whether records that are written before the start get no slot."""
        return max(self.maximum, self.passed_until) >= self.log_end + self.compares_ends

    @property
    def hinders_new_slots(self) -> bool:
        """Whether records after the end of the log get no slot."""
        return self.maximum >= self.log_end + self.compares_ends  # also a record that begins at the maximum gets none


def started_queues(
    store: Store, version: Version, conf: Mapping[str, str], queue_id: int, log_cut: int | None = None
) -> dict[str, StartedQueue] | None:
    """Return the half and op queue after the next start of a stopped broker; None if the start is not predicted.

    `log_cut`: where the start cuts off the log, if it does.

    Raises: UnreadableFile, FileChanged.
    """
    rules = rules_of(version, conf, is_dledger=store.is_dledger)
    return _started_queues(store, rules, tuple(sorted(conf.items())), queue_id, log_cut)


@remembered
def _started_queues(
    store: Store, rules: RecoveryRules, settings: tuple[tuple[str, str], ...], queue_id: int, log_cut: int | None
) -> dict[str, StartedQueue] | None:
    conf = dict(settings)
    segments, _ = loaded_log(store, conf, rules)
    if store.in_use or not segments or not_predictable(store, conf) is not None:
        return None
    names: dict[str, QueueName] = {topic: (SIMPLE, topic_bytes(topic), queue_id) for topic in _TOPICS}
    files = {topic: SlotFiles(store, name) for topic, name in names.items()}
    try:
        ends = {topic: used_end(store, one.segments, one.layout) for topic, one in files.items()}
        last = {topic: _place(one, ends[topic]) for topic, one in files.items()}
        if log_cut is not None and not (store.aborted or rules.cuts_queues_after_clean_stop):
            return {
                topic: StartedQueue(
                    ends[topic], end=ends[topic], maximum=_counted(last[topic], rules), log_end=log_cut,
                    compares_ends=rules.queue_maximum_is_end,
                )
                for topic in _TOPICS
            }
        if log_cut is not None:
            ends = {topic: _kept_end(one, ends[topic], log_cut) for topic, one in files.items()}
            return {topic: StartedQueue(ends[topic], end=ends[topic]) for topic in _TOPICS}
        furthest = queue_reach(store)
        log_end, is_torn = _log_end(store, rules, furthest)
        reach = queue_reach(store, names.values()).as_counted(rules)  # the fates have that of these two
        scanned_from = min((place for place, _ in last.values()), default=-1)
        if not store.aborted:
            scanned_from = scanned_from if scanned_from < 0 else furthest.end
        cut = queues_cut_at(store, conf, rules) if store.is_dledger else None
        if cut is not None:
            return _cut_by_dledger(store, queue_id, files, ends, cut)
        # Nearly always nothing is wrong; only then the end of the log is searched for.
        near_end = min(log_end, max(furthest.end, 0))
        wrong = {topic: _wrong_slots(store, names[topic], ends[topic], near_end) for topic in _TOPICS}
        if any(one.has_any for one in wrong.values()):
            log_end = scanned_end(store)
            wrong = {topic: _wrong_slots(store, names[topic], ends[topic], log_end) for topic in _TOPICS}
        for topic in [topic for topic in _TOPICS if wrong[topic].has_any]:
            last[topic] = _place(files[topic], wrong[topic].begin)
            scanned_from = min(scanned_from, last[topic][0])
        records = _records(store, queue_id, last, scanned_from, log_end)
        is_sound = not any(one.has_any for one in wrong.values())
        ours = [reach for name, reach in _reaches(store).items() if name in names.values()]
        is_unusual = (
            any(reach.has_empty_last_file or (store.aborted and reach.overtaken_end) for reach in ours)
            or _are_misplaced(store, files, records, log_end)
        )
        has_records = any(len(rows) for rows in records.values())
        if is_sound and not is_torn and not is_unusual and not has_records:
            whole = {topic: StartedQueue(ends[topic], end=ends[topic], is_complete=True) for topic in _TOPICS}
            return {
                topic: _reaching(store, queue, _counted(last[topic], rules), log_end, rules, [])
                for topic, queue in whole.items()
            }
        if is_unusual:  # whether the queues reach the very end of the log makes a difference
            log_end = scanned_end(store)
        fates = [
            recovered(_facts(files[topic], topic, queue_id, ends[topic], records[topic], wrong[topic]), rules, None)
            for topic in _TOPICS
        ]
        maximum = max(reach, *(fate.maximum for fate in fates))
        first = start_file(store, segments, conf, maximum, rules)
        walk = LogWalk.to_the_end(segments, first, log_end)
        recover_queues(
            store, walk, fates, rules,
            OtherQueues(min(reach, log_end), furthest.as_counted(rules)), only_doubted=not is_torn,
        )
        reached = [fate.maximum for fate in fates]
        return {
            topic: _reaching(store, _started(store, fate, rules, conf), fate.maximum, log_end, rules, reached)
            for topic, fate in zip(_TOPICS, fates, strict=True)
        }
    finally:
        for one in files.values():
            one.close()


def _are_misplaced(
    store: Store, files: Mapping[str, SlotFiles], records: Mapping[str, Int64s], log_end: int
) -> bool:
    """Whether a start may dispatch records with damaged own offsets: those behind the queues, or the first of one."""
    with store.log() as log:
        behind = [rows[:, 0] for rows in records.values()]
        return any((own_offsets(log, places) != places).any() for places in behind) or any(
            has_misplaced_first(one, log, log_end) for one in files.values()
        )


def _counted(place: tuple[int, int], rules: RecoveryRules) -> int:
    """Return how far a slot leads, as a release counts it."""
    return sum(place) if rules.queue_maximum_is_end else place[0]


def _reaching(
    store: Store, queue: StartedQueue, maximum: int, log_end: int, rules: RecoveryRules, reaches: Sequence[int]
) -> StartedQueue:
    """Return a queue with the place up to which new records get no slot.

    `reaches`: the places that the half and op queue reach after a start that changes them; else empty. A start cuts
    other queues too where they lead behind the end of the log.
    """
    begins_behind = rules.dispatches == "behind_queues"
    if begins_behind:  # of any queue, for all queues
        if not reaches and not store.aborted:
            maximum = max(maximum, queue_reach(store).as_counted(rules))
        else:
            ours = frozenset(topic_bytes(topic) for topic in _TOPICS) if reaches else frozenset()
            others = [
                reach.as_counted(rules) for name, reach in _reaches(store).items()
                if name[1] not in ours and reach.begin < log_end
            ]
            maximum = max([maximum, *reaches, *others])
    if maximum >= log_end:
        log_end = scanned_end(store)
    return replace(
        queue, maximum=maximum, log_end=log_end, compares_ends=rules.queue_maximum_is_end, begins_behind=begins_behind
    )


def _cut_by_dledger(
    store: Store, queue_id: int, files: Mapping[str, SlotFiles], ends: Mapping[str, int], cut: int
) -> dict[str, StartedQueue]:
    """Return the queues after a start that cuts them at a place, and dispatches only what was not committed."""
    again = committed_offset(store)
    records: Mapping[str, Int64s] = {topic: np.empty((0, 3), np.int64) for topic in _TOPICS}
    if again is not None:
        before = dict.fromkeys(_TOPICS, (again - 1, 0))
        records = _records(store, queue_id, before, again, written_end(store).offset)
    found = {}
    for topic, slots in files.items():
        kept_end = _kept_end(slots, ends[topic], cut)
        added = tuple((offset, length) for offset, length, _ in records[topic].tolist())
        begin = int(records[topic][0, 2]) if added and kept_end == slots.first else None
        lost = (kept_end if begin is None else slots.first, ends[topic] if begin is None else begin)
        kept_end = kept_end if begin is None else begin
        found[topic] = StartedQueue(kept_end, added, kept_end + len(added), begin, lost=lost)
    return found


def _kept_end(files: SlotFiles, end: int, cut: int) -> int:
    """Return the number of the first slot that leads to a place of the log at or after a cut."""
    for begin in range(files.first, end, _SLOTS_AT_ONCE):
        slots = files.read(begin, min(begin + _SLOTS_AT_ONCE, end))
        are_later = (slots["commit_log_offset"].astype(np.int64) >= cut) & (slots["record_length_bytes"] > 0)
        if are_later.any():
            return begin + int(are_later.argmax())
    return end


def _log_end(store: Store, rules: RecoveryRules, reach: QueueReach) -> tuple[int, bool]:
    """Return where the data of a log ends, and whether that is before the end of a record that a queue leads to.

    A power loss can take the end of the log and leave the queues: the recovery ends the log after its last record.
    """
    end = written_end(store).offset
    if reach.begin < store.log_begin_offset:
        return end, False
    for segment in store.commit_log:
        if segment.base_offset <= reach.begin < segment.end_offset:
            with segment.open() as file:
                found = check_record(file, reach.begin - segment.base_offset, rules)
                if found.kind == BLANK_OK or found.is_passed(rules, is_abnormal=store.aborted):
                    # A slot that a power loss left may name more bytes than the record that was written there later.
                    leads_over = reach.end > reach.begin + found.length_bytes
                    return scanned_end(store) if leads_over else end, False
    return scanned_end(store), True


def scanned_end(store: Store, known_end: int = 0) -> int:
    """Return the end of the last record of a log. `known_end`: the end of one of its records."""
    last = written_end(store).last_base
    end = begin = known_end if known_end > last else last
    for block in scan_segments(store, [], [], from_offset=begin, with_fillers=True):
        end = block.end_offset
    return end


def ends_in_empty_file(store: Store, rules: RecoveryRules) -> bool:
    """Whether a queue's last file has no slot after the recovery of the log, and no queue reaches the end of the log.

    Raises: UnreadableFile, FileChanged.
    Source: store/ConsumeQueue.java correctMinOffset; docs/formats/consume_queues.md#empty-file.
    """
    found = queue_reach(store)
    reaches = {
        name: reach for name, reach in _reaches(store).items() if reach.begin >= 0 or reach.empty_first > 0
    }
    overtaken = {name: reach for name, reach in reaches.items() if reach.overtaken_end and store.aborted}
    if overtaken and found.end < scanned_end(store) and len(_with_further(store, overtaken)) < len(overtaken):
        return True
    empty = {name: reach.begin for name, reach in reaches.items() if reach.has_empty_last_file}
    if not empty or found.end >= _record_end(store):
        return False
    if store.aborted:
        dispatched_from = min(empty.values()) + 1
    elif rules.dispatches == "past_queues":
        dispatched_from = found.as_counted(rules) + 1
    else:
        return True
    return len(_with_records(store, empty, dispatched_from)) < len(empty)


def _with_further(store: Store, overtaken: Mapping[QueueName, QueueReach]) -> set[QueueName]:
    """Return the queues of which the log has a record with a number after the last slot: the new file gets its slot."""
    found: set[QueueName] = set()
    first = max(store.log_begin_offset, min(reach.begin for reach in overtaken.values()))
    for block in scan_segments(store, [], [], from_offset=first, with_fillers=True):
        for name, reach in overtaken.items():
            mine = block.topic_is(topic_text(name[1])) & (block.header("queue_id") == name[2])
            if (mine & (block.header("queue_offset") >= reach.overtaken_end)).any():
                found.add(name)
    return found


def _with_records(store: Store, begins: Mapping[QueueName, int], from_offset: int) -> set[QueueName]:
    """Return the queues of which the log has a record from a place on. `begins`: the record of the last slot of each.

    A recovery that dispatches these records writes their slots before it looks for an empty file (5.3.3).
    """
    found: set[QueueName] = set()
    first = max(store.log_begin_offset, min(begins.values()))
    for block in scan_segments(store, [], [], from_offset=first, with_fillers=True):
        for name, begin in begins.items():
            _, topic, number = name
            is_behind = block.commit_log_offsets >= max(from_offset, begin + 1)
            if (is_behind & block.topic_is(topic_text(topic)) & (block.header("queue_id") == number)).any():
                found.add(name)
    return found


def _record_end(store: Store) -> int:
    """Return the end of the last record of a log, as far as records follow those in its queues."""
    end = queue_reach(store).end
    for block in scan_segments(store, [], [], from_offset=max(0, end), with_fillers=True):
        end = max(end, block.end_offset)
    return end


def _place(files: SlotFiles, end: int) -> tuple[int, int]:
    """Return offset and length in the last slot of a queue; -1 and 0 for an empty one."""
    if not end:
        return -1, 0
    slot = files.read(end - 1, end)[0]
    return int(slot["commit_log_offset"]), int(slot["record_length_bytes"])


class QueueReach(NamedTuple):
    """How far the queues of a store lead.

    Shape: `begin`, `end`: the furthest begin and end of a record in the last slot of any queue, -1 without a slot.
           `has_empty_last_file`: a queue has no slot in the last file that a start keeps; `empty_first`: the number of
           its first slot. `overtaken_end`:
           the number of slots of a queue whose last file is full and in which a slot before the last one leads further;
           a recovery that dispatches its record again makes the next file first, and then adds no slot. Else 0.
    Units: bytes of the log.
    """

    begin: int = -1
    end: int = -1
    has_empty_last_file: bool = False
    overtaken_end: int = 0
    empty_first: int = 0

    def as_counted(self, rules: RecoveryRules) -> int:
        """Return the furthest place that any queue refers to, as a release counts it."""
        return self.end if rules.queue_maximum_is_end else self.begin


def queue_reach(store: Store, without: Iterable[QueueName] = ()) -> QueueReach:
    """Return how far the queues of a store lead; for a stopped broker each queue is read once.

    `without`: queues that do not count, because the start may cut them.
    Raises: UnreadableFile, FileChanged.
    """
    left_out = frozenset(without)
    counted = [reach for name, reach in _reaches(store).items() if name not in left_out]
    return QueueReach(
        max((one.begin for one in counted), default=-1), max((one.end for one in counted), default=-1),
        any(one.has_empty_last_file for one in counted),
    )


@remembered
def _reaches(store: Store) -> dict[QueueName, QueueReach]:
    """Return how far each queue leads. A start is played for several releases."""
    reaches = {}
    for kind in (SIMPLE, BATCH):
        for topic, number in store.queues(kind):
            name: QueueName = (kind, topic_bytes(topic), number)
            files = SlotFiles(store, name)
            try:
                used = used_end(store, files.segments, files.layout)
                offset, length = _place(files, used)
                empty = _empty_last_file(files, used) if kind == SIMPLE else None
                overtaken_end = used if kind == SIMPLE and is_overtaken(files, used) else 0
            finally:
                files.close()
            reaches[name] = QueueReach(offset, offset + length, empty is not None, overtaken_end, empty or 0)
    return reaches


def _empty_last_file(files: SlotFiles, used: int) -> int | None:
    """Return the first slot of the empty file with which a queue whose slots end before `used` ends after a start.

    A start deletes later files. None if the file has a slot.

    Source: store/ConsumeQueue.java recover, MappedFileQueue.java truncateDirtyFiles.
    """
    size = files.layout.size_bytes
    for segment in files.segments[-QUEUE_FILES_READ:]:
        if used * size < segment.end_offset:
            return segment.base_offset // size if used * size <= segment.base_offset else None
    return None


def _records(
    store: Store, queue_id: int, last: Mapping[str, tuple[int, int]], from_offset: int, end_offset: int
) -> dict[str, Int64s]:
    """Return the half and op messages behind the last slot of their queue: offset, length, number."""
    found: dict[str, list[Int64s]] = {topic: [np.empty((0, 3), np.int64)] for topic in _TOPICS}
    if from_offset < end_offset:
        for block in scan_segments(
            store, [], [], from_offset=max(0, from_offset), to_offset=end_offset, with_fillers=True
        ):
            mine = block.header("queue_id") == queue_id
            for topic in _TOPICS:
                rows = block.take(mine & block.topic_is(topic) & (block.commit_log_offsets > last[topic][0]))
                columns = (rows.commit_log_offsets, rows.lengths, rows.header("queue_offset"))
                found[topic].append(np.stack([one.astype(np.int64) for one in columns], axis=1))
    return {topic: np.concatenate(rows) for topic, rows in found.items()}


class _WrongSlots(NamedTuple):
    """The slots of a queue at which a start may cut it: impossible ones, and those that lead behind the end of the log.

    Shape: rows [from, to), ascending, in the files that a start reads.
    """

    invalid: Int64s
    beyond: Int64s

    @property
    def has_any(self) -> bool:
        return bool(len(self.invalid) or len(self.beyond))

    @property
    def begin(self) -> int:
        """The first of them."""
        return int(min(part[0, 0] for part in self if len(part)))


@remembered
def _wrong_slots(store: Store, name: QueueName, end: int, log_end: int) -> _WrongSlots:
    """Return the wrong slots of the last files of a queue. Some releases read the same ones, which are whole files.

    Raises: UnreadableFile, FileChanged.
    Source: store/ConsumeQueue.java recover, truncateDirtyLogicFiles.
    """
    invalid, beyond = [_NONE], [_NONE]
    with closing(SlotFiles(store, name)) as files:
        place = int(files.bases[-QUEUE_FILES_READ:][0]) if len(files.bases) else end
        holes: list[tuple[int, int]] = []  # a file with a wrong name leaves billions of slots before it
        for first, slots in files.parts(place, end, _SLOTS_AT_ONCE):
            holes += [(place, first)] if place < first else []
            place = first + len(slots)
            offsets = slots["commit_log_offset"].astype(np.int64)
            are_possible = (offsets >= 0) & (slots["record_length_bytes"] > 0)
            invalid.append(first + np.flatnonzero(~are_possible))
            are_beyond = are_possible & (offsets >= log_end) & ~are_left_out(slots)
            beyond.append(first + np.flatnonzero(are_beyond))
    holes += [(place, end)] if place < end else []
    wrong = merged([runs_of(np.concatenate(invalid)), np.array(holes, np.int64).reshape(-1, 2)])
    return _WrongSlots(wrong, runs_of(np.concatenate(beyond)))


def _facts(
    files: SlotFiles, topic: str, queue_id: int, end: int, records: Int64s, wrong: _WrongSlots
) -> QueueFacts:
    """Return a queue for a start. `records`: those behind its last slot, or behind the first wrong one."""
    name: QueueName = (SIMPLE, topic_bytes(topic), queue_id)
    runs = np.array([[files.first, wrong.begin if wrong.has_any else end]], np.int64) if end else _NO_RANGES
    part = QueuePart(runs, records[:, 2], records[:, 0], records[:, 1], _NONE, _NONE, _NONE, _NONE)
    return QueueFacts(name, files, end, part, wrong.invalid, merged([wrong.invalid, wrong.beyond]))


def _started(store: Store, fate: QueueFate, rules: RecoveryRules, conf: Mapping[str, str]) -> StartedQueue:
    added = tuple((slot.commit_log_offset, slot.record_length_bytes) for slot in fate.added)
    kept_end, begin, file_end = fate.cut_end, None, 0
    if added and not fate.segments:
        file_bytes = queue_file_bytes(store, conf) or DEFAULT_QUEUE_FILE_BYTES
        slots_per_file = file_bytes // fate.facts.files.layout.size_bytes
        kept_end = begin = fate.first
        file_begin = begin - begin % slots_per_file
        file_end = file_begin + slots_per_file
        if rules.begins_with_fillers and not store.log_begin_offset:
            begin = file_begin
    cut = cut_finding(store, fate)
    lacking = [one for one in dispatched_findings(store, [fate]) if one.is_error]
    return StartedQueue(
        kept_end, added, fate.end, begin, file_end, passed_until=fate.passed_until,
        cuts=(*([] if cut is None else [cut]), *lacking),
    )
