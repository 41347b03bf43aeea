"""Records, decisions and ids that do not count as evidence.

A decision (a COMMIT, ROLLBACK or op record) with a damaged reference does not count for the record that it names, and
makes no transaction alone. An id that the index contradicts does not count at all. A record with damage does not count
where a copy of the log has the same record without it.

A misdirected decision names a record outside the half topic, so its op numbers belong to other half messages:
END_TRANSACTION does not test the record's topic (to 5.3.3), and a decision on a discard copy or a final writes an op
with *that* record's queue offset, which may hide a half message that was never decided
(docs/formats/end_transaction.md#repeats; seen on 4.9.7 and 5.3.3). A scan finds every decision of this kind
(`end_records.py`); if records are looked up, in files or at a broker, the op marks show which ones may be affected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.log.properties import REAL_TOPIC, UNIQ_KEY
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.transaction_records import is_delayed_half, is_final, named_offsets
from rmqtx.readers.model.columns import Bools, int64s
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.store import DISCARD_TOPIC
from rmqtx.verdicts.model.verdict_inputs import DoubtfulId, MisdirectedDecision, StoreView
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


class RecordLookup(Protocol):
    """A source of single records."""

    def numbered(self, numbers: Sequence[int]) -> Iterator[Block]:
        """Return records by queue offset in queue 0 of any topic except those of halves and ops, one per block."""

    def namesakes(self, named: Sequence[Block]) -> Iterator[Block]:
        """Return the records that share topic and id (`names_of`) with a named record and follow it in the log.

        Shape: one record per block; other records may be among them.
        """


def misdirected_decisions(store: str, kept: Witnesses, lookup: RecordLookup) -> list[MisdirectedDecision]:
    """Return the decisions on other records that may explain an op mark on a half copy of some transactions.

    Order: the decision's place in the log.
    """
    numbers = unexplained_numbers(kept)
    if not numbers:
        return []
    named = {
        int(block.commit_log_offsets[0]): block for block in lookup.numbered(numbers) if can_be_decided(block)[0]
    }
    found = {
        misdirected_decision(store, named[place], final)
        for final in lookup.namesakes(list(named.values()))
        if (place := int(named_offsets(final)[0])) in named
    }
    # Records without UNIQ_KEY are in no index under an id.
    known = kept.finals.select(["prepared_transaction_offset", "commit_log_offset", "store_time_ms"]).to_pylist()
    found |= {
        _decision(store, named[place], final["commit_log_offset"], final["store_time_ms"])
        for final in known if (place := final["prepared_transaction_offset"]) in named
    }
    return sorted(found, key=lambda decision: decision.final_offset)


def unexplained_numbers(kept: Witnesses) -> list[int]:
    """Return the half queue offsets that an op names, except those of half copies that have one op and a final.

    The decision that wrote the final also wrote this op: `judged_copies.py` treats no op mark on these copies as
    misdirected.
    """
    own = pa.array(int64s(kept.finals["prepared_transaction_offset"]))
    explained = kept.halves.filter(pc.is_in(kept.halves["commit_log_offset"], value_set=own))
    marks = Counter(kept.marks["half_queue_offset"].to_pylist())
    return sorted(marks.keys() - {number for number in explained["queue_offset"].to_pylist() if marks[number] == 1})


def can_be_decided(block: Block) -> Bools:
    """Which records outside the half topic a broker accepts as a half: they are copies of a half, with its values."""
    return block.topic_is(DISCARD_TOPIC) | is_final(block) | is_delayed_half(block)


def names_of(named: Block) -> list[tuple[str, str]]:
    """Return the topics and the id under which an index has a decided record and its decision."""
    name = named.properties.text(UNIQ_KEY)[0].as_py()
    topics = {named.properties.text(REAL_TOPIC)[0].as_py(), named.topic_texts()[0].as_py()} - {None}
    return [] if name is None else [(topic, name) for topic in sorted(topics)]


def misdirected_decision(store: str, named: Block, final: Block) -> MisdirectedDecision:
    """Return the decision that a final makes on a record; both blocks contain one record."""
    return _decision(store, named, int(final.commit_log_offsets[0]), int(final.header("store_time_ms")[0]))


def _decision(store: str, named: Block, final_offset: int, final_time_ms: int) -> MisdirectedDecision:
    return MisdirectedDecision(
        store, int(named.header("queue_id")[0]), int(named.header("queue_offset")[0]), final_offset, final_time_ms
    )
