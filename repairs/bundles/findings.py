"""What a bundle must contain to show some findings of `verify`: their records, bytes, slots or cursors."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rmqtx.readers.cursors import read_cursors
from rmqtx.readers.jobs.job_runner import run_job
from rmqtx.readers.log.segment_scan import SegmentScan
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.model.errors import BadRequest, NoSuchTransaction
from rmqtx.readers.model.findings import KINDS, Finding
from rmqtx.readers.model.shell_words import quoted
from rmqtx.readers.queues.consume_queue import SLOT, open_queue
from rmqtx.readers.storage.segments import SegmentedLog
from rmqtx.readers.store.store import Store
from rmqtx.repairs.bundles.selection import Selection, loose
from rmqtx.verdicts.verify.store_files import misplaced_cursors
from rmqtx.verdicts.verify.verify import Verify

#: Findings whose bytes are not records; bytes of other findings may contain records that were not chosen.
_LOOSE_CODES = frozenset({"record-damaged", "tail-torn", "tail-foreign", "blank-length"})
#: Findings that compare a record with the record in front of it, and findings about cursors of groups.
_OF_TWO_RECORDS = "store-time-backwards"
_GROUP_CURSORS = frozenset({"group-cursor-beyond-end", "group-cursor-before-begin"})


def found_in(store: Store, codes: frozenset[str]) -> list[Finding]:
    """Return the findings of some codes that `verify` finds in a store."""
    reading = run_job(Verify(), plan_splits([store]))
    return [Finding.of(row) for row in reading.table().to_pylist() if row["code"] in codes]


def add_findings(selection: Selection, wanted: Iterable[str]) -> None:
    """Add to a selection what shows the findings of some codes.

    Raises: BadRequest for an unknown code, or one that no bundle can show; NoSuchTransaction for a code that `verify`
            does not find.
    """
    codes = frozenset(wanted)
    if not codes:
        return
    listing = f"to list the findings: rmqtx verify {quoted(selection.store.root)}"
    for code in sorted(codes):
        if code not in KINDS:
            raise BadRequest(f"no finding {code}", advice=listing)
        if code.startswith("index-"):
            raise BadRequest(
                f"{code} concerns the index, and a bundle has none, because an index contains the hash of every key",
                advice="send the index file itself, if its keys are not confidential",
            )
    found = found_in(selection.store, codes)
    missing = sorted(codes - {one.code for one in found})
    if missing:
        raise NoSuchTransaction(
            f"verify does not find {', '.join(missing)} in {selection.store.root}",
            advice=listing,
        )
    selection.findings = found
    with selection.store.log() as log:
        for one in found:
            _add_finding(selection, log, one)
    offsets = [one.commit_log_offset for one in found if one.code == _OF_TWO_RECORDS]
    _add_records_in_front(selection, [offset for offset in offsets if offset is not None])
    if codes & _GROUP_CURSORS:
        _add_cursors(selection, codes)


def _add_records_in_front(selection: Selection, offsets: list[int]) -> None:
    """Add the last sound record in front of each of some records."""
    left = np.array(sorted(offsets), np.int64)
    found: list[int] = []
    last = -1
    for segment in selection.store.commit_log:
        if not len(left):
            break

        for block in SegmentScan(segment):
            known = np.concatenate([[last], block.commit_log_offsets]) if last >= 0 else block.commit_log_offsets
            if not len(known):
                continue
            here = left[left <= known[-1]]
            places = np.searchsorted(known, here) - 1
            found += known[places[places >= 0]].tolist()
            left = left[len(here) :]
            last = int(known[-1])
    selection.add_records(found)


def _add_cursors(selection: Selection, codes: frozenset[str]) -> None:
    """Add the cursors of groups that findings of some codes are about, and their queues."""
    rows = [row for batch in read_cursors(selection.store) for row in batch.to_pylist()]
    for one in misplaced_cursors(selection.store, rows):
        if one.code in codes:
            selection.cursors.add((one.topic, one.group, one.queue_id))
            selection.slots.setdefault((one.topic, one.queue_id), set())


def _add_finding(selection: Selection, log: SegmentedLog, found: Finding) -> None:
    offset, position, length = found.commit_log_offset, found.position_bytes, found.length_bytes
    if offset is not None:
        selection.add_records([offset])
    record = None if offset is None else selection.records.get(offset)
    if record is not None and found.code.startswith("slot-"):
        selection.slots.setdefault((record.topic, record.queue_id), set())
    segment = next((one for one in selection.store.commit_log if one.file == found.file), None)
    if segment is not None:
        if found.code not in _LOOSE_CODES or position is None or not length:
            return
        begin = segment.base_offset + position
        if begin not in selection.records and log.segment_at(begin) is not None:
            selection.ranges.extend(loose(begin, min(length, segment.size_bytes - position)))
        return
    parts = (found.file or "").removeprefix(selection.store.root).strip("/").split("/")
    is_queue = len(parts) == 4 and parts[0] == "consumequeue" and parts[2].isdecimal() and parts[3].isdecimal()
    if is_queue and position is not None:
        size = SLOT.size_bytes
        first = (int(parts[3]) + position) // size
        numbers = range(first, first + max(1, (length or size) // size))
        selection.slots.setdefault((parts[1], int(parts[2])), set()).update(numbers)
        selection.add_records(_pointed_at(selection.store, parts[1], int(parts[2]), numbers))
    if found.code not in _GROUP_CURSORS and len(parts) <= 2 and found.file and parts[-1]:
        selection.files.append("/".join(parts))


def _pointed_at(store: Store, topic: str, queue_id: int, numbers: range) -> list[int]:
    with open_queue(store, topic, queue_id) as queue:
        return [int(offset) for offset in queue.read(numbers.start, numbers.stop)[1].tolist()]
