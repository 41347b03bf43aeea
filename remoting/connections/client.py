"""Connections by address, requests with patience: what a command speaks to name servers and brokers through."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Container, Iterable, Iterator

from remoting.connections.connection import Connection, Pending, Request
from remoting.connections.refusals import checked as checked
from remoting.connections.refusals import refusal as refusal
from remoting.protocol.codes import ResponseCode
from remoting.protocol.errors import NoAnswer, Unreachable
from remoting.protocol.frames import Frame
from remoting.protocol.settings import RemotingSettings

#: Requests that are under way at once, where many are asked.
WINDOW = 16
#: What must not be asked twice goes over no connection that has been silent for so long: it may be gone already.
_IDLE_MS_MAX = 20_000


class Client:
    """Keeps one connection per address, made when it is needed.

    Every request is made once unless `is_repeatable` says that it may be made twice; what decides something never is.
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
        """The connection to an address; a new one if the last has been silent for longer than `idle_ms_max`.

        Raises: Unreachable.
        """
        with self._lock:  # of this address only: one that does not answer must not keep the others waiting
            making = self._making.setdefault(address, threading.Lock())
        with making:
            found = self._connections.get(address)
            if found is not None and idle_ms_max is not None and found.idle_ms > idle_ms_max and found.is_unused:
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
        """The response to a request.

        `accepted`: response codes that are answers. `is_repeatable`: a read, which is asked again over a new connection
        if the first one broke before its time was over.
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
        """The response to a request that acts, whatever its code is. Sent once, over a connection that was just heard.

        Raises: Unreachable (nothing was sent), NoAnswer and BadFrame (nobody knows).
        """
        return self.connection(address, _IDLE_MS_MAX).call(request, timeout_ms)

    def _is_broken(self, address: str) -> bool:
        """Whether there was a connection, which broke."""
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
        """The responses to many reads, with several under way at once.

        What a broken connection swallowed is asked again. Order: that of the requests.
        Raises: Unreachable, NoAnswer, Refused, BadFrame.
        """
        under_way: deque[tuple[Request, Pending | None]] = deque()
        for request in requests:
            under_way.append((request, self._started(address, request)))
            if len(under_way) >= window:
                yield self._taken(under_way, address, accepted)
        while under_way:
            yield self._taken(under_way, address, accepted)

    def _started(self, address: str, request: Request) -> Pending | None:
        """None where the connection broke, which is told when its turn comes."""
        try:
            return self.connection(address).start(request)
        except NoAnswer:
            return None

    def _taken(self, under_way: deque[tuple[Request, Pending | None]], address: str, accepted: Container[int]) -> Frame:
        request, pending = under_way.popleft()
        end = time.monotonic() + self.settings.timeout_ms / 1000
        try:
            if pending is not None:
                return checked(pending.result(self.settings.timeout_ms), request, address, accepted)
        except (Unreachable, NoAnswer):
            if time.monotonic() >= end:
                raise
        return self.call(address, request, accepted=accepted)
