"""Times and durations: input in the forms that people write, output as ISO 8601 in UTC or as 90s, 1h30m, 2d.

A time that depends on the clock or the zone of this machine is printed as it was understood.
"""

from __future__ import annotations

import datetime
import re

from rmqtx.readers.model import clock
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.units import parse_time_ms, time_text
from rmqtx_cli.words.say import Voice

_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
#: A maximum that clocks, timers and sockets support.
_MS_MAX = 36_525 * _MS["d"]
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
__all__ = ["asked_time_ms", "parse_moment_ms", "parse_offset_or_time", "parse_time_ms", "time_text"]

_RELATIVE = re.compile(r"([+-])(\d[\w.]*)")
_DATE_WITH_ZONE = re.compile(r"(\d{4}-\d{2}-\d{2})(Z|z|[+-]\d{2}:?\d{2})")
_DAYS_AGO = {"today": 0, "yesterday": 1}
_ADVICE = "write it like 2026-01-02T03:04:05Z, 2026-01-02, yesterday, -1h, or as epoch seconds or milliseconds"


def parse_duration_ms(text: str) -> int:
    """The duration in milliseconds. A number without a unit is refused. Raises: BadRequest."""
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


def since_text(time_ms: int | None, begin_ms: int | None) -> str:
    """Return how long after another time one is, with a sign; empty if one of them is not known."""
    if time_ms is None or begin_ms is None:
        return ""
    passed = time_ms - begin_ms
    return duration_text(passed) if passed < 0 else f"+{duration_text(passed)}"


def age_text(sent_ms: int, now_ms: int, stopped_ms: int | None) -> str:
    """The age now, and the age at which the broker stopped, if that is known."""
    age = duration_text(now_ms - sent_ms)
    if stopped_ms is None or not sent_ms <= stopped_ms < now_ms:
        return age
    return f"{age}, {duration_text(stopped_ms - sent_ms)} when the broker stopped"


def parse_moment_ms(text: str, now_ms: int) -> tuple[int, bool]:
    """Epoch milliseconds, and whether the text would be another time on another machine or at another moment.

    Takes ISO 8601, a date as its first moment, `now`, `today`, `yesterday`, `-1h` and `+10m` from now, and epoch
    seconds or milliseconds by size. Without a zone it is this machine's.
    Raises: BadRequest.
    """
    cleaned = text.strip()
    word = cleaned.lower()
    if word == "now":
        return now_ms, True
    if match := _RELATIVE.fullmatch(cleaned):
        passed_ms = parse_duration_ms(match[2])
        return now_ms - passed_ms if match[1] == "-" else now_ms + passed_ms, True
    if word in _DAYS_AGO:
        day = datetime.datetime.fromtimestamp(now_ms / 1000).date() - datetime.timedelta(days=_DAYS_AGO[word])
        return _local_ms(datetime.datetime.combine(day, datetime.time())), True
    if match := _DATE_WITH_ZONE.fullmatch(cleaned):
        return parse_time_ms(f"{match[1]}T00:00:00{match[2]}"), False
    if cleaned.removeprefix("@").isdigit():
        return parse_time_ms(cleaned), len(cleaned.removeprefix("@")) < len(str(now_ms))
    try:
        moment = datetime.datetime.fromisoformat(cleaned)
    except ValueError as error:
        raise BadRequest(f"{text!r} is not a time", advice=_ADVICE) from error
    return (_local_ms(moment), True) if moment.tzinfo is None else (parse_time_ms(cleaned), False)


#: The times of the options of this run, by their text: `-1h` is one time, however often it is printed.
_ASKED: dict[str, int] = {}


def known_time_ms(text: str) -> int:
    """Return the time of an option that was read by `asked_time_ms`."""
    known = _ASKED.get(text)
    return parse_moment_ms(text, clock.now_ms())[0] if known is None else known


def asked_time_ms(option: str, text: str | None, voice: Voice, *, is_of_state: bool = False) -> int | None:
    """The time in an option, printed on stderr if it depends on this machine; None without the option.

    `is_of_state`: the state at this time is reported; a note is printed for a time in the future.
    Raises: BadRequest.
    """
    if text is None:
        return None
    now_ms = clock.now_ms()
    time_ms, is_relative = parse_moment_ms(text, now_ms)
    _ASKED[text] = time_ms
    if is_relative:
        local = datetime.datetime.fromtimestamp(time_ms / 1000).astimezone().isoformat(timespec="seconds")
        voice.note(f"{option} {text.strip()} is {time_text(time_ms)} ({local} in the zone of this machine)")
    if is_of_state and time_ms > now_ms:
        voice.note(f"{option} {text.strip()} is in the future; to predict the broker's checks: rmqtx simulate")
    return time_ms


def parse_offset_or_time(option: str, text: str, voice: Voice) -> tuple[int | None, int | None]:
    """A bound as (offset, None) or (None, time in milliseconds): a number is an offset, `@number` a time.

    Raises: BadRequest.
    """
    cleaned = text.strip().replace("_", "")
    if cleaned.isascii() and cleaned.isdigit():
        return int(cleaned), None
    return None, asked_time_ms(option, text, voice)


def _local_ms(moment: datetime.datetime) -> int:
    """Epoch milliseconds of a time in the zone of this machine."""
    return parse_time_ms(moment.astimezone().isoformat())
