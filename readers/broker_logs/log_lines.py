"""Reads the known lines of a broker's logs: each file once, block by block, in constant memory."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple, cast

from rmqtx.readers.broker_logs.line_kinds import KINDS, LineKind
from rmqtx.readers.broker_logs.log_files import (
    TIME,
    USUAL_ZONE_SECONDS,
    LogFile,
    Zone,
    fixed_zone,
    log_files,
    parsed_zone,
    shown_zone_seconds,
    wall_ms,
    zone_text,
)

_BLOCK_BYTES = 1 << 20
#: The rest of a longer line is not read: a line has the whole text of a message's properties.
_LINE_BYTES_MAX = 1 << 16
#: The part of a line in which its fields stand.
_MATCHED_BYTES_MAX = 1 << 13
#: The part of a line that is kept as its text.
TEXT_CHARACTERS_MAX = 600
_KEY_BYTES = 6
#: Where the message of a line begins in the log configuration of the brokers: after time, level and thread.
_SEPARATOR, _SEPARATOR_BYTES_MAX = b" - ", 200
_USUAL_LINE = re.compile(TIME.pattern + rb" [A-Z]{4,5} [^\n]{1,150}? - ")
#: Where it begins in others: after date, time, level and logger.
_WORDS_BEFORE = 4
_ROUND = re.compile(rb"^" + TIME.pattern + rb"[^\n]{1,250}?begin time:(\d{13})", re.MULTILINE)
#: A transaction.log has a line that shows its zone within this part, if its check runs.
_ZONE_BYTES = 4 << 20


class LogLine(NamedTuple):
    """A known line.

    Shape: `number`: from 1. `time_ms`: None if the line has no time. `text`: its message, at most TEXT_CHARACTERS_MAX;
           text from clients is in it, unescaped. `log_offset`: commit-log offset of a record that it names.
           `exception`: class of the exception on the next line. `address`: of the client that decided.
    """

    kind: LineKind
    file: str
    number: int
    time_ms: int | None
    text: str
    log_offset: int | None = None
    group: str | None = None
    unique_key: str | None = None
    exception: str | None = None
    topic: str | None = None
    address: str | None = None


@dataclass
class LogReading:
    """The logs of one broker.

    Shape: `zone_note`: where the zone comes from. `problems`: files that could not be read, or only in part, each as a
           sentence. `covered_ms`: for each transaction.log the times of its first and last line; these two are complete
           when all lines were read.
    """

    files: list[LogFile]
    zone: Zone
    zone_note: str
    problems: list[str] = field(default_factory=list)
    covered_ms: list[tuple[int, int]] = field(default_factory=list)
    lines_count: int = 0

    def lines(self) -> Iterator[LogLine]:
        """Read all files once. Order: that of the files, then of their lines."""
        for file in self.files:
            scan = _FileScan(file, self.zone)
            try:
                yield from scan.lines()
            except (OSError, EOFError, zlib.error) as error:
                self.problems.append(f"{file.path}: read up to line {scan.count}: {_reason(error)}")
            self.lines_count += scan.count
            if scan.count and scan.first_ms is None:
                self.problems.append(f"{file.path}: no line begins with a time: not a log of a broker, or damaged")
            if file.log == "transaction" and scan.first_ms is not None:
                self.covered_ms.append((scan.first_ms, scan.last_ms))


def reading_of(place: Path, zone: str | None = None) -> LogReading:
    """Open the logs of a broker; see `log_files`. Raises: BadRequest, UnreadableFile."""
    files = log_files(place)
    shown = _shown_zone(files)
    if zone is not None:
        note = f"times in the broker logs are read in the zone {zone}"
        if shown is not None and parsed_zone(zone)(shown[1]) != shown[0]:
            note += f", but they show the zone {zone_text(shown[0])}: without --log-zone that zone is used"
        return LogReading(files, parsed_zone(zone), note)
    if shown is not None:
        return LogReading(files, fixed_zone(shown[0]), f"the broker logs show their zone: {zone_text(shown[0])}")
    return LogReading(
        files, fixed_zone(USUAL_ZONE_SECONDS), "the broker logs do not show their zone: "
        f"{zone_text(USUAL_ZONE_SECONDS)} as in the log configuration of every release; if that was changed, add "
        "--log-zone",
    )


def _shown_zone(files: list[LogFile]) -> tuple[int, int] | None:
    """Return the zone that a transaction.log shows, and a time in seconds on its clock."""
    for file in files:
        if file.log != "transaction":
            continue
        try:
            with _opened(file) as stream:
                head = stream.read(_ZONE_BYTES)
        except (OSError, EOFError, zlib.error):
            continue
        for match in _ROUND.finditer(head):
            wall = wall_ms(match)
            seconds = None if wall is None else shown_zone_seconds(wall, int(match[8]))
            if wall is not None and seconds is not None:
                return seconds, wall // 1000
    return None


class _FileScan:
    """One file: its lines so far, and the times of its first and last line."""

    def __init__(self, file: LogFile, zone: Zone) -> None:
        self.file, self.zone = file, zone
        self.count = 0
        self.first_ms: int | None = None
        self.last_ms = 0
        self._kinds = _kinds_of(file.log)
        self._begin: Callable[[bytes], int] | None = None

    def lines(self) -> Iterator[LogLine]:
        """Read the known lines."""
        with _opened(self.file) as stream:
            for lines in _blocks(stream):
                self._watch(lines)
                yield from self._known(lines)
                self.count += len(lines) - 1

    def _known(self, lines: list[bytes]) -> Iterator[LogLine]:
        """Return the known lines of a block; its last line is not read, but may be the exception of the one before."""
        kinds, begin_of = self._kinds, self._begin or _after_separator
        for at in range(len(lines) - 1):
            line = lines[at]
            begin = begin_of(line)
            candidates = kinds.get(line[begin: begin + _KEY_BYTES])
            if candidates is not None and begin > 0:
                found = self._line(candidates, line, begin, self.count + at + 1, lines[at + 1])
                if found is not None:
                    yield found

    def _line(
        self, candidates: list[LineKind], line: bytes, begin: int, number: int, following: bytes
    ) -> LogLine | None:
        message = line[begin: begin + _MATCHED_BYTES_MAX].decode("utf-8", "backslashreplace").rstrip("\r")
        for kind in candidates:
            match = kind.pattern.match(message)
            if match is None or kind.thread.encode() not in line[:begin]:
                continue
            fields = match.groupdict()
            return LogLine(
                kind, str(self.file.path), number, self._time_ms(line), _kept(message), _log_offset(fields),
                fields.get("group"), fields.get("unique_key"), _exception(following) if kind.has_exception else None,
                fields.get("topic"), fields.get("address"),
            )
        return None

    def _watch(self, lines: list[bytes]) -> None:
        """Keep the first and last time, and find out the form of the lines."""
        if self.first_ms is None:
            first = next((line for line in lines[:-1] if TIME.match(line)), None)
            if first is None:
                return
            self.first_ms = self._time_ms(first)
            self._begin = _after_separator if _USUAL_LINE.match(first) else _after_words
        for line in reversed(lines[:-1]):
            time_ms = self._time_ms(line)
            if time_ms is not None:
                self.last_ms = max(self.last_ms, time_ms)
                return

    def _time_ms(self, line: bytes) -> int | None:
        match = TIME.match(line)
        wall = None if match is None else wall_ms(match)
        return None if wall is None else wall - self.zone(wall // 1000) * 1000


def _kinds_of(log: str) -> dict[bytes, list[LineKind]]:
    """Return the kinds of a log by the first bytes of their messages."""
    found: dict[bytes, list[LineKind]] = {}
    for kind in KINDS:
        if log in kind.log:
            found.setdefault(kind.begins.encode()[:_KEY_BYTES], []).append(kind)
    return found


def _after_separator(line: bytes) -> int:
    """Return where the message begins; 0 or less if the line has no separator."""
    at = line.find(_SEPARATOR, 0, _SEPARATOR_BYTES_MAX)
    return at + len(_SEPARATOR) if at > 0 else 0


def _after_words(line: bytes) -> int:
    parts = line[:_SEPARATOR_BYTES_MAX].split(b" ", _WORDS_BEFORE)
    return len(line[:_SEPARATOR_BYTES_MAX]) - len(parts[-1]) if len(parts) > _WORDS_BEFORE else 0


def _opened(file: LogFile) -> IO[bytes]:
    if file.is_compressed:
        return cast("IO[bytes]", gzip.open(file.path, "rb"))
    return file.path.open("rb")


def _blocks(stream: IO[bytes]) -> Iterator[list[bytes]]:
    """Return the lines in blocks.

    Shape: the last line of a block comes again as the first of the next one; that of the last block is empty. A longer
           line than _LINE_BYTES_MAX may be cut.
    """
    rest, is_cut = b"", False
    while chunk := stream.read(_BLOCK_BYTES):
        if is_cut:
            end = chunk.find(b"\n")
            if end < 0:
                continue
            chunk, is_cut = chunk[end:], False
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > _LINE_BYTES_MAX:
            rest, is_cut = rest[:_LINE_BYTES_MAX], True
        if len(lines) > 1:
            yield lines
        rest = lines[-1] + b"\n" + rest if lines else rest
    yield [*rest.removesuffix(b"\n").split(b"\n"), b""] if rest else [b""]


def _kept(message: str) -> str:
    return message if len(message) <= TEXT_CHARACTERS_MAX else f"{message[:TEXT_CHARACTERS_MAX]}…"


def _log_offset(fields: dict[str, str | None]) -> int | None:
    number, identity = fields.get("log_offset"), fields.get("offset_id")
    offset = int(number) if number is not None else int(identity[-16:], 16) if identity is not None else None
    return offset if offset is not None and offset < 1 << 63 else None


def _exception(line: bytes) -> str | None:
    """Return the class of an exception by the first line of its trace."""
    word = line[:200].partition(b":")[0].strip().decode("utf-8", "backslashreplace")
    return word.rpartition(".")[2] if re.fullmatch(r"[\w.$]{3,150}", word) and "." in word else None


def _reason(error: BaseException) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else f"damaged: {error}"
