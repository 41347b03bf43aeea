"""Numbers by step of time, kept in one pass; the range of times is not known before, so steps lengthen as it grows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rmqtx.readers.model.columns import Int64s

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
class TimeSteps:
    """Series of numbers ≥ 0 by step of time. Shape: `combine` makes one number of those of a step: add, or maximum.

    `impossible_count`: numbers with a time before RocketMQ existed, or more than a day after `now_ms`: in no step.
    """

    now_ms: int
    series_count: int
    combine: np.ufunc
    impossible_count: int = 0
    _level: int = 0
    _steps: dict[int, Int64s] = field(default_factory=dict)

    @property
    def step_ms(self) -> int:
        """The length of a step."""
        return STEPS_MS[self._level]

    def add(self, series: int, times: Int64s, values: Int64s) -> None:
        """Add the numbers of some times to a series."""
        is_usable = (times >= _FIRST_MS) & (times <= self.now_ms + _DAY_MS)
        self.impossible_count += len(times) - int(is_usable.sum())
        steps, places = np.unique(times[is_usable] // self.step_ms, return_inverse=True)
        found = np.zeros(len(steps), np.int64)
        self.combine.at(found, places, values[is_usable])
        for step, value in zip(steps.tolist(), found.tolist(), strict=True):
            row = self._steps.setdefault(step, np.zeros(self.series_count, np.int64))
            row[series] = self.combine(row[series], value)
        self._lengthen()

    def _lengthen(self) -> None:
        """Use the shortest steps of which STEPS_MAX reach from the first time to the last."""
        while self._steps and max(self._steps) - min(self._steps) >= STEPS_MAX and self._level + 1 < len(STEPS_MS):
            ratio = STEPS_MS[self._level + 1] // self.step_ms
            merged: dict[int, Int64s] = {}
            for step, values in self._steps.items():
                row = merged.setdefault(step // ratio, np.zeros(self.series_count, np.int64))
                self.combine(row, values, out=row)
            self._level, self._steps = self._level + 1, merged

    def of(self, series: int) -> list[tuple[int, int]]:
        """Return the begin of each step in which a series is not 0, and its number.

        Order: time.
        """
        found = ((step * self.step_ms, int(values[series])) for step, values in sorted(self._steps.items()))
        return [(begin_ms, value) for begin_ms, value in found if value]

    @property
    def range_ms(self) -> tuple[int, int] | None:
        """The begin of the first step and the end of the last; None without numbers."""
        if not self._steps:
            return None
        return min(self._steps) * self.step_ms, (max(self._steps) + 1) * self.step_ms
