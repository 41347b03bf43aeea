"""Times as numbers: epoch milliseconds, and the names of the columns that hold them.

A column holds points in time if its name ends in `time_ms` or `_at_ms`; other milliseconds are durations.
"""

from __future__ import annotations

_ENDINGS = ("time_ms", "_at_ms")
HOUR_MS = 3_600_000
#: Times with a year of four digits. Units: milliseconds.
TIME_FIRST_MS, TIME_END_MS = -62_135_596_800_000, 253_402_300_800_000
#: The year 2200: no broker wrote a later time. Units: milliseconds.
BROKER_TIME_MAX_MS = 7_258_118_400_000


def is_time(name: str) -> bool:
    """Whether a column holds points in time (epoch milliseconds) rather than a duration or a count."""
    return name.endswith(_ENDINGS)


def timestamp_name(name: str) -> str:
    """Return the name of a time column as timestamps: without its unit."""
    return name.removesuffix("_ms")
