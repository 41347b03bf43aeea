"""The views of several stores together: bytes that one of them lacks and another one has, and whose log each has.

A range that is missing in one store hides nothing if another store has its records, and all others of that log: these
are among the witnesses. A store that lacks a part of that log, or has damage too, fills nothing: an op message in only
one of the two would not decide a half message in only the other one. Salvage makes one log of both.

The other store has the same history there if the sound records before and behind the range have the same bytes at the
same commit-log offsets in both. A lost end has no record behind it: the other store has the same history there if the
consume queues of the store refer to each of its records. Records with torn properties are damage, not neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from rmqtx.readers.log.commit_log import written_end
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.log.torn_properties import have_torn_properties
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.queues.slot_files import topic_text
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.evidence.same_log import blocks_of, logs_of, uncompared_logs
from rmqtx.verdicts.evidence.store_facts import StoreFacts
from rmqtx.verdicts.model.verdict_inputs import HiddenRecords, MissingRange, StoreView

#: A log with more missing ranges is not compared: each needs a few reads.
_RANGES_MAX = 1000
#: How far before and behind a range its neighbours are searched for: at first, and at most.
_SEARCHED_BYTES = (64 << 10, 16 << 20)
#: A longer range is more than one record.
_RECORD_BYTES_MAX = 8 << 20


@dataclass(frozen=True, slots=True)
class _Record:
    """A sound record of a log. Units: `begin` is its commit-log offset."""

    begin: int
    data: bytes


def views_of(facts: Mapping[str, StoreFacts]) -> dict[str, StoreView]:
    """Return the views of all stores of one audit, by root, without the missing ranges that another store has.

    Only if there are several stores, their logs are read for this: around missing ranges, and, if there are prepared
    records, at their begin, to find out which stores have one log.
    Order:  of the stores. What is missing does not depend on it.
    Damage: a range stays missing where a log cannot be read.
    """
    views = {root: fact.view() for root, fact in facts.items()}
    if len(views) < 2:
        return views
    stores = {root: fact.store for root, fact in facts.items()}
    kept = {root: tuple(_still_missing(stores, views, root)) for root in views}
    logs = logs_of(list(stores.values())) if any(fact.has_prepared for fact in facts.values()) else {}
    unknown = uncompared_logs(list(stores.values()), logs) if len(set(logs.values())) > 1 else {}
    return {
        root: _without_replaced(
            replace(view, missing=kept[root], log=logs.get(root), uncompared_logs=unknown.get(root, frozenset())),
            view.missing, stores,
        )
        for root, view in views.items()
    }


def _without_replaced(
    view: StoreView, missing: tuple[MissingRange, ...], stores: Mapping[str, Store]
) -> StoreView:
    """Return a view without doubts about records in ranges that are missing no longer: another store has the records.

    `missing`: the ranges before they were looked for in other stores. A range with equal bytes in two stores is a sound
    record that names a missing one: it still counts.
    """
    kept = set(map(id, view.missing))
    found = {
        (one.begin_offset, one.end_offset) for one in missing
        if id(one) not in kept and not any(_overlap(one, other) for other in view.missing)
    }
    store = stores[view.store]
    others = [other for other in stores.values() if other is not store and not other.is_remote]
    ranges = [place for place in sorted(found) if not any(_are_equal(store, other, place) for other in others)]
    if not ranges:
        return view

    def is_replaced(offset: int) -> bool:
        return any(begin <= offset < end for begin, end in ranges)

    return replace(
        view, replaced=tuple(ranges),
        doubtful_ids=tuple(one for one in view.doubtful_ids if not is_replaced(one.commit_log_offset)),
        doubtful_ends=tuple(one for one in view.doubtful_ends if not is_replaced(one.commit_log_offset)),
    )


def _still_missing(
    stores: Mapping[str, Store], views: Mapping[str, StoreView], root: str
) -> Iterator[MissingRange]:
    """Yield the missing ranges of a store that no other store has."""
    missing, store = views[root].missing, stores[root]
    if store.is_remote or len(missing) > _RANGES_MAX:
        yield from missing
        return
    whole = [
        other for name, other in stores.items()
        if missing and name != root and not other.is_remote and not views[name].missing and _has_whole_log(other, store)
    ]
    for one in missing:
        if not whole or not _is_in_any(store, whole, one):
            yield one
        elif (rest := _behind(one)) is not None:
            yield rest


def _has_whole_log(other: Store, store: Store) -> bool:
    """Whether a store has the log of another one from its begin to its last sound record."""
    try:
        last = _record_before(store, written_end(store).offset)
        return last is not None and other.log_begin_offset <= store.log_begin_offset and _has(other, last)
    except SourceError:
        return False


def _behind(missing: MissingRange) -> MissingRange | None:
    """Return what may be missing behind a range: the end of a log, of which only the least length is known."""
    gaps = () if missing.hidden is None else missing.hidden.gaps
    behind = tuple(
        replace(gap, begin_offset=max(gap.begin_offset, missing.end_offset))
        for gap in gaps if gap.end_offset > missing.end_offset
    )
    if not behind:
        return None
    return replace(
        missing, begin_offset=missing.end_offset, end_offset=max(gap.end_offset for gap in behind),
        hidden=HiddenRecords((), behind),
    )


def _overlap(one: MissingRange, other: MissingRange) -> bool:
    return one.begin_offset < other.end_offset and other.begin_offset < one.end_offset


def _is_in_any(store: Store, others: list[Store], missing: MissingRange) -> bool:
    """Whether one of the other stores has sound records in place of the missing range, in the same history."""
    try:
        before, behind = _record_before(store, missing.begin_offset), _record_behind(store, missing.end_offset)
    except SourceError:
        return False
    if before is None and (behind is None or missing.begin_offset > store.log_begin_offset):
        return False
    begin = missing.begin_offset if before is None else before.begin
    end = missing.end_offset - 1 if behind is None else behind.begin
    for other in others:
        try:
            if (
                (before is None or _has(other, before))
                and (_have_slots(store, other, missing) if behind is None else _has(other, behind))
                and _is_whole(other, begin, end, begins_with_record=before is not None)
            ):
                return True
        except SourceError:
            continue  # reported by the audit
    return False


def _record_before(store: Store, offset: int) -> _Record | None:
    """Return the last sound record that ends at or before an offset; None without one nearby.

    One with torn properties is damaged itself: another copy has other bytes there.
    """
    for back in _SEARCHED_BYTES:
        low = max(store.log_begin_offset, offset - back)
        found = None
        for block in blocks_of(store, low, offset):
            rows = np.flatnonzero(
                (block.commit_log_offsets + block.lengths <= offset) & ~have_torn_properties(block)
            )
            if len(rows):
                found = _record(block, int(rows[-1]))
        if found is not None or low == store.log_begin_offset:
            return found
    return None


def _record_behind(store: Store, offset: int) -> _Record | None:
    """Return the first sound record that begins at or after an offset, as `_record_before`."""
    for far in _SEARCHED_BYTES:
        for block in blocks_of(store, offset, offset + far):
            rows = np.flatnonzero(~have_torn_properties(block))
            if len(rows):
                return _record(block, int(rows[0]))
    return None


def _record(block: Block, row: int) -> _Record:
    start, length = int(block.starts[row]), int(block.lengths[row])
    return _Record(int(block.commit_log_offsets[row]), bytes(block.raw[start : start + length]))


def _has(store: Store, record: _Record) -> bool:
    """Whether a log has the same bytes at the place of a record."""
    with store.log() as log:
        return bytes(log.read(record.begin, len(record.data))) == record.data


def _have_slots(store: Store, other: Store, missing: MissingRange) -> bool:
    """Whether the consume queues of a store refer to each record that another store has in a missing range.

    A slot contains the place and the length of its record, so the store had the same records there, up to the last one.
    """
    end = missing.begin_offset
    for block in blocks_of(other, missing.begin_offset, missing.end_offset):
        if not _have_own_slots(store, block):
            return False
        if len(block):
            end = block.end_offset
    return end == missing.end_offset


def _have_own_slots(store: Store, block: Block) -> bool:
    """Whether the consume queues of a store have place and length of each record of a block in the record's slot."""
    topics = block.coded_topics()
    numbers = block.header("queue_offset").astype(np.int64)
    queue_ids = block.header("queue_id")
    codes: Int64s = np.asarray(topics.indices, np.int64)
    for code, queue_id in {*zip(codes.tolist(), queue_ids.tolist(), strict=True)}:
        rows = np.flatnonzero((codes == code) & (queue_ids == queue_id))
        first = int(numbers[rows].min())
        with open_queue(store, topic_text(topics.dictionary[code].as_py()), int(queue_id)) as queue:
            places, lengths = queue.places(first, int(numbers[rows].max()) + 1)
        here = numbers[rows] - first
        if (places[here] != block.commit_log_offsets[rows]).any() or (lengths[here] != block.lengths[rows]).any():
            return False
    return True


def _are_equal(store: Store, other: Store, place: tuple[int, int]) -> bool:
    """Whether two logs have the same bytes in a range of the length of a record."""
    begin, length = place[0], place[1] - place[0]
    if length > _RECORD_BYTES_MAX:
        return False
    try:
        with store.log() as log:
            return _has(other, _Record(begin, bytes(log.read(begin, length))))
    except SourceError:
        return False


def _is_whole(store: Store, begin: int, end: int, *, begins_with_record: bool) -> bool:
    """Whether a log has one sound record after another from an offset up to the record at `end`.

    `begins_with_record`: one begins at `begin`; else the range begins with a file.
    """
    reached = begin
    for split in plan_splits([store], from_offset=begin, to_offset=end + 1):
        low, high = split.offsets
        if low != reached or (low == begin and split.from_position and not begins_with_record):
            return False
        scan = split.scan()
        for _ in scan:
            pass
        base = split.segment.base_offset
        if any(not span.is_filler and base + span.position_bytes < end for span in scan.spans):
            return False
        reached = high
    return reached > end
