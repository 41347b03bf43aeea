"""The log files of a broker in a directory, those that it writes and rotated ones, compressed or not; times of lines.

Times are written without a zone, so that the zone is given, shown by the log, or the usual one.
"""

from __future__ import annotations

import datetime
import re
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from rmqtx.readers.model.errors import BadRequest, UnreadableFile

#: The logs whose lines name transactions, producer groups or rounds of the check.
LOG_NAMES = ("transaction", "broker", "store", "remoting")
_ROTATED_FOLDER = "otherdays"
#: Where the files are below the directory that is given; the first one that has any is read.
_BELOW = ("", "rocketmqlogs", "logs/rocketmqlogs")
_NAME = re.compile(rf"({'|'.join(LOG_NAMES)})(?:[._-](\d[\d._-]*))?\.log(?:[._-](\d[\d._-]*))?(\.gz)?")
_DATE = re.compile(r"(\d{4})[-_.]?(\d\d)[-_.]?(\d\d)")
#: A time as the log has it: seconds since 1970-01-01 00:00:00 on the clock of its zone.
WallSeconds = int
#: Gives the seconds that the clock of a zone is ahead of UTC, at a time of that clock.
Zone = Callable[[WallSeconds], int]

#: The zone of the log configuration that every release from 4.3.0 to 5.5.1 has, whatever the zone of its machine.
#: Source: distribution/conf/logback_broker.xml, broker/src/main/resources/rmq.broker.logback.xml: %d{...,GMT+8}; seen
#: on six releases.
USUAL_ZONE_SECONDS = 8 * 3600
TIME = re.compile(rb"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,3}))?")
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2}):?(\d\d)?")
_ADVICE = "write it like Asia/Shanghai, +08:00 or UTC"
#: Zones differ from UTC by quarters of an hour.
_STEP_SECONDS = 15 * 60
_HOUR_SECONDS = 3600
_DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log file.

    Shape: `log`: one of LOG_NAMES. `rotation`: what its name has beside that: "3" or "2026-11-22"; empty for the file
           that the broker writes.
    """

    path: Path
    log: str
    rotation: str
    is_compressed: bool

    @property
    def order(self) -> tuple[int, bool, tuple[int, ...], str]:
        """Sort key: by log, then oldest first. A number counts backwards, a date forwards."""
        date = _DATE.match(self.rotation)
        if date is not None:
            rest = re.findall(r"\d{1,18}", self.rotation[date.end():])
            ages = (int("".join(date.groups())), *map(int, rest))
        else:
            ages = tuple(-int(part) for part in re.findall(r"\d{1,18}", self.rotation))
        return LOG_NAMES.index(self.log), not self.rotation, ages, str(self.path)


def log_files(place: Path) -> list[LogFile]:
    """Return the log files of a directory, or a single one of them.

    Shape: those in the directory and in otherdays/ below it; if these are missing, in rocketmqlogs/ or
           logs/rocketmqlogs/ below it.
    Order: by log, oldest first.
    Raises: BadRequest if all are missing, UnreadableFile.
    """
    if place.is_file():
        found = [one for one in [_log_file(place)] if one is not None]
        if not found:
            raise _nothing(place, f"{place.name} is not a log that is read")
        return found
    for below in _BELOW:
        found = [one for folder in (place / below, place / below / _ROTATED_FOLDER) for one in _files_in(folder)]
        if found:
            return sorted(found, key=lambda one: one.order)
    if not place.is_dir():
        raise BadRequest(
            "no such directory", file=place, advice="give the directory of the broker's logs: "
            "--broker-logs ~/logs/rocketmqlogs (of the user that runs the broker)",
        )
    raise _nothing(place, "no log of a broker is in this directory")


def _nothing(place: Path, text: str) -> BadRequest:
    names = ", ".join(f"{name}.log" for name in LOG_NAMES)
    return BadRequest(
        text, file=place,
        advice=f"give the directory with {names}, rotated or as .gz: --broker-logs ~/logs/rocketmqlogs",
    )


def _files_in(folder: Path) -> list[LogFile]:
    try:
        paths = sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UnreadableFile(f"cannot read {folder}: {error.strerror}", file=folder) from error
    found = [_log_file(path) for path in paths]
    return [one for one in found if one is not None and one.path.is_file()]


def _log_file(path: Path) -> LogFile | None:
    match = _NAME.fullmatch(path.name)
    if match is None:
        return None
    return LogFile(path, match[1], match[2] or match[3] or "", match[4] is not None)


def wall_ms(match: re.Match[bytes]) -> int | None:
    """Return the time of a match of TIME in milliseconds on the clock of the log; None if the date does not exist."""
    try:
        day = _day(match[1] + match[2] + match[3])
    except ValueError:
        return None
    hour, minute, second = int(match[4]), int(match[5]), int(match[6])
    if hour > 23 or minute > 59 or second > 60:
        return None
    parts = int((match[7] or b"0").ljust(3, b"0"))
    return (day * _DAY_SECONDS + hour * _HOUR_SECONDS + minute * 60 + second) * 1000 + parts


@lru_cache(maxsize=64)
def _day(digits: bytes) -> int:
    return (datetime.date(int(digits[:4]), int(digits[4:6]), int(digits[6:])) - datetime.date(1970, 1, 1)).days


def parsed_zone(text: str) -> Zone:
    """Return a zone by its name in the IANA list or its distance from UTC. Raises: BadRequest."""
    cleaned = text.strip()
    if cleaned.upper() in ("Z", "UTC", "GMT"):
        return fixed_zone(0)
    if match := _OFFSET.fullmatch(cleaned):
        seconds = int(match[2]) * 3600 + int(match[3] or 0) * 60
        if int(match[2]) > 18 or int(match[3] or 0) > 59:
            raise BadRequest(f"{text!r} is not a zone", advice=_ADVICE)
        return fixed_zone(-seconds if match[1] == "-" else seconds)
    try:
        named = zoneinfo.ZoneInfo(cleaned)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise BadRequest(f"{text!r} is not a zone", advice=_ADVICE) from error

    @lru_cache(maxsize=4096)
    def ahead(hour: int) -> int:
        moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(hours=hour, minutes=30)
        found = moment.replace(tzinfo=named).utcoffset()
        return int(found.total_seconds()) if found is not None else 0

    return lambda wall: ahead(wall // _HOUR_SECONDS)


def fixed_zone(seconds: int) -> Zone:
    """Return a zone with one distance from UTC."""
    return lambda _: seconds


def zone_text(seconds: int) -> str:
    """Return a distance from UTC as text: "+08:00"."""
    sign, rest = "-" if seconds < 0 else "+", abs(seconds) // 60
    return f"{sign}{rest // 60:02d}:{rest % 60:02d}"


def shown_zone_seconds(wall: int, epoch_ms: int) -> int | None:
    """Return the distance from UTC that a line shows which has a time in the log's zone and one in epoch milliseconds.

    Shape: None if the two are not close to a quarter of an hour apart: the line was written later.
    Units: `wall`: milliseconds on the clock of the log.
    """
    apart = (wall - epoch_ms) / 1000
    steps = round(apart / _STEP_SECONDS)
    is_close = abs(apart - steps * _STEP_SECONDS) < 60 and abs(steps) <= 18 * 4
    return steps * _STEP_SECONDS if is_close else None
