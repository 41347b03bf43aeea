"""Reads the logs of brokers that options name, and prints what was read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rmqtx.readers.broker_logs.log_files import parsed_zone as parsed_zone
from rmqtx.readers.broker_logs.log_lines import LogReading, reading_of
from rmqtx.verdicts.audit.logged_events import LoggedEvents
from rmqtx.verdicts.model.log_evidence import LogEvidence, LogGathering
from rmqtx_cli.words.progress import shown
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count
from rmqtx_cli.words.times import time_text

_PROBLEMS_MAX = 5


def read_one(
    name: str, place: Path, zone: str | None, voice: Voice, transactions: Sequence[Mapping[str, Any]]
) -> tuple[LogEvidence, LoggedEvents, bool]:
    """Return what the logs of one broker show, the events of the transactions, and whether a file cannot be read.

    Raises: BadRequest, UnreadableFile.
    """
    reading, gathering = reading_of(place.expanduser(), zone), LogGathering()
    events = LoggedEvents(transactions, name)
    with shown("reading logs", voice):
        for _ in events.watching(gathering.watching(reading.lines())):
            pass
    evidence = gathering.evidence(reading)
    _say(place, reading, sum(evidence.counts.values()), voice)
    return evidence, events, bool(reading.problems)


def _say(place: Path, reading: LogReading, known_count: int, voice: Voice) -> None:
    """Print what was read, and what could not be."""
    for line in _lines(place, reading, known_count):
        voice.note(line)
    for problem in reading.problems[:_PROBLEMS_MAX]:
        voice.note(f"warning: {problem}")
    if len(reading.problems) > _PROBLEMS_MAX:
        voice.note(f"warning: {len(reading.problems) - _PROBLEMS_MAX} more log files could not be read")


def _lines(place: Path, reading: LogReading, known_count: int) -> Iterator[str]:
    files, lines = count(len(reading.files), "file"), count(reading.lines_count, "line")
    yield f"broker logs {place}: {files}, {lines}, {known_count} of them about transactions or the check"
    if reading.covered_ms:
        first, last = min(span[0] for span in reading.covered_ms), max(span[1] for span in reading.covered_ms)
        yield f"transaction.log from {time_text(first)} to {time_text(last)}; {reading.zone_note}"
    else:
        yield f"no transaction.log could be read: answers and missing producers are unknown; {reading.zone_note}"
