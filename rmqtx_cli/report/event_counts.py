"""Counts events by time in one pass; the range of times is not known before, so the steps become longer as it grows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from readers.model.columns import Bools, Int64s, int64s

#: Kind of an event → its meaning, in the order of the drawing.
EVENTS: dict[str, str] = {
    "halves": "half messages stored: the first half copy of each transaction",
    "decisions": "transactions decided: COMMIT, or the record of a rollback",
    "checks": "half copies that the check put back",
    "discards": "discard copies written",
}
#: Lengths of a step; each is a multiple of the one before.
STEPS_MS = (
    1_000, 5_000, 10_000, 30_000, 60_000, 300_000, 600_000, 1_800_000, 3_600_000, 21_600_000, 86_400_000, 604_800_000,
    6_048_000_000, 60_480_000_000,
)  # fmt: skip
STEPS_MAX = 96
#: RocketMQ did not exist before (2010-01-01).
_FIRST_MS = 1_262_304_000_000
_DAY_MS = 86_400_000


@dataclass(slots=True)
class EventCounts:
    """The events seen so far, by kind and step of time.

    Shape: `totals`: all events of a kind. `impossible_count`: events with a time before RocketMQ existed, or more than
           a day after `now_ms`; they are in `totals` and in no step.
    """

    now_ms: int
    totals: dict[str, int] = field(default_factory=lambda: dict.fromkeys(EVENTS, 0))
    impossible_count: int = 0
    _level: int = 0
    _counts: dict[int, Int64s] = field(default_factory=dict)

    @property
    def step_ms(self) -> int:
        """The length of a step."""
        return STEPS_MS[self._level]

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the events of some transactions."""
        for number, times in enumerate(_times(batch)):
            self.totals[list(EVENTS)[number]] += len(times)
            usable = times[(times >= _FIRST_MS) & (times <= self.now_ms + _DAY_MS)]
            self.impossible_count += len(times) - len(usable)
            steps, counts = np.unique(usable // self.step_ms, return_counts=True)
            for step, count in zip(steps.tolist(), counts.tolist(), strict=True):
                self._counts.setdefault(step, np.zeros(len(EVENTS), np.int64))[number] += count
            self._lengthen()

    def _lengthen(self) -> None:
        """Use the shortest steps of which STEPS_MAX reach from the first event to the last."""
        while self._counts and max(self._counts) - min(self._counts) >= STEPS_MAX and self._level + 1 < len(STEPS_MS):
            ratio = STEPS_MS[self._level + 1] // self.step_ms
            merged: dict[int, Int64s] = {}
            for step, counts in self._counts.items():
                merged.setdefault(step // ratio, np.zeros(len(EVENTS), np.int64))[:] += counts
            self._level, self._counts = self._level + 1, merged

    def steps(self, kind: str) -> list[tuple[int, int]]:
        """Return the begin of each step that has events of a kind, and their number.

        Order: time.
        """
        number = list(EVENTS).index(kind)
        found = ((step * self.step_ms, int(counts[number])) for step, counts in sorted(self._counts.items()))
        return [(begin_ms, count) for begin_ms, count in found if count]

    @property
    def range_ms(self) -> tuple[int, int] | None:
        """The begin of the first step and the end of the last; None without events."""
        if not self._counts:
            return None
        return min(self._counts) * self.step_ms, (max(self._counts) + 1) * self.step_ms


def _times(batch: pa.RecordBatch) -> list[Int64s]:
    """The times of the events of each kind, in the order of EVENTS."""
    copies = batch["half_copies"]
    owners = int64s(pc.list_parent_indices(copies))
    is_first: Bools = np.ones(len(owners), np.bool_)
    is_first[1:] = owners[1:] != owners[:-1]
    flat = pc.list_flatten(copies)
    is_put_back = ~is_first & (int64s(pc.struct_field(flat, "checks_count"), 0) > 0)
    return [
        int64s(batch["half_store_time_ms"].drop_null()),
        int64s(batch["decided_time_ms"].drop_null()),
        int64s(pc.struct_field(flat, "store_time_ms"))[is_put_back],
        int64s(pc.struct_field(pc.list_flatten(batch["discard_copies"]), "store_time_ms")),
    ]
