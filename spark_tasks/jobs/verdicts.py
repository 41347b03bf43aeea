"""The task that judges the transactions of a partition: witnesses in, verdicts out."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa

from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.tables import MARKS
from rmqtx.spark_tasks.jobs.witnesses import JOINED_MARKS, MARK_DATA
from rmqtx.spark_tasks.session.handover import Handover
from rmqtx.spark_tasks.session.tasks import Shared, from_bytes, working
from rmqtx.verdicts.causes.judging import Judging
from rmqtx.verdicts.evidence.witness_scan import IDENTIFIED
from rmqtx.verdicts.model.witnesses import Witnesses

#: The columns of ROWS that the task needs; `key` is the partition.
JUDGED = ("split", "store", "key", "witness", "data")
#: The last column of the verdicts of a task: in the first row what it could not read of traces, pickled; else null.
UNREAD = pa.field("unread_traces", pa.binary())
RowForm = Callable[[int, pa.Table], Iterator[pa.RecordBatch]]
_Rows = TypeVar("_Rows", pa.Table, pa.RecordBatch)


@dataclass(frozen=True, slots=True)
class HandedOver:
    """Hands verdicts over to the driver."""

    way: Handover

    def __call__(self, partition: int, verdicts: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield rows of HANDED."""
        return self.way.give(partition, verdicts.to_batches())


def as_rows(_partition: int, verdicts: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield verdicts as Spark's rows."""
    yield from verdicts.to_batches()


@dataclass(frozen=True)
class Judge:
    """Judges the witnesses of one partition, or of several partitions with common transactions.

    Shape: `judging` has the stores in the order of their numbers; the verdicts have the column UNREAD too, and do not
           depend on the order of rows.
    """

    judging: Shared[Judging]
    form: RowForm

    @property
    def __name__(self) -> str:  # Spark shows it
        return "judge"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the verdicts in their form, from rows with the columns JUDGED."""
        given = [batch for batch in batches if batch.num_rows]
        if given:
            with working():
                judging = self.judging.value
                witnesses = _witnesses(pa.Table.from_batches(given), tuple(judging.views))
                judging.forget_unread_traces()
                verdicts = judging.with_causes(judging.judged(witnesses))
                verdicts = with_unread(verdicts, judging.unread_traces)
                yield from self.form(given[0]["key"][0].as_py(), verdicts.combine_chunks())


def with_unread(verdicts: pa.Table, findings: list[Finding]) -> pa.Table:
    """Return verdicts with the column UNREAD."""
    unread = pa.nulls(verdicts.num_rows, UNREAD.type)
    if findings and verdicts.num_rows:
        first = pa.array([pickle.dumps(findings)], UNREAD.type)
        unread = pa.concat_arrays([first, unread.slice(1)])
    return verdicts.append_column(UNREAD, unread)


def without_unread(verdicts: _Rows) -> tuple[_Rows, list[Finding]]:
    """Return verdicts without the column UNREAD, and the findings in it."""
    if UNREAD.name not in verdicts.schema.names:
        return verdicts, []
    findings = [one for data in verdicts[UNREAD.name].drop_null() for one in pickle.loads(data.as_py())]
    return verdicts.drop_columns([UNREAD.name]), findings


def _witnesses(rows: pa.Table, roots: tuple[str, ...]) -> Witnesses:
    rows = rows.sort_by("split")
    found: dict[str, list[pa.RecordBatch]] = {name: [] for name in IDENTIFIED}
    marks: list[pa.Table] = []
    for name, store, data in zip(
        rows["witness"].to_pylist(), rows["store"].to_pylist(), rows["data"], strict=True
    ):
        batches = from_bytes(data.as_buffer())
        if name == JOINED_MARKS:
            table = pa.Table.from_batches(batches, MARK_DATA)
            marks.append(table.append_column("store", pa.repeat(pa.scalar(roots[store]), len(table))))
        else:
            found[name].extend(batches)
    return Witnesses.of(
        found["halves"], _in_log_order(marks), found["finals"], found["discards"], found["offset_marks"]
    )


def _in_log_order(joined: list[pa.Table]) -> list[pa.RecordBatch]:
    """Return the marks in log order; a mark that was joined to two half copies of this task counts once."""
    if not joined:
        return []
    marks = pa.concat_tables(joined).combine_chunks()
    split, row = (np.asarray(marks[name]) for name in ("split", "row"))
    order = np.lexsort((row, split))
    split, row = split[order], row[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (np.diff(split) != 0) | (np.diff(row) != 0)
    marks = marks.take(pa.array(order[is_first]))
    named = pa.nulls(len(marks), pa.int64())  # marks with a commit-log offset are other witnesses
    columns = [named if name == "half_commit_log_offset" else marks[name] for name in MARKS.names]
    return list(pa.Table.from_arrays(columns, schema=MARKS).to_batches())
