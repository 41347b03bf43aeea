"""What a start of a broker does with a store; this uses the results of a verification and reads little more.

A start loads the files, recovers each queue, reads the log from one of the last files on to its end, cuts files and
queues there, and dispatches what the queues lack. The order is that of the broker: each step depends on the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.queues.slot_files import topic_text
from rmqtx.readers.storage.segments import Segment, SegmentedLog
from rmqtx.readers.store.checkpoint import checkpoint_values
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.startup.log_walk import LogWalk, check_record, first_record, walk_log
from rmqtx.verdicts.startup.queues import (
    QueueFacts,
    QueueFate,
    add_zero_slot,
    cut_added,
    cut_at,
    dispatch,
    is_overtaken,
    read_again,
    recovered,
)
from rmqtx.verdicts.startup.refusals import empty_file_refusals, refusals
from rmqtx.verdicts.startup.rules import (
    RecoveryRules,
    entries,
    left_out,
    loaded,
    log_directories,
    log_file_bytes,
    queue_file_bytes,
)

#: The last files of a log that a start after a clean stop reads. Source: store/CommitLog.java recoverNormally.
FILES_BACK = 3
_CHECKPOINT_LAG_MS = 3000


@dataclass(frozen=True, slots=True)
class LogFacts:
    """The result of a verification for a log.

    Shape: `breaks`: file → rows [from, to) that are not sound records with a right CRC; ascending.
    Units: `end_offset`: commit-log offset past the last sound record, in bytes.
    """

    breaks: Mapping[str, Int64s]
    end_offset: int


@dataclass(slots=True)
class PredictedStart:
    """The effects of a start.

    Shape: `walk` is None if no log is left, `refused` is not empty if the broker exits. `waits_at`: a commit-log offset
           in no file at which the broker hangs before it opens a port; what it dispatches until then is not predicted.
           `left_out`: files of the log that it does not load, because of an entry named `left_out_for`.
    """

    rules: RecoveryRules
    refused: list[Finding]
    walk: LogWalk | None = None
    fates: Sequence[QueueFate] = ()
    waits_at: int | None = None
    left_out: Sequence[Segment] = ()
    left_out_for: str = ""


def predict_start(
    store: Store, conf: Mapping[str, str], log: LogFacts, queues: Sequence[QueueFacts], rules: RecoveryRules, *,
    with_dispatch: bool = True,
) -> PredictedStart:
    """Predict a start by the given rules. Raises: SourceError if a file that the start depends on cannot be read."""
    refused = list(refusals(store, conf, rules))
    if refused:
        return PredictedStart(rules, refused)
    fates = _recovered_queues(store, conf, queues, rules)
    maximum = _maximum(fates)
    segments, left_out_for = loaded_log(store, conf, rules)
    start = PredictedStart(rules, [], None, fates, left_out_for=left_out_for)
    if left_out_for:
        start.left_out = store.commit_log[len(segments) :]
    if not segments:
        return start
    first = start_file(store, segments, conf, maximum, rules)
    walk = start.walk = walk_log(segments, first, log.breaks, rules, is_abnormal=store.aborted)
    start.waits_at = recover_queues(
        store, walk, fates, rules, with_dispatch=with_dispatch,
        only_doubted=walk.end_offset >= log.end_offset,
    )
    if with_dispatch and start.waits_at is None:
        start.refused = list(empty_file_refusals(store, fates, rules))
    return start


def dledger_queues(
    store: Store, conf: Mapping[str, str], log: LogFacts, queues: Sequence[QueueFacts], rules: RecoveryRules
) -> list[QueueFate]:
    """Return the queues after a start on a DLedger log that does not cut them; none if the dispatch hangs.

    Raises: SourceError if a file that the start depends on cannot be read.
    """
    fates = [recovered(one, rules, None) for one in queues]
    segments = store.commit_log
    first = start_file(store, segments, conf, _maximum(fates), rules)
    walk = LogWalk.to_the_end(segments, first, log.end_offset)
    return fates if recover_queues(store, walk, fates, rules) is None else []


@dataclass(frozen=True, slots=True)
class OtherQueues:
    """How far into the log queues refer that are not recovered. Units: commit-log offsets, -1 for none.

    `reach`: the furthest place to which queues other than the recovered ones refer. `stored_reach`: the furthest to
    which any stored queue refers.
    """

    reach: int = -1
    stored_reach: int = -1


NO_OTHER_QUEUES = OtherQueues()


def recover_queues(
    store: Store, walk: LogWalk, fates: Sequence[QueueFate], rules: RecoveryRules,
    others: OtherQueues = NO_OTHER_QUEUES, *, with_dispatch: bool = True, only_doubted: bool = True,
) -> int | None:
    """Cut the queues at the end of the log, and dispatch what they lack: changes `fates`.

    `only_doubted`: the log ends behind all slots that agree with records. `others`: the queues that are not in `fates`.
    Shape: a commit-log offset in no file at which the dispatch hangs; None if it does not.
    Raises: SourceError if a file that the start depends on cannot be read.
    """
    maximum = max(others.reach, _maximum(fates))
    if rules.reads_queues_again and with_dispatch:
        _dispatch_all(store, walk, fates, rules, maximum, maximum)
        if max(others.reach, _maximum(fates)) >= walk.end_offset:
            for fate in fates:
                cut_added(fate, walk.end_offset, rules)
                read_again(fate, walk.end_offset, rules, only_doubted=only_doubted)
        return None
    is_cut = maximum >= walk.end_offset if rules.cuts_queues_after_clean_stop else store.aborted
    if is_cut:
        # Before 4.3.2 a broker dispatches before this cut after a crash: a queue without a file has one by then.
        for fate in fates if rules.cuts_queues_after_clean_stop else [one for one in fates if one.segments]:
            gets_slots = fate.empty_last_file is not None and _gets_slots(
                store, walk, fate, rules, maximum
            )
            cut_at(fate, walk.end_offset, rules, only_doubted=only_doubted, gets_slots=gets_slots)
    after = max(others.reach, _maximum(fates))
    if rules.dispatches == "behind_queues":
        waits_at = _gap_behind(walk.segments, max(after, walk.segments[0].base_offset), walk.end_offset)
        if waits_at is not None:
            return waits_at
    if with_dispatch:
        _dispatch_all(store, walk, fates, rules, maximum, after)
        is_cut |= others.stored_reach >= walk.end_offset
        for fate in fates:
            is_made = store.aborted and fate.end == fate.cut_end == fate.facts.used_end
            is_made = is_made and is_overtaken(fate.facts.files, fate.end)
            if not is_cut:
                fate.makes_empty_file = is_made
            elif is_made:
                add_zero_slot(fate, fate.end)
                fate.end = fate.cut_end
            else:  # the recovery dispatches before this cut
                cut_added(fate, walk.end_offset, rules)
    return None


def _gets_slots(
    store: Store, walk: LogWalk, fate: QueueFate, rules: RecoveryRules, maximum: int
) -> bool:
    """Whether the recovery of the log dispatches a record to a queue, before the queue is cut."""
    records = fate.facts.records
    rows = (records.numbers >= fate.cut_end) & (records.offsets < walk.end_offset)
    places = records.offsets[rows]
    return bool(_recovered(store, walk, maximum, rules)(places, places).any())


def _maximum(fates: Sequence[QueueFate]) -> int:
    """Return the furthest place in the log that a queue refers to; -1 for none."""
    return max((fate.maximum for fate in fates), default=-1)


def _dispatch_all(
    store: Store, walk: LogWalk, fates: Sequence[QueueFate], rules: RecoveryRules, maximum: int, after: int
) -> None:
    with SegmentedLog(tuple(walk.segments)) as log:
        for fate in fates:
            dispatch(
                fate, rules, log, _dispatched(store, walk, maximum, after, rules), walk.end_offset
            )


def loaded_log(store: Store, conf: Mapping[str, str], rules: RecoveryRules) -> tuple[list[Segment], str]:
    """Return the files of the log that a start loads, and the name of the first entry that it does not load.

    An empty last file is deleted from 5.1.3 on.
    """
    segments = list(store.commit_log)
    if segments and not segments[-1].size_bytes and rules.deletes_empty_last:
        segments.pop()
    if rules.refuses_other_sizes:
        return segments, ""
    found = sorted(
        (entry for directory in log_directories(store) for entry in entries(store, directory)), key=lambda one: one.name
    )
    missing = left_out(found, log_file_bytes(store, conf), rules)
    return loaded(segments, missing), "" if missing is None else missing.name


def _recovered_queues(
    store: Store, conf: Mapping[str, str], queues: Sequence[QueueFacts], rules: RecoveryRules
) -> list[QueueFate]:
    """Return the queues as they are before the log is read."""
    size = 0 if rules.refuses_other_sizes else queue_file_bytes(store, conf)
    fates = []
    for facts in queues:
        directory = store.queue_directory(topic_text(facts.name[1]), facts.name[2])
        missing = None if rules.refuses_other_sizes else left_out(entries(store, directory), size, rules)
        fates.append(recovered(facts, rules, missing))
    return fates


def start_file(
    store: Store, segments: Sequence[Segment], conf: Mapping[str, str], maximum: int, rules: RecoveryRules
) -> int:
    """Number of the file with which reading begins.

    Source: store/CommitLog.java recoverNormally, recoverAbnormally, isMappedFileMatchedRecover;
            docs/formats/recovery.md#normal, docs/formats/recovery.md#crash.
    """
    first = 0 if rules.files_back_max is None else max(0, len(segments) - rules.files_back_max)
    if not store.aborted:
        if rules.starts_three_files_back:
            return max(0, len(segments) - FILES_BACK)
        return next(
            (number for number in range(len(segments) - 1, first, -1) if segments[number].base_offset <= maximum), first
        )
    values = checkpoint_values(store)
    until_ms = recovered_until_ms(conf, values)
    until_offset = values.get("logics_offset", 0) if rules.starts_at_queues_offset else 0
    for number in range(len(segments) - 1, first - 1, -1):
        found = first_record(segments[number], rules)
        if found is None or not found[1]:
            continue
        if found[0] <= until_offset if until_offset else found[1] <= until_ms:
            return number
    return first


def recovered_until_ms(conf: Mapping[str, str], checkpoint: Mapping[str, int]) -> int:
    """Return the latest store time of the first record of a file with which a recovery after a kill may begin."""
    times = [checkpoint.get(name, 0) for name in ("physic_msg_time_ms", "logics_msg_time_ms")]
    until_ms = max(0, min(times) - _CHECKPOINT_LAG_MS)
    if conf.get("messageIndexSafe") == "true" and conf.get("messageIndexEnable", "true") == "true":
        until_ms = min(until_ms, checkpoint.get("index_msg_time_ms", 0))
    return until_ms


def _dispatched(
    store: Store, walk: LogWalk, maximum: int, after: int, rules: RecoveryRules
) -> Callable[[Int64s, Int64s], Bools]:
    """Return which records of the log a start dispatches, during recovery and after it, by their places and the offsets
    in their headers: a recovery after a clean stop compares the latter with the place that the queues reach.

    Source: store/DefaultMessageStore.java start; docs/formats/recovery.md#dispatch.
    """
    recovered_of = _recovered(store, walk, maximum, rules)
    behind = walk.end_offset
    if rules.dispatches == "behind_queues":
        behind = _place_to_follow(walk.segments, max(after, walk.segments[0].base_offset), walk.end_offset, rules)

    def dispatched(places: Int64s, own_offsets: Int64s) -> Bools:
        chosen: Bools = recovered_of(places, own_offsets) | (places >= behind)
        return chosen

    return dispatched


def _recovered(
    store: Store, walk: LogWalk, maximum: int, rules: RecoveryRules
) -> Callable[[Int64s, Int64s], Bools]:
    """Return which records the recovery of the log dispatches, as `_dispatched` does."""
    walked_from, past = walk.segments[walk.start].base_offset, -1
    if not store.aborted:
        walked_from, past = (walked_from, maximum) if rules.dispatches == "past_queues" else (walk.end_offset, -1)

    def chosen(places: Int64s, own_offsets: Int64s) -> Bools:
        found: Bools = (places >= walked_from) & ((past < 0) | (own_offsets > past))
        return found

    return chosen


def _gap_behind(segments: Sequence[Segment], from_offset: int, end_offset: int) -> int | None:
    """Return where the dispatch after the queues reaches a range without a file, at which it hangs.

    Source: store/DefaultMessageStore.java start waits until dispatchBehindBytes() is 0 (4.5.1 to 4.9.8).
    """
    place = from_offset
    for segment in segments:
        if segment.base_offset > place and place < end_offset:
            return place
        place = max(place, segment.end_offset)
    return None


def _place_to_follow(segments: Sequence[Segment], offset: int, end_offset: int, rules: RecoveryRules) -> int:
    """Return where the dispatch after the queues begins; if that is no record, it skips the rest of the file."""
    for segment in segments:
        if segment.base_offset <= offset < min(segment.end_offset, end_offset):
            with segment.open() as file:
                found = check_record(file, offset - segment.base_offset, rules)
            return segment.end_offset if found.kind == "end" else offset
    return max(offset, segments[0].base_offset)
