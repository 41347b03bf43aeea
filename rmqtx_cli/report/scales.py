"""Scales: from a value to its place in a drawing, in thousandths of the width."""

from __future__ import annotations

import math
from dataclasses import dataclass

WIDTH = 1_000.0


@dataclass(frozen=True, slots=True)
class LinearScale:
    """Equal distances for equal differences; values outside are drawn at the ends."""

    low: float
    high: float

    def at(self, value: float) -> float:
        """Return the place of a value."""
        span = self.high - self.low
        return WIDTH / 2 if span <= 0 else WIDTH * min(1.0, max(0.0, (value - self.low) / span))

    def values(self, count: int) -> list[float]:
        """Return values at equal distances, the first at the begin and the last at the end."""
        return [self.low + (self.high - self.low) * number / (count - 1) for number in range(count)]


@dataclass(frozen=True, slots=True)
class LogScale:
    """Equal distances for equal ratios, from `low` > 0; values outside are drawn at the ends."""

    low: float
    high: float

    def at(self, value: float) -> float:
        """Return the place of a value."""
        return LinearScale(math.log(self.low), math.log(max(self.high, self.low))).at(math.log(max(value, self.low)))

    def values(self, count: int) -> list[float]:
        """Return values at equal distances, the first at the begin and the last at the end."""
        return [self.low * (max(self.high, self.low) / self.low) ** (number / (count - 1)) for number in range(count)]
