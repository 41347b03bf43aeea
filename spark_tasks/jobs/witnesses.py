"""The scan of an audit on Spark: the results of one split, as rows that Spark joins and rows that it only moves.

| kind      | one row is                                                                                    |
|-----------|-----------------------------------------------------------------------------------------------|
| FACTS     | the other results of a split, pickled                                                         |
| ROWS      | the halves, finals, discards or offset marks of one split and partition, as Arrow's bytes     |
| HALF      | the place of a half copy and the partition of its transaction: the join key for others        |
| MARK      | one half queue offset of one op message; the join to a half copy gives its partition          |
| UNMATCHED | a decision without a matching half copy in its own split                                      |
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from readers.log.kernels import use_accelerator
from readers.log.splits import SplitPlan
from readers.model.columns import Int64s, nulls
from readers.model.identities import UInt64s, partition_of
from spark_tasks.session.tasks import to_bytes
from verdicts.evidence.belonging import op_numbers
from verdicts.evidence.witness_scan import (
    IDENTIFIED,
    SplitFacts,
    SplitWitnesses,
    column,
    scan_witnesses,
)

FACTS, ROWS, HALF, MARK, UNMATCHED = range(5)

#: `row` is the number of a mark among the marks of its split. Offsets as in readers/model/tables.py.
WITNESSES = pa.schema(
    [
        ("kind", pa.int8()),
        ("split", pa.int32()),
        ("store", pa.int32()),
        ("partition", pa.int32()),
        ("witness", pa.string()),
        ("data", pa.binary()),
        ("row", pa.int32()),
        ("half_queue_offset", pa.int64()),
        ("commit_log_offset", pa.int64()),
        ("identity", pa.int64()),
        ("named_offset", pa.int64()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("store_time_ms", pa.int64()),
        ("repetition", pa.int32()),
    ]
)
COLUMNS = (
    "kind tinyint, split int, store int, partition int, witness string, data binary, row int, half_queue_offset long, "
    "commit_log_offset long, identity long, named_offset long, queue_id int, queue_offset long, store_time_ms long, "
    "repetition int"
)


@dataclasses.dataclass(frozen=True)
class ScanForWitnesses:
    """The task that returns the witnesses of one split of a plan."""

    plan: SplitPlan
    partitions_count: int
    at_ms: int | None
    is_accelerated: bool

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield rows of WITNESSES for one split."""
        use_accelerator(self.is_accelerated)
        split = self.plan[number]
        found = scan_witnesses(split, self.at_ms)
        place = {"split": number, "store": self.plan.stores.index(split.store)}
        for name in IDENTIFIED:
            rows = getattr(found, name)
            if rows:
                numbers = partition_of(found.hashes[name], self.partitions_count)
                yield from by_partition(name, rows, numbers, place)
        if found.halves:
            yield _halves(found, self.partitions_count, place)
        if found.marks:
            yield _marks(found.marks, place)
        if len(found.facts.unmatched_offsets):
            yield _unmatched(found, place)
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
    table = pa.Table.from_batches(batches)
    order = np.argsort(numbers, kind="stable")
    table = table.take(pa.array(order)).combine_chunks()
    partitions, firsts = np.unique(numbers[order], return_index=True)
    ends = [*firsts[1:].tolist(), len(order)]
    data = [
        to_bytes(table.slice(first, end - first).to_batches())
        for first, end in zip(firsts.tolist(), ends, strict=True)
    ]
    yield _batch(
        len(partitions), ROWS, place, partition=pa.array(partitions), data=pa.array(data, pa.binary()),
        witness=pa.repeat(pa.scalar(name), len(partitions)),
    )


def _halves(found: SplitWitnesses, partitions_count: int, place: dict[str, int]) -> pa.RecordBatch:
    hashes = found.hashes["halves"]
    return half_rows(found.halves, hashes, partition_of(hashes, partitions_count), place)


def half_rows(
    halves: list[pa.RecordBatch], hashes: UInt64s, partitions: Int64s, place: dict[str, int]
) -> pa.RecordBatch:
    """Return the HALF rows of half copies; the half queue offset is null for copies that op messages do not list."""
    return _batch(
        len(hashes), HALF, place, partition=pa.array(partitions), identity=pa.array(hashes.view(np.int64)),
        half_queue_offset=pa.concat_arrays([op_numbers(rows) for rows in halves]),
        commit_log_offset=pa.array(column(halves, "commit_log_offset")),
    )


def _marks(batches: list[pa.RecordBatch], place: dict[str, int]) -> pa.RecordBatch:
    marks = pa.Table.from_batches(batches).combine_chunks()
    names = ("half_queue_offset", "commit_log_offset", "queue_id", "queue_offset", "store_time_ms", "repetition")
    columns = {name: pa.concat_arrays(marks[name].chunks) for name in names}
    return _batch(len(marks), MARK, place, row=pa.array(np.arange(len(marks))), **columns)


def _unmatched(found: SplitWitnesses, place: dict[str, int]) -> pa.RecordBatch:
    """Return unmatched decisions with the identity of their record, or without if no half copy can match them."""
    facts = found.facts
    return _batch(
        len(facts.unmatched_offsets), UNMATCHED, place, commit_log_offset=pa.array(facts.unmatched_offsets),
        identity=facts.matching_identities, named_offset=pa.array(facts.unmatched_named_offsets),
    )


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
