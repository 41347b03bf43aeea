"""Points in time: ISO 8601 with a zone, or epoch milliseconds, in; ISO 8601 in UTC out."""

from __future__ import annotations

from readers.units import parse_time_ms, time_text

__all__ = ["parse_offset_or_time", "parse_time_ms", "time_text"]


def parse_offset_or_time(text: str) -> tuple[int | None, int | None]:
    """A bound as (offset, None) or (None, time in milliseconds): a plain number is an offset, `@number` a time.

    Raises: BadRequest.
    """
    cleaned = text.strip().replace("_", "")
    if cleaned.isascii() and cleaned.isdigit():
        return int(cleaned), None
    return None, parse_time_ms(text)
