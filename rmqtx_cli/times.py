"""Points in time: ISO 8601 with a zone, or epoch milliseconds, in; ISO 8601 in UTC out."""

from __future__ import annotations

import datetime

from readers.errors import BadRequest

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def parse_time_ms(text: str) -> int:
    """Epoch milliseconds of an ISO 8601 time with a zone, or of a plain number.

    Raises: BadRequest; also for a time without a zone, which would mean another moment on another machine.
    """
    cleaned = text.strip().removeprefix("@")
    if cleaned.isascii() and cleaned.isdigit():
        return int(cleaned)
    try:
        moment = datetime.datetime.fromisoformat(cleaned)
    except ValueError as error:
        raise BadRequest(
            f"{text!r} is not a time", advice="write it like 2026-01-02T03:04:05Z, or as epoch milliseconds"
        ) from error
    if moment.tzinfo is None:
        raise BadRequest(f"{text!r} has no time zone", advice=f"write {cleaned}Z or {cleaned}+08:00")
    return (moment - _EPOCH) // datetime.timedelta(milliseconds=1)


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
