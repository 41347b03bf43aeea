"""Records, decisions and ids that do not count as evidence.

A decision (a COMMIT, ROLLBACK or op record) with a damaged reference does not count for the record that it names, and
makes no transaction alone. An id that the index contradicts does not count at all. A record with damage does not count
where a copy of the log has the same record without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.findings import Finding
from rmqtx.readers.storage.segments import Segment
from rmqtx.verdicts.model.verdict_inputs import DoubtfulId, StoreView
from rmqtx.verdicts.model.witnesses import Witnesses


def without_doubtful(witnesses: Witnesses, views: Mapping[str, StoreView]) -> Witnesses:
    """Return the witnesses without ends that have only a damaged reference; an end with an id loses the reference.

    And without the records of a store in the ranges that a copy of its log replaces.
    """
    for root, view in views.items():
        for begin, end in view.replaced:
            witnesses = Witnesses(*(
                _without_range(getattr(witnesses, one.name), root, begin, end) for one in fields(witnesses)
            ))
        named = [end.commit_log_offset for end in view.doubtful_ends if end.transaction_ids]
        if named:
            witnesses = replace(
                witnesses, finals=_without_names(witnesses.finals, root, named, "prepared_transaction_offset"),
                offset_marks=_without_names(witnesses.offset_marks, root, named, "half_commit_log_offset"),
            )
        places = [end.commit_log_offset for end in view.doubtful_ends if not end.transaction_ids]
        if places:
            witnesses = replace(
                witnesses, finals=_without(witnesses.finals, root, places),
                offset_marks=_without(witnesses.offset_marks, root, places),
            )
    return witnesses


def _without_range(table: pa.Table, root: str, begin: int, end: int) -> pa.Table:
    places = table["commit_log_offset"]
    is_inside = pc.and_(pc.greater_equal(places, begin), pc.less(places, end))
    return table.filter(pc.invert(pc.and_(is_inside, pc.equal(table["store"], root))))


def _without(table: pa.Table, root: str, places: list[int]) -> pa.Table:
    return table.filter(pc.invert(_are_at(table, root, places)))


def _without_names(ends: pa.Table, root: str, places: list[int], name: str) -> pa.Table:
    known = pc.if_else(_are_at(ends, root, places), pa.scalar(None, pa.int64()), ends[name])
    return ends.set_column(ends.schema.get_field_index(name), ends.schema.field(name), known)


def _are_at(table: pa.Table, root: str, places: list[int]) -> pa.ChunkedArray:
    return pc.and_(
        pc.equal(table["store"], root), pc.is_in(table["commit_log_offset"], value_set=pa.array(places, pa.int64()))
    )


def doubtful_id_findings(segment: Segment, doubtful: Sequence[DoubtfulId]) -> Iterator[Finding]:
    """A finding for each record of a segment whose id the index contradicts."""
    for one in doubtful:
        yield Finding(
            one.store, "words-contradict", segment.file, one.commit_log_offset - segment.base_offset,
            commit_log_offset=one.commit_log_offset, expected="the id of this record in the index",
            actual=f"another id: {one.what}",
        )
