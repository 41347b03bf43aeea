"""One connection: a thread matches responses to requests, and passes requests of the broker to a handler."""

from __future__ import annotations

import base64
import copy
import hashlib
import hmac
import itertools
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rmqtx.remoting.connections.transport import open_stream
from rmqtx.remoting.protocol.codes import RequestCode
from rmqtx.remoting.protocol.connection_settings import Credentials, RemotingSettings
from rmqtx.remoting.protocol.errors import BadFrame, NoAnswer, RemotingError, Unreachable
from rmqtx.remoting.protocol.frames import Frame, FrameReader, encoded

_OPAQUE_MAX = (1 << 31) - 1

Value = str | int | bool | None
#: Never signed: the signature, and a field that 4.9.7 always skips and 5.3 and 5.5 skip for clients up to 4.9.3
#: (OUR_VERSION).
_UNSIGNED = ("Signature", "_UNIQUE_KEY_QUERY")


@dataclass(frozen=True, slots=True)
class Request:
    """A request. Shape: `fields` may contain numbers, booleans and None (skipped); they are sent as text."""

    code: int
    fields: Mapping[str, Value] = field(default_factory=dict)
    body: bytes = b""

    @property
    def name(self) -> str:
        """RocketMQ's name of the request."""
        try:
            return RequestCode(self.code).name
        except ValueError:
            return f"request {self.code}"

    def texts(self) -> dict[str, str]:
        """The fields as they are sent."""
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in self.fields.items()
            if value is not None
        }


class SentRequest:
    """A request that was sent and has no response yet."""

    def __init__(self, connection: Connection, request: Request, opaque: int) -> None:
        self._connection = connection
        self._request = request
        self._opaque = opaque
        self._sent_ms = _now_ms()
        self._answers: queue.SimpleQueue[Frame | RemotingError] = queue.SimpleQueue()

    def resolve(self, answer: Frame | RemotingError) -> None:
        """Set the response, or the error if there will be none."""
        self._answers.put(answer)

    def result(self, timeout_ms: int) -> Frame:
        """Wait for the response and return it.

        Raises: NoAnswer if there is none in time, or the connection ends before; BadFrame.
        """
        try:
            answer = self._answers.get(timeout=max(0.0, timeout_ms / 1000))
        except queue.Empty:
            self._connection.forget(self._opaque, self._sent_ms)
            raise NoAnswer(
                f"{self._connection.address} did not answer {self._request.name} within {timeout_ms} ms",
                advice="to wait longer, add --timeout DURATION",
            ) from None
        if isinstance(answer, RemotingError):
            raise copy.copy(answer)  # several threads may wait, and each raises its own copy
        return answer


