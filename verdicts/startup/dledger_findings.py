"""What the start of a broker does to a store with a DLedger log, as far as its own files decide it.

The other members of its group may then replace the end of its log, or add to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from rmqtx.readers.cursors.cursors import check_cursors
from rmqtx.readers.log.record_layout import HEADER_BYTES_MAX, MAGIC_V1, RECORD, number_at, signed
from rmqtx.readers.log.segment_scan import SegmentScan
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.findings import Finding, as_text
from rmqtx.readers.queues.slot_files import topic_text
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.checkpoint import checkpoint_values
from rmqtx.readers.store.store import HALF_TOPIC, Store
from rmqtx.verdicts.startup.dledger_log import committed_offset, is_too_far_back, walk_entries
from rmqtx.verdicts.startup.log_walk import LogWalk
from rmqtx.verdicts.startup.losses import cut_meaning
from rmqtx.verdicts.startup.queues import QueueFacts
from rmqtx.verdicts.startup.recovery import LogFacts, recovered_until_ms
from rmqtx.verdicts.startup.rules import RecoveryRules

_SLOTS_AT_ONCE = 1 << 20


def dledger_findings(
    store: Store, conf: Mapping[str, str], log: LogFacts, queues: Sequence[QueueFacts], rules: RecoveryRules
) -> Iterator[Finding]:
    """Return what a start by the given rules cuts off the log and the queues.

    Raises: SourceError if a file that the start depends on cannot be read.
    """
    walk = walk_entries(store)
    if walk is None:
        return
    if walk.end_offset < log.end_offset and is_too_far_back(store, walk):
        segment = store.commit_log[walk.stopped_in]
        yield Finding(
            store.root, "start-refused", segment.file, walk.end_offset - segment.base_offset,
            commit_log_offset=walk.end_offset, expected=f"entries up to {log.end_offset}",
            actual=f"the log ends at {walk.end_offset}, more than one file before its last file: {walk.why}",
        )
        return
    yield from log_findings(store, walk, log)
    cut = queues_cut_at(store, conf, rules)
    if cut is not None:
        yield from _cut_queues(store, queues, cut)


def queues_cut_at(store: Store, conf: Mapping[str, str], rules: RecoveryRules) -> int | None:
    """Return the place of a DLedger log before its end at which a start after a kill cuts the queues; None if none.

    Source: store/dledger/DLedgerCommitLog.java dledgerRecoverAbnormally; docs/formats/dledger.md#queues.
    """
    if store.aborted and rules.empties_dledger_queues:
        return _begin_offset(store, conf)
    if store.aborted and rules.cuts_dledger_queues_short:
        return _end_without_headers(store)
    return None


def _cut_queues(store: Store, queues: Sequence[QueueFacts], cut_offset: int) -> Iterator[Finding]:
    """Queues that are cut at a place of the log that is not its end, and what is dispatched to them after that.

    The broker dispatches only what DLedger had not committed at the stop.
    Source: store/dledger/DLedgerCommitLog.java dledgerRecoverAbnormally; docs/formats/dledger.md#queues.
    """
    again = committed_offset(store)
    slots_count = lost_count = 0
    half, half_again, shifted = (np.empty((0, 2), np.int64) for _ in range(3))
    for facts in queues:
        rows = _slots(facts)
        slots_count += len(rows)
        later = rows[rows[:, 1] >= (1 << 62 if again is None else again)]
        lost = rows[(rows[:, 1] >= cut_offset) & (rows[:, 1] < (1 << 62 if again is None else again))]
        lost_count += len(lost)
        if topic_text(facts.name[1]) == HALF_TOPIC:
            half, half_again = lost, later
            kept = rows[rows[:, 1] < cut_offset]
            if len(kept) and len(later) and len(lost):  # a queue without slots begins at the number of its next record
                shifted = np.stack([later[:, 0], int(kept[-1, 0]) + 1 + np.arange(len(later))], axis=1)
    if not lost_count:
        return
    actual = f"none for records from commit-log offset {cut_offset} on"
    if again is not None:
        numbers = f", half queue offsets {half_again[0, 0]} to {half_again[-1, 0]}" if len(half_again) else ""
        actual += f"; records from {again} on get slots again{numbers}"
    cursor = (check_cursors(store).half or {}).get(0, 0)
    ahead_count = int((half[:, 0] >= cursor).sum())
    yield Finding(
        store.root, "start-empties-queues", store.place("consumequeue"), commit_log_offset=cut_offset,
        expected=f"{slots_count} slots in {len(queues)} consume queues", actual=actual,
        meaning=f"{lost_count} records lose their slots, {len(half)} half messages among them; the check has not "
        f"reached {ahead_count} of these yet, and never will; op messages without slots are never read, and "
        "consumers receive none of the other messages",
    )
    if len(shifted):
        (first, slot), last = shifted[0].tolist(), shifted[-1].tolist()
        yield Finding(
            store.root, "start-shifts", as_text(store.queue_directory(HALF_TOPIC, 0)), commit_log_offset=again,
            expected=f"half queue offsets {first} to {last[0]}", actual=f"slots {slot} to {last[1]}",
        )


def _slots(facts: QueueFacts) -> Int64s:
    """Return number and place of each slot of a queue that has one."""
    parts = [np.empty((0, 2), np.int64)]
    for first in range(facts.files.first, facts.used_end, _SLOTS_AT_ONCE):
        end = min(first + _SLOTS_AT_ONCE, facts.used_end)
        slots = facts.files.read(first, end)
        is_used = slots["record_length_bytes"] > 0
        parts.append(np.stack([np.arange(first, end), slots["commit_log_offset"].astype(np.int64)], axis=1)[is_used])
    records = facts.records
    lacking = records.numbers >= facts.used_end
    parts.append(np.stack([records.numbers[lacking], records.offsets[lacking]], axis=1))
    return np.concatenate(parts)


def _end_without_headers(store: Store) -> int:
    """Return the end of the log as 5.3.0 and later compute it: the headers of the last file's entries do not count."""
    segment = [one for one in store.commit_log if one.frame_bytes and one.size_bytes][-1]
    return segment.base_offset + sum(int(block.lengths.sum()) for block in SegmentScan(segment))


