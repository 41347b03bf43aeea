"""Connections by address, requests with patience: what a command speaks to name servers and brokers through."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Container, Iterable, Iterator

from remoting.codes import ResponseCode
from remoting.connection import Connection, Pending, Request
from remoting.errors import NoAnswer, Refused, Unreachable
from remoting.frames import Frame
from remoting.settings import RemotingSettings

#: Requests that are under way at once, where many are asked.
WINDOW = 16


class Client:
    """Keeps one connection per address, made when it is needed.

    Every request is made once unless `is_repeatable` says that it may be made twice; what decides something never is.
    """

    def __init__(self, settings: RemotingSettings | None = None) -> None:
        self.settings = settings or RemotingSettings()
        self._connections: dict[str, Connection] = {}
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

    def connection(self, address: str) -> Connection:
        """The connection to an address.

        Raises: Unreachable.
        """
        with self._lock:
            found = self._connections.get(address)
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
        if the first one broke.
        Raises: Unreachable, NoAnswer, Refused.
        """
        try:
            frame = self.connection(address).call(request, timeout_ms)
        except (Unreachable, NoAnswer):
            if not is_repeatable or not self._is_broken(address):
                raise
            frame = self.connection(address).call(request, timeout_ms)
        return checked(frame, request, address, accepted)

    def _is_broken(self, address: str) -> bool:
        with self._lock:
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

        Order: that of the requests.
        Raises: Unreachable, NoAnswer, Refused.
        """
        under_way: deque[tuple[Request, Pending]] = deque()
        connection = self.connection(address)
        for request in requests:
            under_way.append((request, connection.start(request)))
            if len(under_way) >= window:
                yield self._taken(under_way, address, accepted)
        while under_way:
            yield self._taken(under_way, address, accepted)

    def _taken(self, under_way: deque[tuple[Request, Pending]], address: str, accepted: Container[int]) -> Frame:
        request, pending = under_way.popleft()
        return checked(pending.result(self.settings.timeout_ms), request, address, accepted)


def checked(frame: Frame, request: Request, address: str, accepted: Container[int]) -> Frame:
    """The same response, if its code is an answer.

    Raises: Refused.
    """
    if frame.code in accepted:
        return frame
    raise refusal(frame, request, address)


def refusal(frame: Frame, request: Request, address: str) -> Refused:
    """What the broker's answer says, as an error."""
    try:
        name = f" {ResponseCode(frame.code).name}"
    except ValueError:
        name = ""
    remark = " ".join((frame.remark or "no remark").split())
    return Refused(
        f"{address} refused {request.name}: code {frame.code}{name}, {remark[:300]}",
        code=frame.code, remark=frame.remark, request=request.name,
    )