class Connection:
    """A connection to one address. Its requests may be sent from several threads.

    `on_request`: called in the connection's thread with requests of the broker (CHECK_TRANSACTION_STATE).
    Raises: Unreachable.
    """

    def __init__(
        self, address: str, settings: RemotingSettings, on_request: Callable[[Frame], None] | None = None
    ) -> None:
        self.address = address
        self._settings = settings
        self._on_request = on_request
        self._numbers = itertools.count(1)
        self._waiting: dict[int, SentRequest] = {}
        self._lock = threading.Lock()
        self._failure: RemotingError | None = None
        self._has_received = False
        self._received_ms = _now_ms()
        self._stream = open_stream(address, settings)
        self._thread = threading.Thread(target=self._read, name=f"remoting {address}", daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent over it."""
        return self._failure is not None

    @property
    def idle_ms(self) -> int:
        """Time since the last received bytes: brokers end connections that are silent for two minutes."""
        return _now_ms() - self._received_ms

    @property
    def has_no_pending_request(self) -> bool:
        """Whether no request waits for a response over it."""
        return not self._waiting

    def start(self, request: Request) -> SentRequest:
        """Send a request; `SentRequest.result` waits for the response.

        Raises: Unreachable if the connection is closed and nothing was sent; NoAnswer if it was lost while sending.
        """
        opaque = next(self._numbers) & _OPAQUE_MAX
        data = self._bytes(request, opaque)
        sent = SentRequest(self, request, opaque)
        with self._lock:
            self._refuse_closed()
            self._waiting[opaque] = sent
        self._send(request, data)
        return sent

    def call(self, request: Request, timeout_ms: int | None = None) -> Frame:
        """Send a request and return its response, of any code. Raises: Unreachable, NoAnswer, BadFrame."""
        return self.start(request).result(self._settings.timeout_ms if timeout_ms is None else timeout_ms)

    def forget(self, opaque: int, sent_ms: int) -> None:
        """Stop waiting for a response; a connection that received nothing since the request was sent is closed."""
        with self._lock:
            self._waiting.pop(opaque, None)
            is_silent = self._received_ms <= sent_ms
        if is_silent:
            self._end(NoAnswer(f"{self.address} no longer responds"))

    def close(self) -> None:
        """End the connection; requests that still wait get NoAnswer."""
        self._end(NoAnswer(f"rmqtx closed the connection to {self.address}"))
        if threading.current_thread() is not self._thread:
            self._thread.join(5)

    def _refuse_closed(self) -> None:
        if self._failure is not None:
            raise Unreachable(
                f"the connection to {self.address} is closed: {self._failure.message}", advice=self._failure.advice
            )

    def _bytes(self, request: Request, opaque: int) -> bytes:
        settings = self._settings
        fields = request.texts()
        if settings.credentials is not None:
            try:
                fields = signed(fields, request.body, settings.credentials)
            except UnicodeEncodeError as error:
                raise BadFrame("cannot sign a field that is not valid Unicode text") from error
        frame = Frame(
            request.code, opaque, fields, request.body, version=settings.version, encoding=settings.encoding
        )
        return encoded(frame)

    def _send(self, request: Request, data: bytes) -> None:
        try:
            self._stream.sendall(data)
        except OSError as error:  # the broker may have received a part
            failure = NoAnswer(
                f"the connection to {self.address} was lost while {request.name} was sent: {error.strerror or error}",
                advice=self._tls_advice(),
            )
            self._end(failure)
            raise failure from error

    def _read(self) -> None:
        reader = FrameReader()
        failure: RemotingError = NoAnswer(f"internal error while reading from {self.address}")
        try:
            while data := self._stream.recv():
                self._received_ms = _now_ms()
                for frame in reader.feed(data):
                    self._has_received = True
                    self._take(frame)
            failure = self._end_of_stream(reader)
        except BadFrame as error:
            failure = BadFrame(f"{self.address} does not use RocketMQ's protocol: {error}")
        except OSError as error:
            problem = str(error.strerror or error).lower()
            failure = NoAnswer(f"the connection to {self.address} was lost: {problem}", advice=self._tls_advice())
        finally:  # so that no request waits permanently
            self._end(failure)

    def _end_of_stream(self, reader: FrameReader) -> NoAnswer:
        where = " in the middle of a frame" if reader.is_inside else ""
        return NoAnswer(f"{self.address} closed the connection{where}", advice=None if where else self._tls_advice())

    def _tls_advice(self) -> str | None:
        """Advice for a connection that ended before any frame: the port may require TLS, or a client certificate.

        TLS 1.3 refuses a certificate after the handshake, and the alert with the reason may be lost.
        """
        if self._has_received:
            return None
        if self._settings.tls is None:
            return "if the port requires TLS, add --tls"
        return "if the port requires a client certificate, add --tls-cert FILE"

    def _take(self, frame: Frame) -> None:
        if not frame.is_response:
            if self._on_request is not None:
                self._on_request(frame)
            return
        with self._lock:
            sent = self._waiting.pop(frame.opaque, None)
        if sent is not None:  # None if its timeout has passed
            sent.resolve(frame)

    def _end(self, failure: RemotingError) -> None:
        with self._lock:
            if self._failure is None:
                self._failure = failure
            failure = self._failure
            waiting, self._waiting = self._waiting, {}
        self._stream.close()
        for one in waiting.values():
            one.resolve(failure)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


# The signature of a request, for brokers with access control (1.0; 2.0 of 5.3+ accepts it too).
#
# Source: acl/common/AclClientRPCHook.java, AclUtils.java; docs/formats/wire.md#signature.


def signed(fields: Mapping[str, str], body: bytes, credentials: Credentials) -> dict[str, str]:
    """Return the fields of a request with the access key and the signature added."""
    result = {**fields, "AccessKey": credentials.access_key}
    if credentials.security_token is not None:
        result["SecurityToken"] = credentials.security_token
    names = sorted((name for name in result if name not in _UNSIGNED), key=lambda name: name.encode("utf-16-be"))
    content = "".join(result[name] for name in names).encode() + body
    digest = hmac.new(credentials.secret_key.encode(), content, hashlib.sha1).digest()
    result["Signature"] = base64.b64encode(digest).decode()
    return result
