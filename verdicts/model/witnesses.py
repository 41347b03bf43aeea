"""The records of some transactions, on which verdicts are based."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import pyarrow as pa

from rmqtx.readers.log.offset_marks import OFFSET_MARKS
from rmqtx.readers.log.transaction_records import JUDGED_FINALS, JUDGED_HALVES
from rmqtx.readers.model.tables import MARKS


@dataclass(frozen=True, slots=True)
class Witnesses:
    """The witnesses of some transactions, always complete transactions.

    Shape: JUDGED_HALVES, MARKS, JUDGED_FINALS, JUDGED_HALVES for discard copies, and OFFSET_MARKS, from one store or
           several.
    """

    halves: pa.Table
    marks: pa.Table
    finals: pa.Table
    discards: pa.Table
    offset_marks: pa.Table = field(default_factory=OFFSET_MARKS.empty_table)

    @staticmethod
    def of(
        halves: list[pa.RecordBatch],
        marks: list[pa.RecordBatch],
        finals: list[pa.RecordBatch],
        discards: list[pa.RecordBatch],
        offset_marks: Sequence[pa.RecordBatch] = (),
    ) -> Witnesses:
        """Make witnesses from batches."""
        return Witnesses(
            pa.Table.from_batches(halves, JUDGED_HALVES),
            pa.Table.from_batches(marks, MARKS),
            pa.Table.from_batches(finals, JUDGED_FINALS),
            pa.Table.from_batches(discards, JUDGED_HALVES),
            pa.Table.from_batches(list(offset_marks), OFFSET_MARKS),
        )

    @staticmethod
    def joined(parts: Sequence[Witnesses]) -> Witnesses:
        """Make one of the witnesses of several stores."""
        return Witnesses(*(pa.concat_tables([getattr(part, one.name) for part in parts]) for one in fields(Witnesses)))
