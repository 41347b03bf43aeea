"""The part of the summary of an audit that shows times between events, and checks, per producer group and topic.

Quantiles come from counts in buckets with declared bounds, in memory that does not grow with the number of durations.
The bucket of a duration is given by the first bits of its number as a double: sign, exponent, and FRACTION_BITS bits of
the fraction. Durations below 2 ** (FRACTION_BITS + 1) ms have a bucket each; a wider bucket counts as its middle, which
differs from the duration by less than 1 part in 2 ** (FRACTION_BITS + 1): 0.4 %. The highest value is exact.
Counts are added, so the result does not depend on the order of rows, or on which process counted them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqtx.readers.model.columns import Int64s, int64s, no_numbers
from rmqtx.readers.model.tables import column
from rmqtx.verdicts.transactions.measures import MEASURES
from rmqtx_cli.output.views import Column, Row, plain
from rmqtx_cli.words.times import duration_text

FRACTION_BITS = 7
_SHIFT = 52 - FRACTION_BITS
#: The first bits of durations are counted from those of 1 ms; 0 ms has a bucket of its own.
_BASE = int(np.float64(1).view(np.int64) >> _SHIFT) - 1
#: More than the buckets of all 64-bit numbers, half of them for negative ones.
_BUCKETS = 1 << 15
_ZERO = _BUCKETS >> 1
_LOWEST = np.iinfo(np.int64).min
_ERROR = "exact below 256 ms, else to 0.4 %"
#: Name of a quantile → its share in hundredths, and its sentence.
_QUANTILES = {
    "median": (50, f"half of them were not longer; {_ERROR}"),
    "95th": (95, f"95 % of them were not longer; {_ERROR}"),
    "worst": (100, "the longest"),
}
#: The durations of MEASURES: what each lasts from and to.
_DURATIONS = {
    "born_to_half_ms": "time from the producer's clock to the store time of the first half copy, negative if the "
    "producer's clock is ahead",
    "half_to_decision_ms": "time from the first half copy to the first COMMIT record; of a rollback to its ROLLBACK "
    "record (before 4.3), or to its op message, its only record, which 5.1.0 and later write seconds later",
    "decision_to_op_ms": "time from the COMMIT record to its op message, of transactions with exactly one of each; "
    "none before 4.3",
    "born_to_decision_ms": "time from the producer's clock to the first COMMIT record, or of a rollback to the record "
    "named at half_to_decision_median_ms",
}
_COUNTS = tuple(name for name in MEASURES.names if name not in _DURATIONS)


def buckets_of(durations: Int64s) -> Int64s:
    """Return the bucket of each duration; a longer duration never has a lower bucket. Units: milliseconds."""
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

    _keys: Int64s = field(default_factory=no_numbers)
    _counts: Int64s = field(default_factory=no_numbers)
    _highest: Int64s = field(default_factory=no_numbers)

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


def _name(duration: str, quantile: str) -> str:
    return f"{duration.removesuffix('_ms')}_{quantile}_ms"


#: Columns of SUMMARY after its counts.
LATENCY_FIELDS = (
    column(
        "checked_commits_share", pa.float64(),
        "share of the COMMIT records whose half copy carries a number of checks of 1 or more: a check brought these "
        "decisions; null if no half copy carries a number (before 4.3, and in RocksDB)",
    ),
    column("half_copies_per_transaction", pa.float64(), "half copies divided by transactions"),
    column(
        "immune_checks_count", pa.int64(),
        "half copies that the check put back while CHECK_IMMUNITY_TIME_IN_SECONDS was not over: it counted a check and "
        "did not ask the producer",
    ),
    *(
        column(_name(duration, quantile), pa.int64(), f"{meaning}: {sentence}; null if unknown")
        for duration, meaning in _DURATIONS.items() for quantile, (_, sentence) in _QUANTILES.items()
    ),
)


def _three(heading: str, duration: str, rank: int) -> Column:
    """Return a printed column with the median, the 95th and the worst of a duration."""
    names = tuple(_name(duration, quantile) for quantile in _QUANTILES)

    def text(row: Row) -> str:
        return "" if row[names[0]] is None else "/".join(duration_text(row[name]) for name in names)

    return Column(f"{heading} 50/95/100%", names, text, rank, is_number=True)


def _number(heading: str, name: str, form: str, rank: int) -> Column:
    return Column(
        heading, (name,), lambda row: "" if row[name] is None else format(row[name], form), rank, is_number=True,
        is_plain=True,
    )


LATENCY_COLUMNS = (
    _three("decided", "half_to_decision_ms", 6), _number("by check", "checked_commits_share", ".1%", 7),
    _three("op", "decision_to_op_ms", 8), _three("stored", "born_to_half_ms", 9),
    plain("immune_checks_count", 10, "immune"), _three("born to decided", "born_to_decision_ms", 11),
    _number("copies each", "half_copies_per_transaction", ".2f", 12),
)


@dataclass(slots=True)
class Latencies:
    """Times and checks of the transactions seen so far, in numbered cells; exact but for the quantiles."""

    _durations: dict[str, Histograms] = field(default_factory=lambda: {name: Histograms() for name in _DURATIONS})
    _sums: dict[str, dict[int, int]] = field(default_factory=lambda: {name: {} for name in _COUNTS})

    def add(self, cells: Int64s, batch: pa.RecordBatch) -> None:
        """Add transactions, each to its cell; does nothing for rows without the columns of MEASURES."""
        if MEASURES.names[0] not in batch.schema.names:
            return
        for name, found in self._durations.items():
            values = batch[name]
            known = np.asarray(values.is_valid())
            if known.all():
                found.add(cells, np.asarray(values))
            elif known.any():
                found.add(cells[known], np.asarray(values.drop_null()))
        for name, sums in self._sums.items():
            values = batch[name]
            known = np.asarray(values.is_valid())
            totals = np.bincount(cells, int64s(values, 0))
            for cell in np.flatnonzero(np.bincount(cells[known])).tolist():
                sums[cell] = sums.get(cell, 0) + int(totals[cell])

    def row(self, cell: int, transactions: int, half_copies: int) -> dict[str, Any]:
        """Return the values of LATENCY_FIELDS for a cell."""
        commits, checked = (self._sums[name].get(cell) for name in ("commits_count", "checked_commits_count"))
        return {
            "checked_commits_share": (checked or 0) / commits if commits else None,
            "half_copies_per_transaction": half_copies / transactions,
            "immune_checks_count": self._sums["immune_checks_count"].get(cell),
        } | {
            _name(duration, quantile): found.highest(cell) if quantile == "worst" else found.quantile(cell, hundredths)
            for duration, found in self._durations.items() for quantile, (hundredths, _) in _QUANTILES.items()
        }
