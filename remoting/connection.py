"""One connection: requests go out, a thread joins what comes back to them; requests of the broker go to a handler."""

from __future__ import annotations

import contextlib
import itertools
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from remoting.addresses import host_and_port
from remoting.codes import IS_ONEWAY, RequestCode
from remoting.errors import BadFrame, NoAnswer, RemotingError, Unreachable
from remoting.frames import Frame, FrameReader, encoded
from remoting.settings import RemotingSettings
from remoting.signing import signed

_READ_BYTES = 1 << 18

Value = str | int | bool | None


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked.

    Shape: `fields` may hold numbers, truth values and None (left out); they go out as text.
    """

    code: RequestCode
    fields: Mapping[str, Value] = field(default_factory=dict)
    body: bytes = b""

    @property
    def name(self) -> str:
        """The name of the request, as RocketMQ has it."""
        return self.code.name

    def texts(self) -> dict[str, str]:
        """The fields as they go over the wire."""
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in self.fields.items()
            if value is not None
        }


class Pending:
    """A request that was sent and whose response is awaited."""

    def __init__(self, connection: Connection, request: Request) -> None:
        self._connection = connection
        self._request = request
        self._answers: queue.SimpleQueue[Frame | RemotingError] = queue.SimpleQueue()

    def settle(self, answer: Frame | RemotingError) -> None:
        """Give it its response, or the reason why there will be none."""
        self._answers.put(answer)

    def result(self, timeout_ms: int) -> Frame:
        """The response.

        Raises: NoAnswer if none comes in time, or the connection ends before.
        """
        try:
            answer = self._answers.get(timeout=max(0.0, timeout_ms / 1000))
        except queue.Empty:
            raise NoAnswer(
                f"{self._connection.address} did not answer {self._request.name} within {timeout_ms} ms"
            ) from None
        if isinstance(answer, RemotingError):
            raise answer
        return answer


class Connection:
    """A connection to one address. Its requests may be sent from several threads.

    `on_request`: called in the connection's thread with what the broker asks by itself (CHECK_TRANSACTION_STATE).
    Raises: Unreachable.
    """

    def __init__(
        self, address: str, settings: RemotingSettings, on_request: Callable[[Frame], None] | None = None
    ) -> None:
        self.address = address
        self._settings = settings
        self._on_request = on_request
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Pending] = {}
        self._lock = threading.Lock()
        self._failure: RemotingError | None = None
        self._socket = _connected(address, settings)
        self._thread = threading.Thread(target=self._read, name=f"remoting {address}", daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent over it any more."""
        return self._failure is not None

    def start(self, request: Request) -> Pending:
        """Send a request; the response is awaited by `Pending.result`.

        Raises: Unreachable if the connection is closed and nothing was sent; NoAnswer if it broke while sending.
        """
        opaque = next(self._numbers)
        pending = Pending(self, request)
        with self._lock:
            if self._failure is not None:
                raise Unreachable(f"the connection to {self.address} is closed: {self._failure.message}")
            self._waiting[opaque] = pending
        self._send(request, opaque, 0)
        return pending

    def call(self, request: Request, timeout_ms: int | None = None) -> Frame:
        """The response to a request, whatever its code is.

        Raises: Unreachable, NoAnswer.
        """
        return self.start(request).result(self._settings.timeout_ms if timeout_ms is None else timeout_ms)

    def tell(self, request: Request) -> None:
        """Send a request that wants no response.

        Raises: Unreachable, NoAnswer.
        """
        if self._failure is not None:
            raise Unreachable(f"the connection to {self.address} is closed: {self._failure.message}")
        self._send(request, next(self._numbers), IS_ONEWAY)

    def close(self) -> None:
        """End the connection; who still waits gets NoAnswer."""
        self._fail(NoAnswer(f"the connection to {self.address} was closed here"))
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        if threading.current_thread() is not self._thread:
            self._thread.join(5)

    def _send(self, request: Request, opaque: int, flag: int) -> None:
        settings = self._settings
        fields = request.texts()
        if settings.credentials is not None:
            fields = signed(fields, request.body, settings.credentials)
        frame = Frame(
            request.code, opaque, fields, request.body, flag, version=settings.version, encoding=settings.encoding
        )
        data = encoded(frame)
        try:
            with self._lock:
                self._socket.sendall(data)
        except OSError as error:
            failure = NoAnswer(f"the connection to {self.address} broke while {request.name} was sent: {error}")
            self._fail(failure)
            raise failure from error

    def _read(self) -> None:
        reader = FrameReader()
        try:
            while data := self._socket.recv(_READ_BYTES):
                for frame in reader.feed(data):
                    self._take(frame)
            where = " in the middle of a frame" if reader.is_inside else ""
            self._fail(NoAnswer(f"{self.address} closed the connection{where}"))
        except BadFrame as error:
            self._fail(error)
        except OSError as error:
            self._fail(NoAnswer(f"the connection to {self.address} broke: {error.strerror or error}"))

    def _take(self, frame: Frame) -> None:
        if not frame.is_response:
            if self._on_request is not None:
                self._on_request(frame)
            return
        with self._lock:
            pending = self._waiting.pop(frame.opaque, None)
        if pending is not None:  # else its asker has given up
            pending.settle(frame)

    def _fail(self, failure: RemotingError) -> None:
        with self._lock:
            if self._failure is not None:
                return
            self._failure = failure
            waiting, self._waiting = self._waiting, {}
        for pending in waiting.values():
            pending.settle(failure)


def _connected(address: str, settings: RemotingSettings) -> socket.socket:
    host, port = host_and_port(address)
    end = time.monotonic() + settings.connect_timeout_ms / 1000
    try:
        plain = socket.create_connection((host, port), settings.connect_timeout_ms / 1000)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if settings.tls is not None:
            plain.settimeout(max(0.1, end - time.monotonic()))
            plain = settings.tls.wrap_socket(plain, server_hostname=settings.tls_server_name or host)
        plain.settimeout(None)
    except OSError as error:
        raise Unreachable(f"cannot connect to {address}: {error.strerror or error}") from error
    return plain


