"""Entries of the redo log (3.0, 3.1) that point to a record of another kind: the flag of the record is damaged.

The header has no CRC, and prepared, COMMIT and ROLLBACK records are in their real topic: only their flag marks them.
A prepared record is in no queue, but has an entry in the redo log (`redo_log.py`). So a sound record at the place of an
entry is a prepared record, whatever its flag is, and its transaction is listed as doubtful.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from rmqtx.readers.log.corrected_records import as_prepared
from rmqtx.readers.log.prepared_records import is_prepared
from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding, one_by_one
from rmqtx.readers.old_tables.redo_log import DIRECTORY, PREPARED_TAGS, TOPIC
from rmqtx.readers.queues.consume_queue import Queue
from rmqtx.readers.storage.segments import SegmentedLog
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.missing.missing_ranges import MissingBytes
from rmqtx.verdicts.missing.unfound_slots import UnfoundSlot
from rmqtx.verdicts.model.verdict_inputs import MissingRange

_KIND = "/".join(DIRECTORY[:2])
_ENTRIES_AT_ONCE = 1 << 20
#: A redo log with more contradictions belongs to another log.
_UNFOUND_MAX = 1000


def unfound_entries(
    store: Store, prepared_places: Int64s, end_places: Int64s, begin_offset: int, end_offset: int
) -> list[UnfoundSlot]:
    """Return entries of the redo log for a range of the log where their record was not found.

    `prepared_places`, `end_places`: where prepared records, and COMMIT and ROLLBACK records, were found in the range.
    Units: bytes of the commit log.
    Order: entry number.
    """
    unfound: list[UnfoundSlot] = []
    if not store.has(*DIRECTORY):
        return unfound
    try:
        with Queue(store, TOPIC, 0, _KIND) as entries:
            first, last = entries.offset_of(begin_offset), entries.offset_of(end_offset)
            while first < last:
                numbers, places, lengths, tags = entries.read(first, min(first + _ENTRIES_AT_ONCE, last))
                known: Bools = np.where(
                    tags == PREPARED_TAGS, np.isin(places, prepared_places), np.isin(places, end_places)
                ).astype(np.bool_)
                absent = ~known & (places >= begin_offset) & (places < end_offset)
                for row in np.flatnonzero(absent).tolist():
                    unfound.append(UnfoundSlot(TOPIC, int(numbers[row]), int(places[row]), int(lengths[row])))
                first += _ENTRIES_AT_ONCE
    except SourceError:
        pass  # an unreadable redo log proves nothing; its own reader reports it
    return unfound


def evidence_of_entries(
    store: Store, unfound: Iterable[UnfoundSlot], known: Sequence[MissingRange]
) -> MissingBytes:
    """Return the doubt about entries of sound records among unfound slots; other entries point into known damage.

    `known`: ranges that are missing anyway.
    Damage: redo-entry-mismatch.
    Raises: SourceError if a file of the log can no longer be read.
    """
    result = MissingBytes()
    mine = [
        slot for slot in unfound
        if slot.topic == TOPIC
        and not any(one.begin_offset <= slot.commit_log_offset < one.end_offset for one in known)
    ]
    if not mine:
        return result
    contradicted: list[tuple[UnfoundSlot, int]] = []
    with store.log() as log, Queue(store, TOPIC, 0, _KIND) as entries:
        for slot in mine[:_UNFOUND_MAX]:
            block = block_at(log, slot.commit_log_offset)
            if block is None or int(block.lengths[0]) != slot.record_length_bytes:
                continue
            (tag,) = entries.read(slot.queue_offset, slot.queue_offset + 1)[3].tolist()
            contradicted.append((slot, tag))
            result.ranges.append(_doubt(store, slot, tag))
            corrected = as_prepared(block) if tag == PREPARED_TAGS else None
            if corrected is not None and is_prepared(corrected)[0]:
                result.damaged_halves.append(corrected)
        result.findings.extend(_mismatches(store, log, contradicted))
    return result


def _mismatches(
    store: Store, log: SegmentedLog, contradicted: Sequence[tuple[UnfoundSlot, int]]
) -> Iterator[Finding]:
    """Return the findings for entries with their tags code, whose record is of another kind."""
    for (slot, tag), more in one_by_one(contradicted, "entries"):
        yield Finding(
            store.root, "redo-entry-mismatch", *log.place_of(slot.commit_log_offset), slot.record_length_bytes,
            commit_log_offset=slot.commit_log_offset, expected=f"{_called(tag)}, by the redo log",
            actual=f"another record{more}",
        )


def _called(tag: int) -> str:
    return "a prepared record" if tag == PREPARED_TAGS else f"a COMMIT or ROLLBACK record that ends offset {tag}"


def _doubt(store: Store, slot: UnfoundSlot, tag: int) -> MissingRange:
    place = slot.commit_log_offset
    what = f"the record at commit-log offset {place} is not {_called(tag)}, as the redo log states"
    missing = MissingRange(
        store.root, place, place + slot.record_length_bytes, what, is_identified=True, prepared_offsets=(place,)
    )
    return missing if tag == PREPARED_TAGS else replace(missing, prepared_offsets=(tag, place))
