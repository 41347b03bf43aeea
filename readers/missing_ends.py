"""Records that prepared records' own witnesses know behind the place where a log seems to end (before 4.3).

No half topic is there whose queue could tell. What can are the queues of all topics, which have each COMMIT record, and
the redo log of 3.0 and 3.1, which has every record of a transaction: where one of them knows more than the log, the log
has lost its tail, and what ended there is not known to be pending.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from readers.consume_queue import open_queue
from readers.errors import SourceError
from readers.findings import Finding
from readers.missing import SEARCHED_BYTES_MAX, UnfoundSlot, stands_between_its_neighbours
from readers.record_layout import TRANSACTION_MASK
from readers.redo_log import TOPIC as REDO_TOPIC
from readers.redo_log import redo_entries
from readers.segment_scan import SegmentScan
from readers.sources import Segment
from readers.store import Store

_Test = Callable[[int], bool]


def known_behind(store: Store, tails: Sequence[tuple[Segment, int, int]]) -> list[UnfoundSlot]:
    """The last record that each queue, and the redo log, knows where the log has none: in its tails, or behind its end.

    `tails`: (segment, position, length) of what seems unused. Nothing in a store in use; a queue whose record stands
    elsewhere, or was written since the log was read, is no witness.
    Units: bytes.
    """
    if store.in_use or not store.commit_log:
        return []
    end = store.log().end_offset
    places = [(segment.base_offset + place, segment.base_offset + place + length) for segment, place, length in tails]

    def is_behind(offset: int) -> bool:
        return offset >= end or any(low <= offset < high for low, high in places)

    return [*_of_queues(store, is_behind), *_of_redo_log(store, is_behind)]


def _of_queues(store: Store, is_behind: _Test) -> Iterator[UnfoundSlot]:
    for topic, queue_id in store.prepared_queues(store.queues()):
        try:
            with open_queue(store, topic, queue_id) as queue:
                numbers, offsets, lengths, _ = queue.read(queue.max_offset - 1, queue.max_offset)
            for number, offset, length in zip(numbers.tolist(), offsets.tolist(), lengths.tolist(), strict=True):
                slot = UnfoundSlot(topic, number, offset, length, queue_id)
                if is_behind(offset) and not stands_between_its_neighbours(store, slot):
                    yield slot
        except SourceError:
            continue  # a queue that cannot be read proves nothing against the log


def _of_redo_log(store: Store, is_behind: _Test) -> Iterator[UnfoundSlot]:
    """The last entry, unless the log has a record behind the entry before it: then the entry is what is damaged."""
    damage: list[Finding] = []
    try:
        entries = redo_entries(store, damage)
        if entries is None or not len(entries) or not is_behind(int(entries.offsets[-1])):
            return
        before = np.flatnonzero(~np.array([is_behind(offset) for offset in entries.offsets.tolist()], np.bool_))
        low = store.log_begin_offset
        if len(before):
            low = int(entries.offsets[before[-1]] + entries.lengths[before[-1]])
        if not _has_transactions(store, low):
            row = len(entries) - 1
            yield UnfoundSlot(
                REDO_TOPIC, int(entries.numbers[row]), int(entries.offsets[row]), int(entries.lengths[row])
            )
    except SourceError:
        return


def _has_transactions(store: Store, begin: int) -> bool:
    """Whether the log has a prepared, COMMIT or ROLLBACK record at or behind a place, not too far from it."""
    for segment in store.commit_log:
        low = max(begin - segment.base_offset, 0)
        if low >= segment.size_bytes or segment.base_offset - begin > SEARCHED_BYTES_MAX:
            continue
        for block in SegmentScan(segment, from_position=low, to_position=low + SEARCHED_BYTES_MAX):
            if (block.sys_flag & TRANSACTION_MASK).any():
                return True
    return False
