"""What the logs of a broker show, as sorted arrays: which records lines name, when groups and rounds are named."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rmqtx.readers.model.columns import Bools, Int64s

if TYPE_CHECKING:
    from rmqtx.readers.broker_logs.log_lines import LogLine, LogReading

#: Arrays are sorted, and equal values dropped, when they have grown by this number.
_GROWTH = 1 << 20
#: More names of groups are not kept, and then the logs count as incomplete: they are text of clients. The same number
#: of addresses of clients are kept.
_GROUPS_MAX = 100_000
_NOTHING = np.empty(0, np.int64)
_ROLES = ("slave-synchronised", "broker-started", "became-master")


@dataclass(frozen=True, slots=True)
class LogEvidence:
    """What the logs of one broker show.

    Shape: `covered_ms`: rows of begin and end of what the transaction logs cover, sorted, not overlapping. `named`: for
           a kind of line the commit-log offsets that its lines name. `of_groups`: for a kind and a group the times of
           its lines. `moments`: for a kind the times of its lines, for a kind with an exception those of "kind
           exception" too. `topics`: for a kind the topics that its lines name. `counts`: lines by kind. `clients`: for
           a kind the commit-log offsets that its lines name, and for each the address of the client that decided, as
           a number of `addresses`; of several lines the last.
    Order: arrays are sorted and have each value once.
    Units: commit-log offsets; seconds since 1970.
    """

    covered_ms: Int64s
    named: Mapping[str, Int64s] = field(default_factory=dict)
    of_groups: Mapping[tuple[str, str], Int64s] = field(default_factory=dict)
    moments: Mapping[str, Int64s] = field(default_factory=dict)
    topics: Mapping[str, frozenset[str]] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    clients: Mapping[str, tuple[Int64s, Int64s]] = field(default_factory=dict)
    addresses: tuple[str, ...] = ()

    @property
    def is_slave(self) -> bool:
        """Whether the broker synchronised as a slave, and neither started nor became a master afterwards."""
        last = {kind: int(self.moments.get(kind, _NOTHING).max(initial=-1)) for kind in _ROLES}
        return last["slave-synchronised"] > max(last["broker-started"], last["became-master"])

    def names(self, kinds: Iterable[str], offsets: Int64s) -> Bools:
        """Whether a line of one of the kinds names each commit-log offset."""
        found = np.zeros(len(offsets), np.bool_)
        for kind in kinds:
            found |= _contains(self.named.get(kind, _NOTHING), offsets)
        return found

    def client_of(self, kinds: Iterable[str], offsets: Int64s) -> Int64s:
        """Return the client that decided at each commit-log offset, by lines of some kinds.

        Shape: numbers of `addresses`; -1 without a line.
        """
        found = np.full(len(offsets), -1, np.int64)
        for kind in kinds:
            places, numbers = self.clients.get(kind, (_NOTHING, _NOTHING))
            if len(places):
                at = np.minimum(np.searchsorted(places, offsets), len(places) - 1)
                found = np.where(places[at] == offsets, numbers[at], found)
        return found

    def covers(self, times_ms: Int64s) -> Bools:
        """Whether the transaction logs cover each time."""
        if not len(self.covered_ms):
            return np.zeros(len(times_ms), np.bool_)
        at = np.searchsorted(self.covered_ms[:, 0], times_ms, "right") - 1
        found: Bools = (at >= 0) & (times_ms <= self.covered_ms[np.maximum(at, 0), 1])
        return found

    def of_group_within(self, kind: str, group: str, first_seconds: Int64s, last_seconds: Int64s) -> Bools:
        """Whether a line of a kind names a group within each span of time, both ends included."""
        return _any_within(self.of_groups.get((kind, group), _NOTHING), first_seconds, last_seconds)

    def within(self, moment: str, first_seconds: Int64s, last_seconds: Int64s) -> Bools:
        """Whether there is a line of a kind within each span of time, both ends included."""
        return _any_within(self.moments.get(moment, _NOTHING), first_seconds, last_seconds)


def _contains(values: Int64s, wanted: Int64s) -> Bools:
    if not len(values):
        return np.zeros(len(wanted), np.bool_)
    at = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
    found: Bools = values[at] == wanted
    return found


def _any_within(values: Int64s, first: Int64s, last: Int64s) -> Bools:
    found: Bools = np.searchsorted(values, last, "right") > np.searchsorted(values, first)
    return found


class _Values:
    """Growing integers; equal ones are dropped from time to time."""

    def __init__(self) -> None:
        self._new = array("q")
        self._sorted = _NOTHING

    def add(self, value: int) -> None:
        self._new.append(value)
        if len(self._new) >= _GROWTH:
            self._merge()

    def all(self) -> Int64s:
        self._merge()
        return self._sorted

    def _merge(self) -> None:
        self._sorted = np.union1d(self._sorted, np.frombuffer(self._new, np.int64))
        self._new = array("q")


class _Clients:
    """Which client decided at which commit-log offset."""

    def __init__(self) -> None:
        self._offsets, self._numbers = array("q"), array("q")

    def add(self, offset: int, number: int) -> None:
        self._offsets.append(offset)
        self._numbers.append(number)

    def all(self) -> tuple[Int64s, Int64s]:
        """Return the offsets, sorted, each once, and the client of the last line of each."""
        offsets, numbers = (np.frombuffer(one, np.int64)[::-1] for one in (self._offsets, self._numbers))
        places, first = np.unique(offsets, return_index=True)
        return places, numbers[first]


class LogGathering:
    """Gathers the evidence while lines pass."""

    def __init__(self) -> None:
        self._named: dict[str, _Values] = defaultdict(_Values)
        self._groups: dict[tuple[str, str], _Values] = defaultdict(_Values)
        self._moments: dict[str, _Values] = defaultdict(_Values)
        self._topics: dict[str, set[str]] = defaultdict(set)
        self._counts: Counter[str] = Counter()
        self._clients: dict[str, _Clients] = defaultdict(_Clients)
        self._addresses: dict[str, int] = {}
        self._is_full = False

    def watching(self, lines: Iterable[LogLine]) -> Iterator[LogLine]:
        """Pass the lines on."""
        for line in lines:
            self._add(line)
            yield line

    def _add(self, line: LogLine) -> None:
        word = line.kind.word
        self._counts[word] += 1
        if line.log_offset is not None:
            self._named[word].add(line.log_offset)
            if line.address is not None and (
                len(self._addresses) < _GROUPS_MAX or line.address in self._addresses
            ):
                number = self._addresses.setdefault(line.address, len(self._addresses))
                self._clients[word].add(line.log_offset, number)
        if line.topic is not None and len(self._topics[word]) < _GROUPS_MAX:
            self._topics[word].add(line.topic)
        if line.time_ms is None:
            return
        names = line.kind.names
        if names == "group" and line.group is not None:
            self._of_group(word, line.group, line.time_ms // 1000)
        elif names == "broker":
            self._moments[word].add(line.time_ms // 1000)
            if line.exception is not None:
                self._moments[f"{word} {line.exception}"].add(line.time_ms // 1000)

    def _of_group(self, word: str, group: str, seconds: int) -> None:
        if len(self._groups) < _GROUPS_MAX or (word, group) in self._groups:
            self._groups[word, group].add(seconds)
        else:
            self._is_full = True

    def evidence(self, reading: LogReading) -> LogEvidence:
        """Return the evidence, after all lines passed."""
        covered = [] if self._is_full else reading.covered_ms
        return LogEvidence(
            _merged(covered), {word: values.all() for word, values in self._named.items()},
            {key: values.all() for key, values in self._groups.items()},
            {word: values.all() for word, values in self._moments.items()},
            {word: frozenset(values) for word, values in self._topics.items()}, dict(self._counts),
            {word: values.all() for word, values in self._clients.items()}, tuple(self._addresses),
        )


def _merged(spans: Iterable[tuple[int, int]]) -> Int64s:
    """Return spans of time, those that overlap or touch as one."""
    found: list[list[int]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1] + 1000:
            found[-1][1] = max(found[-1][1], end)
        else:
            found.append([begin, end])
    return np.array(found, np.int64).reshape(-1, 2)
