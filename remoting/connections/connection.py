"""One connection: requests go out, a thread joins what comes back to them; requests of the broker go to a handler."""

from __future__ import annotations

import copy
import itertools
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from remoting.connections.transport import open_stream
from remoting.protocol.codes import IS_ONEWAY, RequestCode
from remoting.protocol.errors import BadFrame, NoAnswer, RemotingError, Unreachable
from remoting.protocol.frames import Frame, FrameReader, encoded
from remoting.protocol.settings import RemotingSettings
from remoting.protocol.signing import signed

_OPAQUE_MAX = (1 << 31) - 1

Value = str | int | bool | None


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked.

    Shape: `fields` may hold numbers, truth values and None (left out); they go out as text.
    """

    code: int
    fields: Mapping[str, Value] = field(default_factory=dict)
    body: bytes = b""

    @property
    def name(self) -> str:
        """The name of the request, as RocketMQ has it."""
        try:
            return RequestCode(self.code).name
        except ValueError:
            return f"request {self.code}"

    def texts(self) -> dict[str, str]:
        """The fields as they go over the wire."""
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in self.fields.items()
            if value is not None
        }


class Pending:
    """A request that was sent and whose response is awaited."""

    def __init__(self, connection: Connection, request: Request, opaque: int) -> None:
        self._connection = connection
        self._request = request
        self._opaque = opaque
        self._sent_ms = _now_ms()
        self._answers: queue.SimpleQueue[Frame | RemotingError] = queue.SimpleQueue()

    def settle(self, answer: Frame | RemotingError) -> None:
        """Give it its response, or the reason why there will be none."""
        self._answers.put(answer)

    def result(self, timeout_ms: int) -> Frame:
        """The response.

        Raises: NoAnswer if none comes in time, or the connection ends before; BadFrame.
        """
        try:
            answer = self._answers.get(timeout=max(0.0, timeout_ms / 1000))
        except queue.Empty:
            self._connection.forget(self._opaque, self._sent_ms)
            raise NoAnswer(
                f"{self._connection.address} did not answer {self._request.name} within {timeout_ms} ms",
                advice="--timeout waits longer",
            ) from None
        if isinstance(answer, RemotingError):
            raise copy.copy(answer)  # several may wait, in several threads, and each raises its own
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
        self._has_spoken = False
        self._heard_ms = _now_ms()
        self._stream = open_stream(address, settings)
        self._thread = threading.Thread(target=self._read, name=f"remoting {address}", daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent over it any more."""
        return self._failure is not None

    @property
    def idle_ms(self) -> int:
        """How long ago the other side was last heard of: brokers end connections that are silent for two minutes."""
        return _now_ms() - self._heard_ms

    @property
    def is_unused(self) -> bool:
        """Whether nobody waits for a response over it."""
        return not self._waiting

    def start(self, request: Request) -> Pending:
        """Send a request; the response is awaited by `Pending.result`.

        Raises: Unreachable if the connection is closed and nothing was sent; NoAnswer if it broke while sending.
        """
        opaque = next(self._numbers) & _OPAQUE_MAX
        data = self._bytes(request, opaque, 0)
        pending = Pending(self, request, opaque)
        with self._lock:
            self._refuse_closed()
            self._waiting[opaque] = pending
        self._send(request, data)
        return pending

    def call(self, request: Request, timeout_ms: int | None = None) -> Frame:
        """The response to a request, whatever its code is.

        Raises: Unreachable, NoAnswer, BadFrame.
        """
        return self.start(request).result(self._settings.timeout_ms if timeout_ms is None else timeout_ms)

    def forget(self, opaque: int, sent_ms: int) -> None:
        """Wait no longer for a response; a connection that gave nothing at all since it was asked is given up."""
        with self._lock:
            self._waiting.pop(opaque, None)
            is_silent = self._heard_ms <= sent_ms
        if is_silent:
            self._end(NoAnswer(f"{self.address} says nothing any more"))

    def tell(self, request: Request) -> None:
        """Send a request that wants no response.

        Raises: Unreachable, NoAnswer.
        """
        data = self._bytes(request, next(self._numbers) & _OPAQUE_MAX, IS_ONEWAY)
        self._refuse_closed()
        self._send(request, data)

    def close(self) -> None:
        """End the connection; who still waits gets NoAnswer."""
        self._end(NoAnswer(f"the connection to {self.address} was closed here"))
        if threading.current_thread() is not self._thread:
            self._thread.join(5)

    def _refuse_closed(self) -> None:
        if self._failure is not None:
            raise Unreachable(
                f"the connection to {self.address} is closed: {self._failure.message}", advice=self._failure.advice
            )

    def _bytes(self, request: Request, opaque: int, flag: int) -> bytes:
        settings = self._settings
        fields = request.texts()
        if settings.credentials is not None:
            try:
                fields = signed(fields, request.body, settings.credentials)
            except UnicodeEncodeError as error:
                raise BadFrame("a field is no text that can be signed and sent") from error
        frame = Frame(
            request.code, opaque, fields, request.body, flag, version=settings.version, encoding=settings.encoding
        )
        return encoded(frame)

    def _send(self, request: Request, data: bytes) -> None:
        try:
            self._stream.sendall(data)
        except OSError as error:  # some of it may be there
            failure = NoAnswer(
                f"the connection to {self.address} broke while {request.name} was sent: {error.strerror or error}",
                advice=self._tls_advice(),
            )
            self._end(failure)
            raise failure from error

    def _read(self) -> None:
        reader = FrameReader()
        failure: RemotingError = NoAnswer(f"what reads from {self.address} came upon a bug")
        try:
            while data := self._stream.recv():
                self._heard_ms = _now_ms()
                for frame in reader.feed(data):
                    self._has_spoken = True
                    self._take(frame)
            failure = self._end_of_stream(reader)
        except BadFrame as error:
            failure = BadFrame(f"what {self.address} says is not RocketMQ's protocol: {error}")
        except OSError as error:
            problem = str(error.strerror or error).lower()
            failure = NoAnswer(f"the connection to {self.address} broke: {problem}", advice=self._tls_advice())
        finally:  # whatever happens, nobody waits for ever
            self._end(failure)

    def _end_of_stream(self, reader: FrameReader) -> NoAnswer:
        where = " in the middle of a frame" if reader.is_inside else ""
        return NoAnswer(f"{self.address} closed the connection{where}", advice=None if where else self._tls_advice())

    def _tls_advice(self) -> str | None:
        """For a connection that ended before anything came over it: a port that wants TLS, or that wants a certificate
        of ours, ends it like that. TLS 1.3 refuses a certificate after the handshake, and what says why may be lost.
        """
        if self._has_spoken:
            return None
        if self._settings.tls is None:
            return "if it speaks nothing but TLS, add --tls"
        return "if it wants a client certificate, --tls-cert FILE gives one that it trusts"

    def _take(self, frame: Frame) -> None:
        if not frame.is_response:
            if self._on_request is not None:
                self._on_request(frame)
            return
        with self._lock:
            pending = self._waiting.pop(frame.opaque, None)
        if pending is not None:  # else its asker has given up
            pending.settle(frame)

    def _end(self, failure: RemotingError) -> None:
        with self._lock:
            if self._failure is None:
                self._failure = failure
            failure = self._failure
            waiting, self._waiting = self._waiting, {}
        self._stream.close()
        for pending in waiting.values():
            pending.settle(failure)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
