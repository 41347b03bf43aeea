"""Counts events by time in one pass."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Int64s, int64s
from rmqtx.verdicts.model.verdict_words import State
from rmqtx.verdicts.model.witnesses import are_replicas
from rmqtx_cli.report.copies import put_back
from rmqtx_cli.report.time_steps import TimeSteps

#: Kind of an event → its meaning, in the order of the drawing.
EVENTS: dict[str, str] = {
    "halves": "half messages stored: the first half copy of each transaction",
    "decisions": "transactions decided: COMMIT, or the record of a rollback",
    "checks": "half copies that the check put back",
    "discards": "discard copies written",
}


@dataclass(slots=True)
class EventCounts:
    """The events seen so far. Shape: `totals`: all events of a kind, those with an impossible time too."""

    now_ms: int
    totals: dict[str, int] = field(default_factory=lambda: dict.fromkeys(EVENTS, 0))
    steps: TimeSteps = field(init=False)

    def __post_init__(self) -> None:
        self.steps = TimeSteps(self.now_ms, len(EVENTS), np.add)

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the events of some transactions."""
        for series, (kind, times) in enumerate(zip(EVENTS, _times(batch), strict=True)):
            self.totals[kind] += len(times)
            self.steps.add(series, times, np.ones(len(times), np.int64))


def _times(batch: pa.RecordBatch) -> list[Int64s]:
    """The times of the events of each kind, in the order of EVENTS."""
    copies = pc.list_flatten(batch["half_copies"])
    is_put_back = put_back(batch) & ~are_replicas(batch["half_copies"])
    is_decided = pc.not_equal(batch["state"], State.DISCARDED)  # that time of a discarded one is the discard's
    is_first_discard = ~are_replicas(batch["discard_copies"])
    return [
        int64s(batch["half_store_time_ms"].drop_null()),
        int64s(batch["decided_time_ms"].filter(is_decided).drop_null()),
        int64s(pc.struct_field(copies, "store_time_ms"))[is_put_back],
        int64s(pc.struct_field(pc.list_flatten(batch["discard_copies"]), "store_time_ms"))[is_first_discard],
    ]
