"""The views of several stores together: bytes that one of them lacks and another one has, and whose log each has.

A range that is missing in one store hides nothing if another store has its records: these are among the witnesses. The
other store has the same history there if the sound records before and behind the range have the same bytes at the same
commit-log offsets in both. A lost end has no record behind it: it may have been another history.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.evidence.same_log import blocks_of, logs_of
from rmqtx.verdicts.evidence.store_facts import StoreFacts
from rmqtx.verdicts.model.verdict_inputs import MissingRange, StoreView

#: A log with more missing ranges is not compared: each needs a few reads.
_RANGES_MAX = 1000
#: How far before and behind a range its neighbours are searched for: at first, and at most.
_SEARCHED_BYTES = (64 << 10, 16 << 20)


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
    return {root: replace(view, missing=kept[root], log=logs.get(root)) for root, view in views.items()}


def _still_missing(
    stores: Mapping[str, Store], views: Mapping[str, StoreView], root: str
) -> Iterator[MissingRange]:
    """Yield the missing ranges of a store that no other store has."""
    missing, store = views[root].missing, stores[root]
    if store.is_remote or len(missing) > _RANGES_MAX:
        yield from missing
        return
    others = [(other, views[name]) for name, other in stores.items() if name != root and not other.is_remote]
    for one in missing:
        whole = [
            other for other, view in others
            if not any(_overlap(one, range_of_other) for range_of_other in view.missing)
        ]  # fmt: skip
        if not whole or _has_unknown_end(one) or not _is_in_any(store, whole, one):
            yield one


def _has_unknown_end(missing: MissingRange) -> bool:
    """Whether more may be missing behind a range: the end of a log, of which only the least length is known."""
    return missing.hidden is not None and any(gap.end_offset > missing.end_offset for gap in missing.hidden.gaps)


def _overlap(one: MissingRange, other: MissingRange) -> bool:
    return one.begin_offset < other.end_offset and other.begin_offset < one.end_offset


def _is_in_any(store: Store, others: list[Store], missing: MissingRange) -> bool:
    """Whether one of the other stores has sound records in place of the missing range, in the same history."""
    try:
        before, behind = _record_before(store, missing.begin_offset), _record_behind(store, missing.end_offset)
    except SourceError:
        return False
    if behind is None or (before is None and missing.begin_offset > store.log_begin_offset):
        return False
    begin = missing.begin_offset if before is None else before.begin
    for other in others:
        try:
            if _has(other, behind) and (before is None or _has(other, before)) and _is_whole(
                other, begin, behind.begin, begins_with_record=before is not None
            ):
                return True
        except SourceError:
            continue  # reported by the audit
    return False


def _record_before(store: Store, offset: int) -> _Record | None:
    """Return the last sound record that ends at or before an offset; None if none is near."""
    for back in _SEARCHED_BYTES:
        low = max(store.log_begin_offset, offset - back)
        found = None
        for block in blocks_of(store, low, offset):
            rows = np.flatnonzero(block.commit_log_offsets + block.lengths <= offset)
            if len(rows):
                found = _record(block, int(rows[-1]))
        if found is not None or low == store.log_begin_offset:
            return found
    return None


def _record_behind(store: Store, offset: int) -> _Record | None:
    """Return the first sound record that begins at or after an offset; None if none is near."""
    for far in _SEARCHED_BYTES:
        for block in blocks_of(store, offset, offset + far):
            if len(block):
                return _record(block, 0)
    return None


def _record(block: Block, row: int) -> _Record:
    start, length = int(block.starts[row]), int(block.lengths[row])
    return _Record(int(block.commit_log_offsets[row]), bytes(block.raw[start : start + length]))


def _has(store: Store, record: _Record) -> bool:
    """Whether a log has the same bytes at the place of a record."""
    with closing(store.log()) as log:
        return bytes(log.read(record.begin, len(record.data))) == record.data


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
