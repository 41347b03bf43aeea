"""How DLedger reads its log when a broker starts, and what the start does to the store, as far as its files decide it.

The log is read entry after entry, from one of the last files on, up to its end. DLedger tests the headers of entries
only, not the records in them: where a header is wrong, the log ends, whatever follows. The other members of its group
may then replace the end of its log, or add to it.

Source: io/openmessaging/storage/dledger/store/file/DLedgerMmapFileStore.java recover;
        docs/formats/dledger.md#recovery.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from rmqtx.readers.cursors import check_cursors
from rmqtx.readers.log.dledger import BLANK_MAGIC, ENTRY_HEADER, ENTRY_MAGIC, INDEX_ENTRY
from rmqtx.readers.log.record_layout import HEADER_BYTES_MAX, MAGIC_V1, RECORD, number_at, signed
from rmqtx.readers.log.segment_scan import SegmentScan
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding, as_text
from rmqtx.readers.queues.slot_files import topic_text
from rmqtx.readers.storage.open_file import OpenFile
from rmqtx.readers.storage.segments import DLEDGER_FRAME_BYTES, Segment
from rmqtx.readers.store.checkpoint import checkpoint_values
from rmqtx.readers.store.store import HALF_TOPIC, Store
from rmqtx.verdicts.startup.log_walk import LogWalk
from rmqtx.verdicts.startup.losses import cut_meaning
from rmqtx.verdicts.startup.queues import QueueFacts
from rmqtx.verdicts.startup.recovery import LogFacts, recovered_until_ms
from rmqtx.verdicts.startup.rules import RecoveryRules

_WINDOW_BYTES = 4 << 20
_FILES_BACK = 3
_CHECKPOINT_BYTES_MAX = 4096
_SLOTS_AT_ONCE = 1 << 20


def _files(store: Store) -> list[Segment]:
    """Return the files of a DLedger log that are not empty; a log from before it may stand in front."""
    return [segment for segment in store.commit_log if segment.frame_bytes and segment.size_bytes]


def walk_entries(store: Store) -> LogWalk | None:
    """Return where the recovery of DLedger begins to read and ends the log, with numbers of files of the whole log.

    None without a DLedger log.
    Raises: FileChanged, UnreadableFile.
    """
    files = _files(store)
    if not files:
        return None
    index = term = -1
    first = _first_file(store, files)
    before = store.commit_log.index(files[0])
    for number, segment in enumerate(files[first:], first):
        with segment.open() as file:
            for place, entry in _entries(file, segment.base_offset):
                if entry is None:
                    why = "the file ends without a blank"
                    return LogWalk(store.commit_log, before + first, before + number, place, why)
                if entry["magic"] == BLANK_MAGIC:
                    break
                ended = _why_ended(entry, place, index, term)
                if ended is not None:
                    return LogWalk(store.commit_log, before + first, before + number, place, ended)
                index, term = entry["entry_index"], entry["term"]
    last, end_offset = before + len(files) - 1, files[-1].end_offset
    return LogWalk(store.commit_log, before + first, last, end_offset, "the last file is full")


def entries_begin(store: Store) -> int | None:
    """Return the commit-log offset of the file with which the recovery of DLedger begins; None without a DLedger log.

    Raises: FileChanged, UnreadableFile.
    """
    files = _files(store)
    return files[_first_file(store, files)].base_offset if files else None


def is_too_far_back(store: Store, walk: LogWalk) -> bool:
    """Whether the end is so far before the last file that the broker exits instead of deleting the files between."""
    last = store.commit_log[-1]
    return last.base_offset - walk.end_offset > last.size_bytes


def committed_offset(store: Store) -> int | None:
    """Return the end of the last entry that the checkpoint of DLedger has as committed; None if that is unknown.

    Raises: FileChanged, UnreadableFile.
    """
    files = _files(store)
    if not files:
        return None
    text = _read_beside(store, files[0], "checkpoint", 0, _CHECKPOINT_BYTES_MAX)
    found = re.search(rb"^committedIndex=(\d{1,18})$", text, re.MULTILINE)
    if found is None:
        return None
    raw = _index_entry(store, files[0], int(found[1]))
    if len(raw) < INDEX_ENTRY.size_bytes:
        return None
    at = INDEX_ENTRY.offsets
    length = int.from_bytes(raw[at["length_bytes"] : at["entry_index"]], "big")
    return int.from_bytes(raw[at["entry_offset"] : at["length_bytes"]], "big") + length


def _entries(file: OpenFile, base_offset: int) -> Iterator[tuple[int, dict[str, int] | None]]:
    """Yield the place and header of each entry of a file, as their lengths lead; None where the file ends."""
    position, begin, data = 0, 0, b""
    while True:
        if position + DLEDGER_FRAME_BYTES > begin + len(data) or position < begin:
            begin, data = position, file.read(position, _WINDOW_BYTES)
        raw = data[position - begin : position - begin + DLEDGER_FRAME_BYTES]
        if len(raw) >= 8 and int.from_bytes(raw[:4], "big", signed=True) == BLANK_MAGIC:
            yield base_offset + position, {"magic": BLANK_MAGIC}
            return
        if len(raw) < DLEDGER_FRAME_BYTES:
            yield base_offset + position, None
            return
        entry = ENTRY_HEADER.unpack(raw)
        yield base_offset + position, entry
        position += entry["length_bytes"]


def _why_ended(entry: dict[str, int], place: int, index: int, term: int) -> str | None:
    """Return why an entry ends the log; None if it does not. `index`, `term`: those of the entry before it, or -1."""
    if not any(entry.values()):
        return "zeros"
    if entry["entry_offset"] != place:
        return f"its entry has the place {entry['entry_offset']}"
    if entry["body_length_bytes"] + DLEDGER_FRAME_BYTES != entry["length_bytes"]:
        return f"its entry has {entry['length_bytes']} bytes, and its body {entry['body_length_bytes']}"
    if entry["magic"] != ENTRY_MAGIC:
        return f"its entry has the magic code {entry['magic']}"
    if index >= 0 and entry["entry_index"] != index + 1:
        return f"its entry has number {entry['entry_index']} after {index}"
    if entry["term"] < term:
        return f"its entry has term {entry['term']} after {term}"
    if entry["length_bytes"] <= DLEDGER_FRAME_BYTES:
        return "its entry has no body"
    return None


def _first_file(store: Store, files: Sequence[Segment]) -> int:
    """Return the number of the file with which the recovery begins: one whose first entry agrees with the index."""
    for number in range(max(0, len(files) - _FILES_BACK), 0, -1):
        with files[number].open() as file:
            raw = file.read(0, DLEDGER_FRAME_BYTES)
        if len(raw) < DLEDGER_FRAME_BYTES:
            continue
        entry = ENTRY_HEADER.unpack(raw)
        if _why_ended(entry, files[number].base_offset, -1, -1) is None and _is_indexed(store, files[number], entry):
            return number
    return 0


def _is_indexed(store: Store, segment: Segment, entry: dict[str, int]) -> bool:
    """Whether the index beside the data has an entry as it is in the data."""
    wanted = INDEX_ENTRY.pack(**{name: entry[name] for name in INDEX_ENTRY.offsets})
    return _index_entry(store, segment, entry["entry_index"]) == wanted


def _index_entry(store: Store, segment: Segment, index: int) -> bytes:
    """Return what the index beside the data has for an entry; no bytes if it has none."""
    place = index * INDEX_ENTRY.size_bytes
    try:
        names = [one.name for one in store.files.entries(_beside(segment, "index")) if one.name.isdecimal()]
    except OSError:
        return b""
    name = max((name for name in names if int(name) <= place), default=None)
    if name is None:
        return b""
    return _read_beside(store, segment, f"index/{name}", place - int(name), INDEX_ENTRY.size_bytes)


def _beside(segment: Segment, name: str) -> str:
    """Return the path of a file beside the directory of the data."""
    return f"{segment.file.rpartition('/')[0].rpartition('/')[0]}/{name}"


def _read_beside(store: Store, segment: Segment, name: str, position: int, length: int) -> bytes:
    """Return bytes of a file beside the directory of the data; no bytes if it cannot be read."""
    try:
        entry = store.files.entry(_beside(segment, name))
        if entry is None or not entry.is_file:
            return b""
        with Segment(entry.path, 0, entry.size_bytes).open() as file:
            return file.read(position, length)
    except (OSError, SourceError):
        return b""


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
    segment = _files(store)[-1]
    return segment.base_offset + sum(int(block.lengths.sum()) for block in SegmentScan(segment))


def _begin_offset(store: Store, conf: Mapping[str, str]) -> int:
    """Return the begin of the file in which the recovery begins: the newest that is old enough, else the first.

    Source: store/dledger/DLedgerCommitLog.java isMmapFileMatchedRecover.
    """
    until_ms = recovered_until_ms(conf, checkpoint_values(store))
    files = _files(store)
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
