"""The part of the summary of an audit that shows times between events, and checks, per producer group and topic."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from rmqtx.readers.model.columns import Int64s, int64s
from rmqtx.readers.model.tables import column
from rmqtx.verdicts.audit.histograms import Histograms
from rmqtx.verdicts.transactions.measures import MEASURES
from rmqtx_cli.output.views import Column, Row, plain
from rmqtx_cli.words.times import duration_text

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
