"""Quantiles of durations in memory that does not grow with their number: counts in buckets with declared bounds.

The bucket of a duration is given by the first bits of its number as a double: sign, exponent, and FRACTION_BITS bits of
the fraction. Durations below 2 ** (FRACTION_BITS + 1) ms have a bucket each; a wider bucket counts as its middle, which
differs from the duration by less than 1 part in 2 ** (FRACTION_BITS + 1): 0.4 %. The highest value is exact.
Counts are added, so the result does not depend on the order of rows, or on which process counted them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rmqtx.readers.model.columns import Int64s

FRACTION_BITS = 7
_SHIFT = 52 - FRACTION_BITS
#: The first bits of durations are counted from those of 1 ms; 0 ms has a bucket of its own.
_BASE = int(np.float64(1).view(np.int64) >> _SHIFT) - 1
#: More than the buckets of all 64-bit numbers, half of them for negative ones.
_BUCKETS = 1 << 15
_ZERO = _BUCKETS >> 1
_LOWEST = np.iinfo(np.int64).min


def buckets_of(durations: Int64s) -> Int64s:
    """Return the bucket of each duration; a longer duration never has a lower bucket.

    Units: milliseconds.
    """
    bits = durations.astype(np.float64).view(np.int64)
    negative = bits < 0
    if negative.any():
        bits = np.where(negative, bits & np.iinfo(np.int64).max, bits)
    bits >>= _SHIFT
    bits -= _BASE
    np.maximum(bits, 0, out=bits)
    return _ZERO + np.where(negative, -bits, bits) if negative.any() else bits + _ZERO


def middle_of(bucket: int) -> int:
    """Return the middle of the whole milliseconds that a bucket counts."""
    number = abs(bucket - _ZERO)
    if not number:
        return 0
    low, end = ((np.array([number, number + 1]) + _BASE) << _SHIFT).view(np.float64).tolist()
    first, last = int(np.ceil(low)), int(np.ceil(end)) - 1
    middle = (first + last) // 2
    return middle if bucket > _ZERO else -middle


@dataclass(slots=True)
class Histograms:
    """The distribution of durations in numbered cells.

    Shape: `_keys` are cell and bucket as one number, in order, `_counts` how many durations have it; `_highest` by
           cell.
    """

    _keys: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    _counts: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    _highest: Int64s = field(default_factory=lambda: np.empty(0, np.int64))

    def add(self, cells: Int64s, durations: Int64s) -> None:
        """Add durations, each to its cell."""
        if not len(cells):
            return
        keys, counts = _counted(cells * _BUCKETS + buckets_of(durations))
        if len(self._keys):
            merged, places = np.unique(np.concatenate([self._keys, keys]), return_inverse=True)
            weights = np.concatenate([self._counts, counts])
            keys, counts = merged, np.bincount(places, weights).astype(np.int64)
        self._keys, self._counts = keys, counts
        if len(self._highest) <= (last := int(cells.max())):
            more = np.full(2 * last + 1 - len(self._highest), _LOWEST)
            self._highest = np.concatenate([self._highest, more])
        np.maximum.at(self._highest, cells, durations)

    def highest(self, cell: int) -> int | None:
        """Return the longest duration of a cell; None if it has none."""
        found = int(self._highest[cell]) if cell < len(self._highest) else _LOWEST
        return None if found == _LOWEST else found

    def quantile(self, cell: int, hundredths: int) -> int | None:
        """Return the shortest duration that is not exceeded by this share of a cell; None if it has none."""
        first, end = np.searchsorted(self._keys, [cell * _BUCKETS, (cell + 1) * _BUCKETS]).tolist()
        if first == end:
            return None
        sums = np.cumsum(self._counts[first:end])
        rank = -(-int(sums[-1]) * hundredths // 100)
        bucket = int(self._keys[first + int(np.searchsorted(sums, rank))]) - cell * _BUCKETS
        return min(middle_of(bucket), int(self._highest[cell]))


def _counted(keys: Int64s) -> tuple[Int64s, npt.NDArray[np.int64]]:
    """Return the distinct keys in order, and how often each occurs."""
    low, high = int(keys.min()), int(keys.max())
    if high - low > 8 * len(keys):
        return np.unique(keys, return_counts=True)
    counts = np.bincount(keys - low)
    found = np.flatnonzero(counts)
    return found + low, counts[found].astype(np.int64)
