"""A range of a log to read, as `--from` and `--to` give it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """A range to read. Units: offsets in bytes of the commit log, times in epoch milliseconds; ends excluded."""

    from_offset: int | None = None
    to_offset: int | None = None
    from_time_ms: int | None = None
    to_time_ms: int | None = None
