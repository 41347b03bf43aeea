"""A server for tests: answers frames as it is told, over TLS too, and remembers what it was asked."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from typing import Self

from rmqtx.remoting.protocol.codes import IS_RESPONSE
from rmqtx.remoting.protocol.errors import BadFrame
from rmqtx.remoting.protocol.frames import Frame, FrameReader, encoded

#: A response, raw bytes instead of one, both or more of them; None ends the connection, nothing at all keeps silent.
Answer = Frame | bytes | None | Iterable[Frame | bytes]


def response(request: Frame, code: int = 0, remark: str | None = None, body: bytes = b"", **fields: str) -> Frame:
    """The response to a request."""
    return Frame(code, request.opaque, fields, body, IS_RESPONSE, remark, 479, "JAVA", request.encoding)


class FakeServer:
    """Answers each request with what a function gives for it."""

    def __init__(self, answer: Callable[[Frame], Answer], tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[Frame] = []
        self.connections = 0
        self._answer = answer
        self._tls = tls
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Serve no longer, and end all connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """End all connections."""
        for connection in self._sockets:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self._sockets = []

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                self._sockets.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        reader = FrameReader()
        with contextlib.suppress(OSError, BadFrame), connection, contextlib.ExitStack() as stack:
            if self._tls is not None:
                connection = stack.enter_context(self._tls.wrap_socket(connection, server_side=True))
            while data := connection.recv(1 << 16):
                for frame in reader.feed(data):
                    self.requests.append(frame)
                    given = self._answer(frame)
                    if given is None:
                        connection.shutdown(socket.SHUT_RDWR)
                        return
                    parts = [given] if isinstance(given, Frame | bytes) else list(given)
                    connection.sendall(b"".join(encoded(part) if isinstance(part, Frame) else part for part in parts))
