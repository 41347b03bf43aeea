"""The client of a command: one connection per address, and requests with timeouts."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Container, Iterable, Iterator

from rmqtx.remoting.connections.connection import Connection, Request, SentRequest
from rmqtx.remoting.connections.refusals import checked as checked
from rmqtx.remoting.connections.refusals import refusal as refusal
from rmqtx.remoting.protocol.codes import ResponseCode
from rmqtx.remoting.protocol.connection_settings import RemotingSettings
from rmqtx.remoting.protocol.errors import NoAnswer, Unreachable
from rmqtx.remoting.protocol.frames import Frame

#: Requests under way at once in a batch.
WINDOW = 16
#: A request that must not be sent twice uses a new connection after this idle time: the old one may be lost already.
_IDLE_MS_MAX = 20_000


class Client:
    """Keeps one connection per address, opened when needed.

    A request is sent once unless `is_repeatable` allows a second attempt; a decision is never sent twice.
    """

    def __init__(self, settings: RemotingSettings | None = None) -> None:
        self.settings = settings or RemotingSettings()
        self._connections: dict[str, Connection] = {}
        self._making: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all connections."""
        with self._lock:
            connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            connection.close()

    def connection(self, address: str, idle_ms_max: int | None = None) -> Connection:
        """Return the connection to an address; a new one if the last has been idle for longer than `idle_ms_max`.

        Raises: Unreachable.
        """
        with self._lock:  # a lock per address: an address that does not answer must not delay the others
            making = self._making.setdefault(address, threading.Lock())
        with making:
            found = self._connections.get(address)
            is_stale = found is not None and idle_ms_max is not None and found.idle_ms > idle_ms_max
            if found is not None and is_stale and found.has_no_pending_request:
                found.close()
            if found is None or found.is_closed:
                found = self._connections[address] = Connection(address, self.settings)
            return found

    def call(
        self,
        address: str,
        request: Request,
        *,
        accepted: Container[int] = (ResponseCode.SUCCESS,),
        timeout_ms: int | None = None,
        is_repeatable: bool = True,
    ) -> Frame:
        """Send a request and return its response.

        `accepted`: response codes that are answers. `is_repeatable`: a read, which is sent again over a new connection
        if the first connection was lost before the timeout.
        Raises: Unreachable, NoAnswer, Refused, BadFrame.
        """
        if not is_repeatable:
            return checked(self.answer(address, request, timeout_ms), request, address, accepted)
        end = time.monotonic() + (self.settings.timeout_ms if timeout_ms is None else timeout_ms) / 1000
        try:
            frame = self.connection(address).call(request, timeout_ms)
        except (Unreachable, NoAnswer):
            left_ms = int((end - time.monotonic()) * 1000)
            if left_ms <= 0 or not self._is_broken(address):
                raise
            frame = self.connection(address).call(request, left_ms)
        return checked(frame, request, address, accepted)

    def answer(self, address: str, request: Request, timeout_ms: int | None = None) -> Frame:
        """Send a request that changes something, once, over a connection in recent use; return the response.

        Raises: Unreachable (nothing was sent), NoAnswer and BadFrame (unknown outcome).
        """
        return self.connection(address, _IDLE_MS_MAX).call(request, timeout_ms)

    def _is_broken(self, address: str) -> bool:
        """Whether there was a connection that was lost."""
        found = self._connections.get(address)
        return found is not None and found.is_closed

    def calls(
        self,
        address: str,
        requests: Iterable[Request],
        *,
        accepted: Container[int] = (ResponseCode.SUCCESS,),
        window: int = WINDOW,
    ) -> Iterator[Frame]:
        """Yield the responses to many reads, with several requests under way.

        Requests that were lost with a connection are sent again. Order: that of the requests.
        Raises: Unreachable, NoAnswer, Refused, BadFrame.
        """
        under_way: deque[tuple[Request, SentRequest | None]] = deque()
        for request in requests:
            under_way.append((request, self._started(address, request)))
            if len(under_way) >= window:
                yield self._taken(under_way, address, accepted)
        while under_way:
            yield self._taken(under_way, address, accepted)

    def _started(self, address: str, request: Request) -> SentRequest | None:
        """Start a request; None if the connection was lost, and `_taken` then repeats it."""
        try:
            return self.connection(address).start(request)
        except NoAnswer:
            return None

    def _taken(
        self, under_way: deque[tuple[Request, SentRequest | None]], address: str, accepted: Container[int]
    ) -> Frame:
        request, sent = under_way.popleft()
        end = time.monotonic() + self.settings.timeout_ms / 1000
        try:
            if sent is not None:
                return checked(sent.result(self.settings.timeout_ms), request, address, accepted)
        except (Unreachable, NoAnswer):
            if time.monotonic() >= end:
                raise
        return self.call(address, request, accepted=accepted)
