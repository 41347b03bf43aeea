"""Durations as people write them: 90s, 10m, 1h30m, 2d."""

from __future__ import annotations

import re

from rmqtx.readers.model.errors import BadRequest

_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
#: A maximum that clocks, timers and sockets support.
_MS_MAX = 36_525 * _MS["d"]
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")


def parse_duration_ms(text: str) -> int:
    """The duration in milliseconds. A number without a unit is refused.

    Raises: BadRequest.
    """
    position, total = 0, 0.0
    cleaned = text.strip().lower().replace(" ", "")
    while match := _PART.match(cleaned, position):
        total += float(match[1]) * _MS[match[2]]
        position = match.end()
    if not cleaned or position != len(cleaned):
        raise BadRequest(f"{text!r} is not a duration", advice="write it like 90s, 10m, 1h30m or 2d")
    if total > _MS_MAX:
        raise BadRequest(f"{text!r} is longer than a hundred years", advice="write it like 90s, 10m, 1h30m or 2d")
    return round(total)


def duration_text(milliseconds: int | None) -> str:
    """The duration in its two largest units: 45s, 10m, 1h30m, 2d4h. Nothing for an unknown one."""
    if milliseconds is None:
        return ""
    sign, left = ("-", -milliseconds) if milliseconds < 0 else ("", milliseconds)
    if left < 1_000:
        return f"{sign}{left}ms" if left else "0s"
    parts: list[str] = []
    for unit in ("d", "h", "m", "s"):
        number, left = divmod(left, _MS[unit])
        if number:
            parts.append(f"{number}{unit}")
        elif parts:
            break
        if len(parts) == 2:
            break
    return sign + "".join(parts)


def age_text(sent_ms: int, now_ms: int, stopped_ms: int | None) -> str:
    """The age now, and the age at which the broker stopped, if that is known."""
    age = duration_text(now_ms - sent_ms)
    if stopped_ms is None or not sent_ms <= stopped_ms < now_ms:
        return age
    return f"{age}, {duration_text(stopped_ms - sent_ms)} when the broker stopped"
