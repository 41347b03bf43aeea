"""A proxy between rmqtx and a broker that injects faults into chosen frames.

    with FaultProxy("127.0.0.1:10911") as proxy:
        proxy.break_next(Fault("drop", "response", request_code=37))
        ... rmqtx commit ID --broker {proxy.address} ...
        assert proxy.requests[37] == 1
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass
from types import TracebackType
from typing import Literal

from rmqtx.remoting.protocol.connection_settings import host_and_port
from rmqtx.remoting.protocol.frames import Frame, decoded

Direction = Literal["request", "response"]


@dataclass(frozen=True, slots=True)
class Fault:
    """What is done to a frame.

    Shape: `kind` delay (passed on after `delay_ms`), cut (`keep_bytes` of it are passed on, then both connections end:
           the default of 6 ends inside the lengths, 0 passes nothing on), drop (only this frame is not passed on) or
           hang (this frame and all later ones of the direction are not passed on, and the connections stay open).
           `request_code` limits it to such requests and their responses; it is applied to the `nth` of those (from 1,
           counted from when it was set), and with `is_lasting` to every later one too.
    """

    kind: Literal["delay", "cut", "drop", "hang"]
    direction: Direction = "response"
    request_code: int | None = None
    nth: int = 1
    is_lasting: bool = False
    delay_ms: int = 0
    keep_bytes: int = 6


class FaultProxy:
    """Listens on 127.0.0.1 and passes all frames on to a target, except for the faults that are set.

    Shape: `requests` and `responses` count received frames, by request code; `struck`: the applied faults.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.requests: Counter[int] = Counter()
        self.responses: Counter[int] = Counter()
        self.struck: list[Fault] = []
        self._faults: list[tuple[Fault, int]] = []  # with the number of matching frames so far
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._is_closed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    @property
    def address(self) -> str:
        """The address to connect to."""
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def break_next(self, *faults: Fault) -> None:
        """Add faults; lasting ones are ended by `heal`."""
        with self._lock:
            self._faults += [(fault, 0) for fault in faults]

    def heal(self) -> None:
        """Remove all faults; connections that hang still hang."""
        with self._lock:
            self._faults.clear()

    def end_connections(self) -> None:
        """End all connections, as if the broker was killed."""
        with self._lock:
            sockets, self._sockets = self._sockets, set()
        for each in sockets:
            _end(each)

    def close(self) -> None:
        """Stop listening, and end all connections."""
        self._is_closed = True
        _end(self._listener)
        self.end_connections()

    def __enter__(self) -> FaultProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(host_and_port(self.target), 10)
            except OSError:
                _end(near)
                continue
            far.settimeout(None)
            with self._lock:
                self._sockets |= {near, far}
            codes: dict[int, int] = {}  # of this connection: opaque → code of the request
            for direction, source, sink in (("request", near, far), ("response", far, near)):
                threading.Thread(
                    target=self._pass_on, args=(direction, source, sink, codes), name=f"proxy {direction}", daemon=True
                ).start()

    def _pass_on(self, direction: Direction, source: socket.socket, sink: socket.socket, codes: dict[int, int]) -> None:
        data = bytearray()
        is_hanging = False
        with contextlib.suppress(OSError):
            while got := source.recv(1 << 16):
                data += got
                while len(data) >= 4 and len(data) >= (length := 4 + int.from_bytes(data[:4], "big")):
                    piece = bytes(data[:length])
                    del data[:length]
                    fault = None if is_hanging else self._fault(direction, decoded(piece), codes)
                    if fault is not None and fault.kind == "cut":
                        sink.sendall(piece[: fault.keep_bytes])
                        _end(source)
                        _end(sink)
                        return
                    is_hanging = is_hanging or (fault is not None and fault.kind == "hang")
                    if fault is not None and fault.kind == "delay":
                        time.sleep(fault.delay_ms / 1000)
                    if not is_hanging and not (fault is not None and fault.kind == "drop"):
                        sink.sendall(self.changed(direction, piece))
        _end(source)
        _end(sink)

    def changed(self, direction: Direction, piece: bytes) -> bytes:
        """What is passed on for a frame."""
        return piece

    def _fault(self, direction: Direction, frame: Frame, codes: dict[int, int]) -> Fault | None:
        """The fault to apply to a frame, if any."""
        is_request = not frame.is_response  # brokers send requests too (CHECK_TRANSACTION_STATE)
        with self._lock:
            if direction == "request" and is_request:
                codes[frame.opaque] = frame.code
            code = frame.code if is_request else codes.get(frame.opaque, -1)
            (self.requests if direction == "request" else self.responses)[code] += 1
            found: Fault | None = None
            left: list[tuple[Fault, int]] = []
            for fault, seen in self._faults:
                if fault.direction == direction and fault.request_code in (None, code):
                    seen += 1
                    if found is None and seen >= fault.nth:
                        found = fault
                        self.struck.append(fault)
                        if not fault.is_lasting:
                            continue
                left.append((fault, seen))
            self._faults = left
            return found


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):
        connection.close()
