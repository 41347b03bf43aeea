"""Parse sizes and times as people write them: 64KiB, 2026-01-02T03:04:05Z or epoch milliseconds."""

from __future__ import annotations

import datetime
import re

from rmqtx.readers.model.errors import BadRequest

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
#: Numbers below are seconds until the year 5138; as milliseconds they would all be before 1973-03.
_SECONDS_MAX = 100_000_000_000
#: The last millisecond of the year 9999.
_TIME_MS_MAX = 253_402_300_799_999
_UNITS = {"b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_BYTES_MAX = 1 << 60
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")


def parse_size_bytes(text: str) -> int:
    """Return a size in bytes. A number without a unit is bytes; KB, MB and GB are refused as ambiguous.

    Raises: BadRequest.
    """
    match = _SIZE.fullmatch(text.strip().lower())
    factor = _UNITS.get(match[2] or "b") if match is not None else None
    if match is None or factor is None:
        raise BadRequest(f"{text!r} is not a size", advice="give a size like 64KiB, 128MiB or 1GiB")
    size_bytes = round(float(match[1]) * factor)
    if size_bytes > _BYTES_MAX:
        raise BadRequest(f"{text!r} is larger than any file can be", advice="give a size like 64KiB, 128MiB or 1GiB")
    if not size_bytes:
        raise BadRequest(f"{text!r} is less than one byte", advice="give a size like 64KiB, 128MiB or 1GiB")
    return size_bytes


def parse_time_ms(text: str) -> int:
    """Return epoch milliseconds of an ISO 8601 time with a zone, or of a number of epoch seconds or milliseconds.

    Raises: BadRequest; also for a time without a zone, which would be another moment on another machine.
    """
    cleaned = text.strip().removeprefix("@")
    if cleaned.isascii() and cleaned.isdigit():
        return _epoch_ms(int(cleaned), text)
    try:
        moment = datetime.datetime.fromisoformat(cleaned)
    except ValueError as error:
        raise BadRequest(
            f"{text!r} is not a time", advice="give a time like 2026-01-02T03:04:05Z, or epoch milliseconds"
        ) from error
    if moment.tzinfo is None:
        written = moment.isoformat()  # for a date its first moment, to which a zone can be added
        raise BadRequest(f"{text!r} has no time zone", advice=f"write {written}Z or {written}+08:00")
    return (moment - _EPOCH) // datetime.timedelta(milliseconds=1)


def _epoch_ms(number: int, text: str) -> int:
    if number > _TIME_MS_MAX:
        raise BadRequest(f"{text!r} is a time after the year 9999", advice="write epoch seconds or milliseconds")
    return number * 1_000 if number < _SECONDS_MAX else number


def time_text(time_ms: int | None) -> str:
    """Return 2026-01-02T03:04:05.678Z; the number if it is outside the calendar; an empty text if it is unknown."""
    if time_ms is None:
        return ""
    try:
        moment = _EPOCH + datetime.timedelta(milliseconds=time_ms)
    except OverflowError:
        return str(time_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
