"""The scan of an audit on Spark: the results of one split, as Arrow bytes by the tasks that need them together.

| kind      | data                                                                            | key                |
|-----------|---------------------------------------------------------------------------------|--------------------|
| FACTS     | the other results of a split, pickled                                           | none               |
| ROWS      | the halves, finals, discards, offset marks, or joined marks of one partition    | partition          |
| HALVES    | half queue offset and partition of half copies: the join key of marks           | half queue offset  |
| MARKS     | the half queue offsets of op messages; the join to half copies gives partitions | half queue offset  |
| PLACES    | identity and commit-log offset of half copies: the join key of decisions        | commit-log offset  |
| UNMATCHED | decisions without a matching half copy in their own split                       | commit-log offset  |

A key of offsets is the number of a range of offsets, so one value has thousands of rows: a row for each transaction
would cost the JVM more than all the rest of an audit.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from rmqtx.readers.log.splits import SplitPlan
from rmqtx.readers.model.columns import Int64s, nulls
from rmqtx.readers.model.identities import partition_of
from rmqtx.readers.model.tables import MARKS as MARK_ROWS
from rmqtx.spark_tasks.session.progress import ScanCounts
from rmqtx.spark_tasks.session.tasks import Shared, to_bytes, use_accelerator
from rmqtx.verdicts.evidence.witness_scan import IDENTIFIED, SplitFacts, SplitWitnesses, column, scan_witnesses
from rmqtx.verdicts.model.witnesses import op_numbers

FACTS, ROWS, HALVES, MARKS, PLACES, UNMATCHED = range(6)
#: The name of joined marks among the witnesses in ROWS.
JOINED_MARKS = "marks"

WITNESSES = pa.schema(
    [
        ("kind", pa.int8()),
        ("split", pa.int32()),
        ("store", pa.int32()),
        ("key", pa.int32()),
        ("witness", pa.string()),
        ("data", pa.binary()),
    ]
)
COLUMNS = "kind tinyint, split int, store int, key int, witness string, data binary"

#: The data of MARKS, and of JOINED_MARKS: `row` is the number of a mark among the marks of its split.
MARK_DATA = pa.schema(
    [
        ("split", pa.int32()),
        ("row", pa.int32()),
        *(field for field in MARK_ROWS if field.name not in ("store", "half_commit_log_offset")),
    ]
)

#: Offsets with the same number after this shift have the same key: some thousand rows, in 8 MiB of log. A task has the
#: keys that fall to it: with a tenth of the keys some tasks would have five times the rows of others.
_QUEUE_OFFSET_BITS = 12
_LOG_OFFSET_BITS = 23


@dataclasses.dataclass(frozen=True)
class ScanForWitnesses:
    """The task that returns the witnesses of one split of a plan. `past_ms`: of each store, as in its facts."""

    plan: Shared[SplitPlan]
    partitions_count: int
    past_ms: tuple[int | None, ...]
    is_accelerated: bool
    counts: ScanCounts | None = None

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield rows of WITNESSES for one split."""
        use_accelerator(self.is_accelerated)
        plan = self.plan.value
        split = plan[number]
        store_number = plan.stores.index(split.store)
        found = scan_witnesses(split, self.past_ms[store_number])
        place = {"split": number, "store": store_number}
        for name in IDENTIFIED:
            rows = getattr(found, name)
            if rows:
                numbers = partition_of(found.hashes[name], self.partitions_count)
                yield from by_partition(name, rows, numbers, place)
        if found.halves:
            hashes = found.hashes["halves"]
            yield from half_rows(found.halves, partition_of(hashes, self.partitions_count), place)
            yield from _places(found, place)
        if found.marks:
            yield from _marks(found.marks, place)
        if len(found.facts.unmatched_offsets):
            yield from _unmatched(found.facts, place)
        if self.counts is not None:
            self.counts.add(found.facts.decoded_bytes, found.facts.spans, found.facts.records_count)
        yield _batch(1, FACTS, place, data=pa.array([_pickled(found.facts)], pa.binary()))


def _batch(count: int, kind: int, place: dict[str, int], **columns: pa.Array) -> pa.RecordBatch:
    columns["kind"] = pa.repeat(pa.scalar(kind, pa.int8()), count)
    for name, value in place.items():
        columns[name] = pa.repeat(pa.scalar(value, pa.int32()), count)
    arrays = [
        columns[field.name].cast(field.type) if field.name in columns else nulls(count, field.type)
        for field in WITNESSES
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=WITNESSES)


