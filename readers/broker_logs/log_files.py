"""The log files of a broker in a directory: those that it writes, rotated ones, compressed or not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from rmqtx.readers.model.errors import BadRequest, UnreadableFile

#: The logs whose lines name transactions, producer groups or rounds of the check.
LOG_NAMES = ("transaction", "broker", "store", "remoting")
_ROTATED_FOLDER = "otherdays"
#: Where the files are below the directory that is given; the first one that has any is read.
_BELOW = ("", "rocketmqlogs", "logs/rocketmqlogs")
_NAME = re.compile(rf"({'|'.join(LOG_NAMES)})(?:[._-](\d[\d._-]*))?\.log(?:[._-](\d[\d._-]*))?(\.gz)?")
_DATE = re.compile(r"(\d{4})[-_.]?(\d\d)[-_.]?(\d\d)")


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
