"""Reads from a broker in batches, at a limited rate, repeated if the broker was busy or the connection was lost."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from rmqtx.readers.log.record_layout import number_at
from rmqtx.readers.model.findings import Finding
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.connections.connection import Request, Value
from rmqtx.remoting.protocol.codes import RequestCode, ResponseCode
from rmqtx.remoting.protocol.errors import NoAnswer, Refused, Unreachable
from rmqtx.remoting.protocol.frames import parsed_json
from rmqtx.remoting.protocol.record_bytes import cut

_ATTEMPTS = 4
_PAUSE_SECONDS = 0.25
_BUSY = (ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL)
#: Most records that a broker returns for one key (defaultQueryMaxNum); with this many there may be more.
QUERY_RECORDS_MAX = 32
#: After every store time.
EVER_MS = 1 << 62

_Value = TypeVar("_Value")


@dataclass(slots=True)
class Pace:
    """A limit of requests for records per second; None: no limit."""

    requests_per_second: float | None = None
    _next: float = field(default=0.0)

    def wait(self) -> None:
        """Wait until the next request may be sent."""
        if self.requests_per_second is None:
            return
        now = time.monotonic()
        self._next = max(self._next, now)
        if self._next > now:
            time.sleep(self._next - now)
        self._next += 1 / self.requests_per_second


def again(ask: Callable[[], Iterator[_Value]]) -> Iterator[_Value]:
    """Yield the values of `ask`, which is called again if the broker was busy or a connection was lost.

    `ask` must continue where the last call stopped.
    Raises: Unreachable, NoAnswer, Refused.
    """
    failures = 0
    while True:
        try:
            for value in ask():
                failures = 0
                yield value
            return
        except (Unreachable, NoAnswer, Refused) as error:
            failures += 1
            if failures == _ATTEMPTS or (isinstance(error, Refused) and error.code not in _BUSY):
                raise
            if isinstance(error, Unreachable) and failures > 1:
                raise
        time.sleep(_PAUSE_SECONDS * 2 ** (failures - 1))


def views(broker: Broker, offsets: Iterable[int], pace: Pace) -> Iterator[tuple[int, bytes | None]]:
    """Yield the records at some commit-log offsets; None where the broker cannot read one. Order: as given."""
    left = deque(offsets)

    def ask() -> Iterator[tuple[int, bytes | None]]:
        requests = _paced((Request(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offset}) for offset in list(left)), pace)
        accepted = (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR)
        for frame in broker.client.calls(broker.address, requests, accepted=accepted):
            yield left.popleft(), frame.body if frame.code == ResponseCode.SUCCESS else None

    return again(ask)


def queries(
    broker: Broker, keys: Iterable[tuple[str, str]], pace: Pace, incomplete: list[str] | None = None, *,
    times_ms: tuple[int, int] = (0, EVER_MS),
) -> Iterator[bytes]:
    """Yield the records that the index has under some keys (topic, key), one after another as in the log.

    `times_ms`: first and last store time.
    Shape: the result of one query, which may include records of other keys with the same hash. A key with more records
           than a broker returns at once is queried again, up to the oldest record received; if that brings no older
           record, the key is added to `incomplete`.
    """
    begin_ms, end_ms = times_ms
    left = deque((topic, key, end_ms) for topic, key in keys)
    more: list[tuple[str, str, int]] = []
    oldest_of: dict[tuple[str, str], int] = {}

    def ask() -> Iterator[bytes]:
        requests = _paced((_query(*entry, begin_ms) for entry in list(left)), pace)
        accepted = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        for frame in broker.client.calls(broker.address, requests, accepted=accepted):
            topic, key, _ = left.popleft()
            if frame.code != ResponseCode.SUCCESS:
                continue
            times = _store_times(frame.body)
            if len(times) >= QUERY_RECORDS_MAX:
                oldest = min(times)
                if oldest < oldest_of.get((topic, key), EVER_MS):
                    oldest_of[topic, key] = oldest
                    more.append((topic, key, oldest))
                elif incomplete is not None:
                    incomplete.append(f"{topic}#{key}")
            yield frame.body

    while left:
        yield from again(ask)
        left, more = deque(more), []


def _store_times(body: bytes) -> list[int]:
    return [number_at(body, "store_time_ms", start) for start in cut(body)[0]]


def _query(topic: str, key: str, end_ms: int, begin_ms: int) -> Request:
    fields: dict[str, Value] = {
        "topic": topic, "key": key, "maxNum": QUERY_RECORDS_MAX, "beginTimestamp": begin_ms,
        "endTimestamp": end_ms, "_UNIQUE_KEY_QUERY": "true",
    }
    return Request(RequestCode.QUERY_MESSAGE, fields)


def _paced(requests: Iterable[Request], pace: Pace) -> Iterator[Request]:
    for request in requests:
        pace.wait()
        yield request


def topics(broker: Broker) -> list[str]:
    """Return the topics that a broker has a configuration of. Raises: Refused, Unreachable, NoAnswer."""
    frame = broker.client.call(broker.address, Request(RequestCode.GET_ALL_TOPIC_CONFIG))
    return sorted(map(str, parsed_json(frame.body).get("topicConfigTable") or {}))


@dataclass(slots=True)
class UnreadEntries:
    """Slots of a queue whose records the broker does not return."""

    topic: str
    queue_id: int
    begin: int
    end: int

    def finding(self, root: str) -> Finding:
        """The finding about these slots."""
        actual = f"queue offsets {self.begin} to {self.end - 1} of {self.topic} queue {self.queue_id}"
        return Finding(root, "entries-unread", root, actual=actual)
