"""Points in time: ISO 8601 with a zone, or epoch milliseconds, in; ISO 8601 in UTC out."""

from __future__ import annotations

import datetime

from readers.units import parse_time_ms

__all__ = ["parse_offset_or_time", "parse_time_ms", "time_text"]

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def parse_offset_or_time(text: str) -> tuple[int | None, int | None]:
    """A bound as (offset, None) or (None, time in milliseconds): a plain number is an offset, `@number` a time.

    Raises: BadRequest.
    """
    cleaned = text.strip().replace("_", "")
    if cleaned.isascii() and cleaned.isdigit():
        return int(cleaned), None
    return None, parse_time_ms(text)


def time_text(time_ms: int | None) -> str:
    """The time as 2026-01-02T03:04:05.678Z; the bare number where no calendar reaches; nothing where it is unknown."""
    if time_ms is None:
        return ""
    try:
        moment = _EPOCH + datetime.timedelta(milliseconds=time_ms)
    except OverflowError:
        return str(time_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
