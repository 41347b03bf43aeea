"""What a bundle must hold to show some findings of `verify`: the record, bytes, slot or cursor that they are at."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from readers.jobs.job_runner import run_job
from readers.log.splits import plan_splits
from readers.model.errors import BadRequest, NoSuchTransaction
from readers.model.findings import KINDS
from readers.queues.consume_queue import open_queue
from readers.storage.segments import SegmentedLog
from readers.store.store import Store
from repairs.bundles.selection import Selection, loose
from verdicts.verify.verify import Verify

#: Findings whose bytes are no records; those of others may lie over records that were not chosen.
_LOOSE_CODES = frozenset({"record-damaged", "tail-torn", "tail-foreign", "blank-length"})
_GROUP_CURSOR = re.compile(r" for (?P<group>.+) in queue (?P<queue>\d+) of (?P<topic>.+)$")
_OTHER_RECORD = re.compile(r"the record at (\d+)$")


def found_in(store: Store, codes: frozenset[str]) -> list[dict[str, Any]]:
    """The rows of FINDINGS that `verify` gives for a store, of some codes."""
    reading = run_job(Verify(), plan_splits([store]))
    rows: list[dict[str, Any]] = reading.table().to_pylist()
    return [row for row in rows if row["code"] in codes]


def add_findings(selection: Selection, wanted: Iterable[str]) -> None:
    """Add what shows the findings of some codes.

    Raises: BadRequest for a code that there is not, or that no bundle can show; NoSuchTransaction for one that `verify`
            does not find.
    """
    codes = frozenset(wanted)
    if not codes:
        return
    for code in sorted(codes):
        if code not in KINDS:
            raise BadRequest(f"no finding {code}", advice="rmqtx verify STORE lists what there is")
        if code.startswith("index-"):
            raise BadRequest(
                f"{code} is about the index, which a bundle does not have: it holds every key's hash",
                advice="send the index file itself, if its keys may be known",
            )
    rows = found_in(selection.store, codes)
    missing = sorted(codes - {row["code"] for row in rows})
    if missing:
        raise NoSuchTransaction(
            f"verify finds no {', '.join(missing)} in {selection.store.root}", advice="rmqtx verify STORE lists them"
        )
    selection.findings = rows
    log = selection.store.log()
    try:
        for row in rows:
            _add_finding(selection, log, row)
    finally:
        log.close()


def _add_finding(selection: Selection, log: SegmentedLog, row: dict[str, Any]) -> None:
    offset, length, file = row["commit_log_offset"], row["length_bytes"], row["file"]
    other = _OTHER_RECORD.search(row["expected"] or "")
    selection.add_records([int(other[1])] if other else [])
    if offset is not None:
        selection.add_records([offset])
    record = selection.records.get(offset)
    if record is not None and row["code"].startswith("slot-"):
        selection.slots.setdefault((record.topic, record.queue_id), set())
    segment = next((one for one in selection.store.commit_log if one.file == file), None)
    if segment is not None:
        if row["code"] not in _LOOSE_CODES or row["position_bytes"] is None or not length:
            return
        begin = segment.base_offset + row["position_bytes"]
        if begin not in selection.records and log.segment_at(begin) is not None:
            selection.ranges.extend(loose(begin, min(length, segment.size_bytes - row["position_bytes"])))
        return
    parts = (file or "").removeprefix(selection.store.root).strip("/").split("/")
    is_queue = len(parts) == 4 and parts[0] == "consumequeue" and parts[2].isdecimal() and parts[3].isdecimal()
    if is_queue and row["position_bytes"] is not None:
        first = (int(parts[3]) + row["position_bytes"]) // 20
        numbers = range(first, first + max(1, (length or 20) // 20))
        selection.slots.setdefault((parts[1], int(parts[2])), set()).update(numbers)
        selection.add_records(_pointed_at(selection.store, parts[1], int(parts[2]), numbers))
    cursor = _GROUP_CURSOR.search(row["expected"] or "") if row["code"].startswith("group-cursor-") else None
    if cursor is not None:
        topic, queue_id = cursor["topic"], int(cursor["queue"])
        selection.cursors.add((topic, cursor["group"], queue_id))
        selection.slots.setdefault((topic, queue_id), set())
    elif len(parts) <= 2 and file and parts[-1]:
        selection.files.append("/".join(parts))


def _pointed_at(store: Store, topic: str, queue_id: int, numbers: range) -> list[int]:
    with open_queue(store, topic, queue_id) as queue:
        return [int(offset) for offset in queue.read(numbers.start, numbers.stop)[1].tolist()]
