"""Bytes to an address and back, plain or over TLS, and in one line why that cannot be."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
import time
from typing import Protocol

from remoting.protocol.addresses import host_and_port
from remoting.protocol.errors import Unreachable
from remoting.protocol.settings import RemotingSettings

_READ_BYTES = 1 << 18
_DAY = 86_400


class Stream(Protocol):
    """A connection's bytes: one thread receives, several send."""

    def recv(self) -> bytes:
        """Some bytes; none at the end."""

    def sendall(self, data: bytes) -> None:
        """Send all of them."""

    def close(self) -> None:
        """End it; who receives gets the end."""


class PlainStream:
    """Bytes as they are."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._sending = threading.Lock()

    def recv(self) -> bytes:
        """Some bytes; none at the end."""
        return self._socket.recv(_READ_BYTES)

    def sendall(self, data: bytes) -> None:
        """Send all of them."""
        with self._sending:
            self._socket.sendall(data)

    def close(self) -> None:
        """End it."""
        _end(self._socket)


class TlsStream:
    """Bytes over TLS. OpenSSL's state is not for two threads at once, so it stands between locks, not in the socket."""

    def __init__(self, connection: socket.socket, context: ssl.SSLContext, server_name: str) -> None:
        self._socket = connection
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        self._state = threading.Lock()
        self._sending = threading.Lock()  # taken before the other: pieces go out in the order in which they were made

    def handshake(self) -> None:
        """Agree on keys, and verify who answers.

        Raises: OSError.
        """
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._flush()
                data = self._socket.recv(_READ_BYTES)
                if not data:
                    raise ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "closed in the handshake") from None
                self._incoming.write(data)
            except ssl.SSLError:
                with contextlib.suppress(OSError):  # the alert, so that the other side knows why
                    self._flush()
                raise
        self._flush()

    def recv(self) -> bytes:
        """Some bytes; none at the end."""
        while True:
            with self._state:
                try:
                    return self._tls.read(_READ_BYTES)
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLZeroReturnError:
                    return b""
                wants_to_send = self._outgoing.pending > 0  # a key update, say
            if wants_to_send:
                self._flush()
            data = self._socket.recv(_READ_BYTES)
            if not data:
                return b""
            with self._state:
                self._incoming.write(data)

    def sendall(self, data: bytes) -> None:
        """Send all of them."""
        with self._sending:
            with self._state:
                self._tls.write(data)
                made = self._outgoing.read()
            self._socket.sendall(made)

    def close(self) -> None:
        """End it."""
        _end(self._socket)

    def _flush(self) -> None:
        with self._sending:
            with self._state:
                made = self._outgoing.read()
            if made:
                self._socket.sendall(made)


def open_stream(address: str, settings: RemotingSettings) -> Stream:
    """A connection to an address, made and, with TLS, verified within the time that the settings give.

    Raises: Unreachable.
    """
    host, port = host_and_port(address)
    end = time.monotonic() + settings.connect_timeout_ms / 1000
    try:
        connection = socket.create_connection((host, port), settings.connect_timeout_ms / 1000)
    except OSError as error:
        raise Unreachable(f"cannot connect to {address}: {_reason(error, settings)}") from error
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if settings.tls is None:
            _wait_without_end(connection, settings)
            return PlainStream(connection)
        connection.settimeout(max(0.1, end - time.monotonic()))
        stream = TlsStream(connection, settings.tls, settings.tls_server_name or host)
        stream.handshake()
        _wait_without_end(connection, settings)
    except OSError as error:
        _end(connection)
        problem, advice = _tls_problem(error)
        raise Unreachable(f"no TLS with {address}: {problem}", advice=advice) from error
    return stream


def _wait_without_end(connection: socket.socket, settings: RemotingSettings) -> None:
    """Receiving takes as long as it takes (requests have their own patience); sending to who does not read does not."""
    connection.settimeout(None)
    seconds, rest_ms = divmod(min(settings.timeout_ms, _DAY * 1000), 1000)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", seconds, rest_ms * 1000))


def _reason(error: OSError, settings: RemotingSettings) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {settings.connect_timeout_ms} ms"
    if isinstance(error, socket.gaierror):
        return "no such host is known"
    return str(error.strerror or error).lower()


def _tls_problem(error: OSError) -> tuple[str, str]:
    """What a failed handshake means, and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        told = error.verify_message or "it cannot be verified"
        if "ismatch" in told:  # Hostname mismatch, IP address mismatch
            return f"its certificate is for another name ({told})", "--tls-server-name NAME says which name it has"
        return (
            f"its certificate is not trusted ({told})",
            "--tls-ca FILE names who signed it; --tls-insecure trusts anybody",
        )
    if isinstance(error, TimeoutError):
        return "it does not answer a handshake", "leave --tls out if it speaks without"
    if isinstance(error, ssl.SSLEOFError | ConnectionError) or "WRONG_VERSION_NUMBER" in str(error):
        return "it ends the handshake, as a port without TLS does", "leave --tls out if it speaks without"
    reason = str(getattr(error, "reason", None) or error.strerror or error).replace("_", " ").lower()
    return reason, "does it want a client certificate? --tls-cert FILE gives ours"


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