def by_partition(
    name: str, batches: list[pa.RecordBatch], numbers: Int64s, place: dict[str, int]
) -> Iterator[pa.RecordBatch]:
    """Return the ROWS rows of one kind of witness of one split; `numbers`: the partition of each."""
    return _by_key(ROWS, pa.Table.from_batches(batches), numbers, place, name)


def _by_key(
    kind: int, table: pa.Table, keys: Int64s, place: dict[str, int], witness: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Return a row for each key, with the rows of a table that have it."""
    if not len(keys):
        return
    order = np.argsort(keys, kind="stable")
    table = table.take(pa.array(order)).combine_chunks()
    numbers, firsts = np.unique(keys[order], return_index=True)
    ends = [*firsts[1:].tolist(), len(order)]
    data = [
        to_bytes(table.slice(first, end - first).to_batches())
        for first, end in zip(firsts.tolist(), ends, strict=True)
    ]
    yield _batch(
        len(numbers), kind, place, key=pa.array(numbers), data=pa.array(data, pa.binary()),
        witness=pa.repeat(pa.scalar(witness, pa.string()), len(numbers)),
    )


def half_rows(
    halves: list[pa.RecordBatch], partitions: Int64s, place: dict[str, int]
) -> Iterator[pa.RecordBatch]:
    """Return the HALVES rows of half copies that op messages can list."""
    offsets = pa.concat_arrays([op_numbers(rows) for rows in halves])
    is_listed = np.asarray(offsets.is_valid())
    table = pa.table({"half_queue_offset": offsets.drop_null(), "partition": partitions[is_listed].astype(np.int32)})
    return _by_key(HALVES, table, _range_number(np.asarray(table["half_queue_offset"]), _QUEUE_OFFSET_BITS), place)


def _places(found: SplitWitnesses, place: dict[str, int]) -> Iterator[pa.RecordBatch]:
    offsets = column(found.halves, "commit_log_offset")
    table = pa.table({"identity": found.hashes["halves"].view(np.int64), "named_offset": offsets})
    return _by_key(PLACES, table, _range_number(offsets, _LOG_OFFSET_BITS), place)


def _marks(batches: list[pa.RecordBatch], place: dict[str, int]) -> Iterator[pa.RecordBatch]:
    marks = pa.Table.from_batches(batches).combine_chunks()
    own = {"split": np.full(len(marks), place["split"], np.int32), "row": np.arange(len(marks), dtype=np.int32)}
    columns = [own[name] if name in own else marks[name] for name in MARK_DATA.names]
    table = pa.Table.from_arrays(columns, schema=MARK_DATA)
    return _by_key(MARKS, table, _range_number(np.asarray(marks["half_queue_offset"]), _QUEUE_OFFSET_BITS), place)


def _unmatched(facts: SplitFacts, place: dict[str, int]) -> Iterator[pa.RecordBatch]:
    """Return unmatched decisions with the identity of their record, or without if no half copy can match them."""
    table = pa.table(
        {
            "identity": facts.matching_identities,
            "named_offset": facts.unmatched_named_offsets,
            "commit_log_offset": facts.unmatched_offsets,
        }
    )
    return _by_key(UNMATCHED, table, _range_number(facts.unmatched_named_offsets, _LOG_OFFSET_BITS), place)


def _range_number(offsets: Int64s, bits: int) -> Int64s:
    """Return the number of the range that each offset is in; offsets of damaged records can be any number."""
    return (offsets >> bits) & 0x7FFFFFFF


_CARRIED = [
    field.name for field in dataclasses.fields(SplitFacts) if not field.name.startswith(("split", "unmatched_"))
]


def _pickled(facts: SplitFacts) -> bytes:
    """Return the facts pickled: without the split, which its number restores, and without rows of UNMATCHED."""
    carried = {name: getattr(facts, name) for name in _CARRIED}
    return pickle.dumps({**carried, "unmatched_count": len(facts.unmatched_offsets)})


def restored_facts(plan: SplitPlan, number: int, data: Any) -> tuple[SplitFacts, int]:
    """Return the facts of a split, and its number of unmatched decisions."""
    values = pickle.loads(data)
    unmatched_count = values.pop("unmatched_count")
    return SplitFacts(plan[number], **values), unmatched_count
