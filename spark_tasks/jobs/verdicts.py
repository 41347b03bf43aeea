"""The task that judges the transactions of a partition: witnesses in, verdicts out, by one call of `judge`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from readers.model.tables import MARKS, TRANSACTIONS
from spark_tasks.jobs.witnesses import MARK, ROWS
from spark_tasks.session.errors import marked
from spark_tasks.session.handover import Handover
from spark_tasks.session.tasks import from_bytes
from verdicts.causes.strengths import with_causes
from verdicts.deadlines.discard_times import with_discard_times
from verdicts.evidence.witness_scan import IDENTIFIED
from verdicts.model.predicted import Prediction
from verdicts.model.store_evidence import StoreEvidence
from verdicts.model.verdict_inputs import StoreView
from verdicts.model.witnesses import Witnesses
from verdicts.transactions.judge import judge

#: The columns of WITNESSES that the task needs.
JUDGED = (
    "kind", "split", "store", "partition", "witness", "data", "row", "half_queue_offset", "commit_log_offset",
    "queue_id", "queue_offset", "store_time_ms", "repetition",
)
RowForm = Callable[[int, pa.Table], Iterator[pa.RecordBatch]]


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

    Shape: `roots` are the stores by number; `measures` are columns of MEASURES, which are added to those of
           TRANSACTIONS. The verdicts do not depend on the order of rows.
    """

    roots: tuple[str, ...]
    views: dict[str, StoreView]
    predicted: dict[str, Prediction]
    evidence: dict[str, StoreEvidence]
    form: RowForm
    measures: tuple[str, ...] = ()

    @property
    def __name__(self) -> str:  # Spark shows it
        return "judge"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the verdicts in their form, from rows with the columns JUDGED."""
        given = [batch for batch in batches if batch.num_rows]
        if given:
            with marked():
                verdicts = judge(
                    self._witnesses(pa.Table.from_batches(given)), self.views, {*TRANSACTIONS.names, *self.measures}
                )
                verdicts = with_causes(with_discard_times(verdicts, self.predicted), self.evidence)
                yield from self.form(given[0]["partition"][0].as_py(), verdicts.combine_chunks())

    def _witnesses(self, rows: pa.Table) -> Witnesses:
        whole = rows.filter(pc.equal(rows["kind"], ROWS)).select(["split", "witness", "data"]).sort_by("split")
        found: dict[str, list[pa.RecordBatch]] = {name: [] for name in IDENTIFIED}
        for name, data in zip(whole["witness"].to_pylist(), whole["data"], strict=True):
            found[name].extend(from_bytes(data.as_buffer()))
        return Witnesses.of(
            found["halves"], self._marks(rows), found["finals"], found["discards"], found["offset_marks"]
        )

    def _marks(self, rows: pa.Table) -> list[pa.RecordBatch]:
        """Return the marks in log order; a mark that was joined to two half copies of this task counts once."""
        marks = rows.filter(pc.equal(rows["kind"], MARK))
        split, row = (np.asarray(marks[name]) for name in ("split", "row"))
        order = np.lexsort((row, split))
        split, row = split[order], row[order]
        is_first = np.ones(len(order), np.bool_)
        is_first[1:] = (np.diff(split) != 0) | (np.diff(row) != 0)
        marks = marks.take(pa.array(order[is_first]))
        roots = pa.array(self.roots, pa.string()).take(marks["store"].combine_chunks())
        named = pa.nulls(marks.num_rows, pa.int64())  # marks with a commit-log offset come in ROWS
        own = {"store": roots, "half_commit_log_offset": named}
        columns = [own[name] if name in own else marks[name] for name in MARKS.names]
        return list(pa.Table.from_arrays(columns, schema=MARKS).to_batches())
