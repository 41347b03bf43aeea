"""Decisions and ids that do not count as evidence.

A decision (a COMMIT, ROLLBACK or op record) with a damaged reference does not count for the record that it names, and
makes no transaction alone. An id that the index contradicts does not count at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.findings import Finding
from rmqtx.readers.storage.segments import Segment
from rmqtx.verdicts.model.verdict_inputs import DoubtfulId, StoreView
from rmqtx.verdicts.model.witnesses import Witnesses


def without_doubtful(witnesses: Witnesses, views: Mapping[str, StoreView]) -> Witnesses:
    """Return the witnesses without ends that have only a damaged reference; an end with an id loses the reference."""
    for root, view in views.items():
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
