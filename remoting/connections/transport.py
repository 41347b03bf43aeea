"""Sending and receiving bytes, plain or over TLS, with errors of one line."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
import time
from pathlib import Path
from typing import Protocol

from rmqtx.readers.model.errors import BadRequest, UnreadableFile
from rmqtx.remoting.protocol.connection_settings import RemotingSettings, host_and_port
from rmqtx.remoting.protocol.errors import Unreachable

_READ_BYTES = 1 << 18
#: How long the system sends data again that the other side does not acknowledge.
UNACKNOWLEDGED_MS_MAX = 10_000
_DAY = 86_400
KEY_PASSWORD = "RMQTX_TLS_KEY_PASSWORD"


class Stream(Protocol):
    """A connection's bytes: one thread receives, several send."""

    def recv(self) -> bytes:
        """Return the next bytes; empty at the end of the stream."""

    def sendall(self, data: bytes) -> None:
        """Send all bytes of `data`."""

    def close(self) -> None:
        """Close the connection; `recv` then returns empty bytes."""


class PlainStream:
    """Bytes without encryption."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._sending = threading.Lock()

    def recv(self) -> bytes:
        """Return the next bytes; empty at the end of the stream."""
        return self._socket.recv(_READ_BYTES)

    def sendall(self, data: bytes) -> None:
        """Send all bytes of `data`."""
        with self._sending:
            self._socket.sendall(data)

    def close(self) -> None:
        """Close the connection."""
        _end(self._socket)


class TlsStream:
    """Bytes over TLS. OpenSSL's state is not thread-safe, so it is kept outside the socket, under locks."""

    def __init__(self, connection: socket.socket, context: ssl.SSLContext, server_name: str) -> None:
        self._socket = connection
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        self._state = threading.Lock()
        self._sending = threading.Lock()  # taken before the other, so that pieces are sent in the order of their making

    def handshake(self) -> None:
        """Agree on keys, and verify the certificate. Raises: OSError."""
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
                with contextlib.suppress(OSError):  # the alert, which gives the other side the reason
                    self._flush()
                raise
        self._flush()

    def recv(self) -> bytes:
        """Return the next bytes; empty at the end of the stream."""
        while True:
            with self._state:
                try:
                    return self._tls.read(_READ_BYTES)
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLZeroReturnError:
                    return b""
                has_outgoing = self._outgoing.pending > 0  # for example a key update
            if has_outgoing:
                self._flush()
            data = self._socket.recv(_READ_BYTES)
            if not data:
                return b""
            with self._state:
                self._incoming.write(data)

    def sendall(self, data: bytes) -> None:
        """Send all bytes of `data`."""
        with self._sending:
            with self._state:
                self._tls.write(data)
                made = self._outgoing.read()
            self._socket.sendall(made)

    def close(self) -> None:
        """Close the connection."""
        _end(self._socket)

    def _flush(self) -> None:
        with self._sending:
            with self._state:
                made = self._outgoing.read()
            if made:
                self._socket.sendall(made)


def open_stream(address: str, settings: RemotingSettings) -> Stream:
    """Open a connection to an address, and with TLS verify it, within the timeout of the settings.

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
        _limit_late_arrival(connection)
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
        raise Unreachable(f"cannot use TLS with {address}: {problem}", advice=advice) from error
    return stream


def _limit_late_arrival(connection: socket.socket) -> None:
    """Have the system drop what the other side has not acknowledged in time, also after the end of this process.

    Else a request after its timeout reaches the broker when the network works again, which may be minutes later.
    """
    option = getattr(socket, "TCP_USER_TIMEOUT", None)  # Linux
    if option is not None:
        connection.setsockopt(socket.IPPROTO_TCP, option, UNACKNOWLEDGED_MS_MAX)


def _wait_without_end(connection: socket.socket, settings: RemotingSettings) -> None:
    """Receive without a timeout (requests have their own), and send with a timeout."""
    connection.settimeout(None)
    seconds, rest_ms = divmod(min(settings.timeout_ms, _DAY * 1000), 1000)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", seconds, rest_ms * 1000))


def _reason(error: OSError, settings: RemotingSettings) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {settings.connect_timeout_ms} ms"
    if isinstance(error, socket.gaierror):
        return "unknown host"
    return str(error.strerror or error).lower()


def _tls_problem(error: OSError) -> tuple[str, str]:
    """The reason of a failed handshake, and advice."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = error.verify_message or "it cannot be verified"
        if "ismatch" in reason:  # Hostname mismatch, IP address mismatch
            return f"its certificate is for another name ({reason})", "give the name in it: --tls-server-name NAME"
        return (
            f"its certificate is not trusted ({reason})",
            "give its CA certificate: --tls-ca FILE; or skip the verification: --tls-insecure",
        )
    if isinstance(error, TimeoutError):
        return "it does not answer the handshake", "if the port does not use TLS, leave --tls out"
    if isinstance(error, ssl.SSLEOFError | ConnectionError) or "WRONG_VERSION_NUMBER" in str(error):
        return "it ends the handshake, as a port without TLS does", "if the port does not use TLS, leave --tls out"
    reason = str(getattr(error, "reason", None) or error.strerror or error).replace("_", " ").lower()
    return reason, "if the port requires a client certificate, add --tls-cert FILE"


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def tls_context(
    *, ca: Path | None = None, certificate: Path | None = None, key: Path | None = None,
    key_password: str | None = None, is_insecure: bool = False,
) -> ssl.SSLContext:
    """Return a context for connections to brokers.

    `ca`: file with the CA certificates to trust (default: those of the system). `certificate` and `key`: the client
    certificate, for brokers that require one; the key may be in the certificate's file. `is_insecure`: do not verify
    certificates.
    Raises: BadRequest, UnreadableFile.
    """
    if is_insecure and ca is not None:
        raise BadRequest("--tls-ca and --tls-insecure exclude each other", advice="leave one out")
    if key is not None and certificate is None:
        raise BadRequest("--tls-key is given without its certificate", advice="add --tls-cert FILE")
    context = _trusting(ca)
    if is_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        _load_certificate(context, certificate, key, key_password)
    return context


def _trusting(ca: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except ssl.SSLError as error:
        raise UnreadableFile("not a certificate in PEM form", file=ca) from error
    except OSError as error:
        raise UnreadableFile(f"cannot read the certificate: {error.strerror or error}", file=ca) from error


def _load_certificate(context: ssl.SSLContext, certificate: Path, key: Path | None, key_password: str | None) -> None:
    where = certificate if key is None else key
    try:
        # OpenSSL must not prompt for a missing password: cron has no terminal.
        context.load_cert_chain(certificate, key, password=key_password or "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise UnreadableFile(f"the key does not belong to the certificate {certificate}", file=where) from error
        raise UnreadableFile(
            "not a certificate and its key in PEM form, or the key's password is wrong", file=where,
            advice=f"set the password of an encrypted key in {KEY_PASSWORD}",
        ) from error
    except OSError as error:
        lacking = next((path for path in (certificate, key) if path is not None and not path.is_file()), where)
        raise UnreadableFile(f"cannot read the file: {error.strerror or error}", file=lacking) from error
