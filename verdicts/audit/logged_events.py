"""The lines of a broker's logs that belong to some transactions, as events of their timelines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from rmqtx.readers.traces import TraceKind
from rmqtx.verdicts.model.verdict_words import EVIDENCE, State

if TYPE_CHECKING:
    from rmqtx.readers.broker_logs.log_lines import LogLine

#: Of more lines of one kind the first ones and the last one are events.
_LINES_MAX = 10
#: A line that names only a group belongs to a check within this time after the copy that the check put back.
_CHECK_MS_MAX = 5_000
_AFTER_MS = 60_000


class Event(TypedDict, total=False):
    """One event of a timeline: a row of TIMELINE, or of LOGGED_TIMELINE; what it does not name is null."""

    time_ms: int | None
    event: str
    store: str
    topic: str | None
    queue_id: int | None
    queue_offset: int | None
    commit_log_offset: int | None
    message_id: str
    detail: str
    log_kind: str
    log_file: str
    log_line: int
    log_text: str


@dataclass
class _Kept:
    """The lines of one kind that belong to a transaction."""

    count: int = 0
    first: list[LogLine] = field(default_factory=list)
    last: LogLine | None = None
    place: tuple[int | None, int | None] | None = None

    def add(self, line: LogLine) -> None:
        """Keep a line; of those of one second about one record, or about a group, the first is enough."""
        place = line.time_ms, line.log_offset
        is_again = place == self.place
        if is_again and line.kind.names == "group":
            return  # one for each transaction that was checked; no field names it
        self.place = place
        self.count += 1
        if not is_again and len(self.first) < _LINES_MAX:
            self.first.append(line)
        else:
            self.last = line


@dataclass(frozen=True, slots=True)
class _Times:
    """When lines that name no record belong to a transaction. Units: epoch milliseconds."""

    first: int
    last: int | None
    checks: tuple[int, ...]

    def has(self, line: LogLine) -> bool:
        time_ms = line.time_ms
        if time_ms is None or time_ms < self.first - 1000 or (self.last is not None and time_ms > self.last):
            return False
        if line.kind.word != "no-producer":
            return True
        return any(check - 1000 < time_ms <= check + _CHECK_MS_MAX for check in self.checks)


class LoggedEvents:
    """Keeps the lines of the logs of one store that belong to some transactions, rows of TRANSACTIONS.

    A line belongs to a transaction if it names one of its records or its id, or its producer group at a time at which
    the check asked, or the broker within its time.
    """

    def __init__(self, transactions: Sequence[Mapping[str, Any]], store: str) -> None:
        self.store = store
        self._by_offset: dict[int, list[int]] = defaultdict(list)
        self._by_key: dict[str, list[int]] = defaultdict(list)
        self._by_group: dict[str, list[int]] = defaultdict(list)
        self._times: list[_Times] = []
        self._kept: dict[int, dict[str, _Kept]] = defaultdict(lambda: defaultdict(_Kept))
        for number, one in enumerate(transactions):
            records = [record for kind in EVIDENCE for record in one[kind] if record["store"] == store]
            for offset in {record["commit_log_offset"] for record in records}:
                self._by_offset[offset].append(number)
            self._by_key[one["transaction_id"]].append(number)
            if one["producer_group"] is not None and records:
                self._by_group[one["producer_group"]].append(number)
            self._times.append(_times(one, records))

    def watching(self, lines: Iterable[LogLine]) -> Iterator[LogLine]:
        """Pass the lines on."""
        for line in lines:
            if line.kind.is_shown:
                for number in self._owners(line):
                    self._kept[number][line.kind.word].add(line)
            yield line

    def of(self, number: int) -> list[Event]:
        """Return the events of a transaction, by its place among the given ones."""
        found = []
        for kept in self._kept.get(number, {}).values():
            found += [_event(line, self.store) for line in kept.first]
            if kept.last is not None:
                more = kept.count - len(kept.first)
                found.append(_event(kept.last, self.store, f" (the last of {more} more)" if more > 1 else ""))
        return found

    def _owners(self, line: LogLine) -> Iterable[int]:
        names = line.kind.names
        if names == "record":
            if line.log_offset is not None:
                return self._by_offset.get(line.log_offset, ())
            return self._by_key.get(line.unique_key or "", ())
        numbers = range(len(self._times)) if names == "broker" else self._by_group.get(line.group or "", ())
        return [number for number in numbers if self._times[number].has(line)]


def _times(transaction: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> _Times:
    times = [record["store_time_ms"] for record in records]
    checks = [
        copy["store_time_ms"] for copy in transaction["half_copies"] if copy in records and copy["checks_count"]
    ]
    last = None if transaction["state"] == State.PENDING or not times else max(times) + _AFTER_MS
    return _Times(min(times, default=0), last, tuple(checks))


def _event(line: LogLine, store: str, more: str = "") -> Event:
    exception = f": {line.exception}" if line.exception is not None else ""
    return {
        "time_ms": line.time_ms, "event": "broker log", "store": store, "commit_log_offset": line.log_offset,
        "detail": f"{line.kind.meaning}{exception}{more} ({Path(line.file).name} line {line.number})",
        "log_kind": line.kind.word, "log_file": line.file, "log_line": line.number, "log_text": line.text,
    }


def traced_events(rows: Sequence[Mapping[str, Any]], topic: str) -> list[Event]:
    """Return an event for each decision and each answer to a check among rows of TRACES of a topic.

    A record that several copies of a log have counts once.

    Units: times of the producer's clock.
    """
    events: dict[tuple[Any, ...], Event] = {}
    for row in rows:
        if row["kind"] != TraceKind.DECIDED:
            continue
        event = "answered" if row["is_check_answer"] else "decided"
        key = (row["time_ms"], event, row["commit_log_offset"], row["line_number"])
        events.setdefault(key, {
            "time_ms": row["time_ms"], "event": event, "store": row["store"], "topic": topic,
            "commit_log_offset": row["commit_log_offset"],
            "detail": f"{row['decision']}, by the trace of its producer, written before the request is sent",
        })
    return list(events.values())
