"""The client of a command: one connection per address, requests with timeouts, and refusals.

Responses are classified: refusals, responses that something does not exist, and advice for refusals.
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Container, Iterable, Iterator

from rmqtx.remoting.connections.connection import Connection, Request, SentRequest
from rmqtx.remoting.protocol.codes import ADVICE, NAMES, RequestCode, ResponseCode
from rmqtx.remoting.protocol.connection_settings import RemotingSettings
from rmqtx.remoting.protocol.errors import NoAnswer, Refused, Unreachable
from rmqtx.remoting.protocol.frames import Frame

#: Code 1 is used for most errors: only the remark shows that something does not exist (the same from 4.9.7 to 5.5.0).
_NOT_THERE: dict[int, re.Pattern[str]] = {
    RequestCode.VIEW_MESSAGE_BY_ID: re.compile(
        # The second if the four bytes at the offset, read as a length, are negative: inside a record.
        r"can not find message by the offset|java\.lang\.IllegalArgumentException: (newLimit|newPosition)"
    ),
    RequestCode.GET_PRODUCER_CONNECTION_LIST: re.compile(r"the producer group\[.*\] not exist", re.DOTALL),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: re.compile(r"the consumer group\[.*\] not online", re.DOTALL),
    RequestCode.QUERY_CONSUME_QUEUE: re.compile(r"\d+@.* is not exist!", re.DOTALL),
}
#: Refusals of access control: of 4.x and 5.0 to 5.2 with code 1, of 5.3+ with code 16.
_ACCESS_1 = re.compile(r"org\.apache\.rocketmq\.acl\.|.*AclException", re.DOTALL)
_ACCESS_2 = re.compile(
    r"username cannot be null|User:.* is not found|check signature failed|User:.* has no permission|.*whitelist",
    re.DOTALL | re.IGNORECASE,
)
_CREDENTIALS_ADVICE = (
    "set RMQTX_ACCESS_KEY and RMQTX_SECRET_KEY, or add --credentials FILE; docs/remoting.md lists the rights"
)

#: Only a slave rejects a pull without processing it, from 5.0.0 on (PullMessageProcessor.java rejectRequest), with the
#: same code as a busy broker.
_REJECTED = "[REJECTREQUEST]"
_SLAVE_ADVICE = (
    "it is a slave that refuses reads (slaveReadEnable=false): select its master, or set slaveReadEnable=true"
)
#: Requests under way at once in a batch: about 2 MB of pulls of small records.
WINDOW = 16
#: A request that must not be sent twice uses a new connection after this idle time: the old one may be lost already.
_IDLE_MS_MAX = 20_000


def is_access_refusal(frame: Frame) -> bool:
    """Whether access control refused the request."""
    remark = frame.remark or ""
    if frame.code == ResponseCode.SYSTEM_ERROR:
        return _ACCESS_1.match(remark) is not None
    return frame.code == ResponseCode.NO_PERMISSION and _ACCESS_2.match(remark) is not None


def is_not_there(frame: Frame, code: int) -> bool:
    """Whether code 1 stands for something that does not exist; `code`: that of the request."""
    pattern = _NOT_THERE.get(code)
    if frame.code != ResponseCode.SYSTEM_ERROR or pattern is None:
        return False
    return pattern.match(frame.remark or "") is not None


def is_shut_slave(frame: Frame, code: int) -> bool:
    """Whether a slave with slaveReadEnable=false refused a read; `code`: that of the request."""
    is_rejected = frame.code == ResponseCode.SYSTEM_BUSY and (frame.remark or "").startswith(_REJECTED)
    return is_rejected and code == RequestCode.PULL_MESSAGE


def checked(frame: Frame, request: Request, address: str, accepted: Container[int]) -> Frame:
    """Return the response if its code is an answer; SYSTEM_ERROR is one only if its remark shows "does not exist".

    Raises: Refused.
    """
    if frame.code in accepted and (frame.code != ResponseCode.SYSTEM_ERROR or is_not_there(frame, request.code)):
        return frame
    raise refusal(frame, request, address)


def refusal(frame: Frame, request: Request, address: str) -> Refused:
    """Return a broker's refusal as an error."""
    name = f" {NAMES[frame.code]}" if frame.code in NAMES else ""
    advice = ADVICE.get(frame.code)
    if is_access_refusal(frame):
        advice = _CREDENTIALS_ADVICE
    elif is_shut_slave(frame, request.code):
        advice = _SLAVE_ADVICE
    return Refused(
        f"{address} refused {request.name}: code {frame.code}{name}, {_short(frame.remark)}",
        code=frame.code, remark=frame.remark, request=request.name,
        advice=advice,
    )


def _short(remark: str | None) -> str:
    """A remark in one line, without the positions in Java files that exceptions have."""
    text = " ".join((remark or "no remark").split())
    text = re.sub(r"^org\.apache\.rocketmq\.acl\.common\.AclException: ", "", text)
    return re.sub(r", [\w.$/]+\([\w$]+\.java:\d+\)$", "", text)[:300]


class Client:
    """Keeps one connection per address, opened when needed.

    A read may be sent twice (`call`), a request that changes something is sent once (`answer`).
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
        self, address: str, request: Request, *, accepted: Container[int] = (ResponseCode.SUCCESS,),
        timeout_ms: int | None = None,
    ) -> Frame:
        """Send a request that reads, again over a new connection if the first one was lost before the timeout; return
        the response.

        `accepted`: response codes that are answers.
        Raises: Unreachable, NoAnswer, Refused, BadFrame.
        """
        end = time.monotonic() + (self.settings.timeout_ms if timeout_ms is None else timeout_ms) / 1000
        try:
            frame = self.connection(address).call(request, timeout_ms)
        except (Unreachable, NoAnswer):
            left_ms = int((end - time.monotonic()) * 1000)
            if left_ms <= 0 or not self._is_broken(address):
                raise
            frame = self.connection(address).call(request, left_ms)
        return checked(frame, request, address, accepted)

    def answer(self, address: str, request: Request) -> Frame:
        """Send a request that changes something, once, over a connection in recent use; return the response.

        Raises: Unreachable (nothing was sent), NoAnswer and BadFrame (unknown outcome).
        """
        return self.connection(address, _IDLE_MS_MAX).call(request)

    def _is_broken(self, address: str) -> bool:
        """Whether there was a connection that was lost."""
        found = self._connections.get(address)
        return found is not None and found.is_closed

    def calls(
        self, address: str, requests: Iterable[Request], *, accepted: Container[int] = (ResponseCode.SUCCESS,),
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