def _begin_offset(store: Store, conf: Mapping[str, str]) -> int:
    """Return the begin of the file in which the recovery begins: the newest that is old enough, else the first.

    Source: store/dledger/DLedgerCommitLog.java isMmapFileMatchedRecover.
    """
    until_ms = recovered_until_ms(conf, checkpoint_values(store))
    files = [segment for segment in store.commit_log if segment.frame_bytes and segment.size_bytes]
    for segment in reversed(files):
        time_ms = _first_time_ms(segment)
        if time_ms is not None and 0 < time_ms <= until_ms:
            return segment.base_offset
    return files[0].base_offset


def _first_time_ms(segment: Segment) -> int | None:
    with segment.open() as file:
        head = file.read(segment.frame_bytes, HEADER_BYTES_MAX)
    if len(head) < RECORD.size_bytes or number_at(head, "magic") != signed(MAGIC_V1):
        return None
    return number_at(head, "store_time_ms")


def log_findings(store: Store, walk: LogWalk, log: LogFacts) -> Iterator[Finding]:
    """Findings for the part of the log that is cut, and for loaded files that are deleted."""
    if walk.end_offset >= log.end_offset:
        return
    segment = walk.segments[walk.stopped_in]
    cut_bytes = min(segment.end_offset, log.end_offset) - walk.end_offset
    meaning = cut_meaning(store, walk.end_offset)
    if cut_bytes > 0:
        yield Finding(
            store.root, "start-cuts-log", segment.file, walk.end_offset - segment.base_offset, cut_bytes,
            walk.end_offset, expected=f"records up to {log.end_offset}",
            actual=f"the log ends at {walk.end_offset}: {walk.why}", meaning=meaning,
        )
    for later in walk.segments:
        if walk.end_offset < later.base_offset < log.end_offset:
            yield Finding(
                store.root, "start-deletes-segment", later.file, 0, later.size_bytes, later.base_offset,
                expected=f"records up to {log.end_offset}", actual=f"the log ends at {walk.end_offset}",
                meaning=meaning if cut_bytes <= 0 else None,
            )
