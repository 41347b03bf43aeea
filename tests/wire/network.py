"""Connections of a world: what is sent arrives later, twice, never, or ends the connection, as a seed has it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from rmqtx.remoting.protocol.codes import RequestCode
from rmqtx.remoting.protocol.connection_settings import RemotingSettings
from rmqtx.remoting.protocol.errors import Unreachable
from rmqtx.remoting.protocol.frames import Frame, decoded, encoded
from tests.wire.world import Process, Task, World

#: Requests that change something; faults are drawn for them more often.
CHANGES = frozenset({
    RequestCode.END_TRANSACTION, RequestCode.RESUME_CHECK_HALF_MESSAGE, RequestCode.UPDATE_BROKER_CONFIG,
})
#: What may happen to a request.
FAULTS = ("cut before", "lost while sending", "cut after", "lost answer", "delayed", "late answer", "twice")


class Host(Protocol):
    """What listens at an address."""

    is_up: bool

    def handle(self, wire: Wire, frame: Frame, answer: Callable[[Frame], None]) -> None:
        """Take a request; `answer` may be called now, later or never."""

    def disconnected(self, wire: Wire) -> None:
        """Note that a client's connection has ended."""


@dataclass
class Faults:
    """How often something happens to a request: a share of those that change something, and of the others."""

    of_changes: float = 0.0
    of_others: float = 0.0
    kinds: tuple[str, ...] = FAULTS
    longest_delay_seconds: float = 6.0


@dataclass(eq=False)
class Wire:
    """One connection, as the product's stream and as the server's end."""

    network: Network
    address: str
    host: Host
    process: Process
    is_open: bool = True
    inbox: list[bytes] = field(default_factory=list)
    waiters: list[tuple[Task, int]] = field(default_factory=list)
    free_ns: list[int] = field(default_factory=lambda: [0, 0])

    # -- the client's end -------------------------------------------------------------------------------------------

    def recv(self) -> bytes:
        """See `Stream`."""
        world = self.network.world
        while not self.inbox and self.is_open:
            world.wait(None, self.waiters)
        world.seam("receive")
        return self.inbox.pop(0) if self.inbox else b""

    def sendall(self, data: bytes) -> None:
        """See `Stream`."""
        frame = decoded(data)
        name = RequestCode(frame.code).name if frame.code in CHANGES else "request"
        self.network.world.seam(f"before {name}")
        if not self.is_open:
            raise BrokenPipeError(32, "Broken pipe")
        self.network.sent(self, frame)
        self.network.world.seam(f"after {name}")

    def close(self) -> None:
        """See `Stream`."""
        self.end()

    # -- both -------------------------------------------------------------------------------------------------------

    def end(self, notice_seconds: float = 0.0) -> None:
        """End the connection; the server notices after a time."""
        if not self.is_open:
            return
        self.is_open = False
        world = self.network.world
        world.notify(self.waiters)
        world.at(notice_seconds, lambda: self.host.disconnected(self))

    def push(self, frame: Frame, delay_seconds: float = 0.0) -> None:
        """Send a frame to the client."""
        def arrive() -> None:
            if self.is_open:
                self.inbox.append(encoded(frame))
                self.network.world.notify(self.waiters)

        self.network.later(self, 1, delay_seconds, arrive)


class Network:
    """Addresses, latencies and faults."""

    def __init__(self, world: World, latency_seconds: float) -> None:
        self.world, self.latency_seconds = world, latency_seconds
        self.hosts: dict[str, Host] = {}
        self.faults = Faults()
        self.wires: list[Wire] = []
        self.doubled: set[tuple[int, int]] = set()
        self.lost_seconds: defaultdict[str, float] = defaultdict(float)
        self.on_change: Callable[[Wire, Frame], None] = lambda _wire, _frame: None

    def open_stream(self, address: str, _settings: RemotingSettings) -> Wire:
        """Take the place of `transport.open_stream`."""
        process = self.world.current.process
        assert process is not None
        self.world.seam("connect")
        self.world.sleep(self.latency_seconds)
        host = self.hosts.get(address)
        if host is None or not host.is_up:
            raise Unreachable(f"cannot connect to {address}: connection refused")
        wire = Wire(self, address, host, process)
        self.wires.append(wire)
        process.on_death.append(wire.end)
        return wire

    def later(self, wire: Wire, direction: int, delay_seconds: float, function: Callable[[], None]) -> None:
        """Call a function when a frame arrives: in the order of sending."""
        drawn = self.latency_seconds * (0.5 + self.world.random.random()) + delay_seconds
        due_ns = max(self.world.now_ns + int(drawn * 1e9), wire.free_ns[direction])
        wire.free_ns[direction] = due_ns
        self.world.at((due_ns - self.world.now_ns) / 1e9, function)

    def cut(self, address: str) -> None:
        """End all connections to an address."""
        for wire in self.wires:
            if wire.address == address:
                wire.end()

    def sent(self, wire: Wire, frame: Frame) -> None:
        """Take a frame that a client sends."""
        is_change = frame.code in CHANGES
        if is_change:
            self.on_change(wire, frame)
        fault = self._fault(wire, is_change=is_change)
        delay = self.world.random.uniform(0.2, self.faults.longest_delay_seconds) if fault else 0.0
        if fault is not None:
            self.lost_seconds[wire.process.name] += delay + 10.0  # a request that waits for its time-out
            self.world.note(f"{wire.process.name}: {RequestCode(frame.code).name} to {wire.address}: {fault}")
        if fault == "cut before":
            wire.end(delay)
            return
        if fault == "lost while sending":
            wire.end(delay)
            raise ConnectionResetError(104, "Connection reset by peer")
        self.later(wire, 0, delay if fault == "delayed" else 0.0, lambda: self._arrive(wire, frame, fault, delay))
        if fault == "twice":
            self.doubled.add((id(wire), frame.opaque))
            self.later(wire, 0, min(delay, 1.0), lambda: self._arrive(wire, frame, None, 0.0))

    def _fault(self, wire: Wire, *, is_change: bool) -> str | None:
        share = self.faults.of_changes if is_change else self.faults.of_others
        if not wire.process.is_ours or self.world.random.random() >= share:
            return None
        return self.world.random.choice(self.faults.kinds)

    def _arrive(self, wire: Wire, frame: Frame, fault: str | None, delay: float) -> None:
        if not wire.host.is_up or (not wire.is_open and frame.code not in CHANGES):
            return  # what a process that is gone has sent still arrives; the answers to its reads are lost

        def answer(response: Frame) -> None:
            if fault == "cut after":
                wire.end()
            elif fault != "lost answer":
                wire.push(response, delay if fault == "late answer" else 0.0)

        wire.host.handle(wire, frame, answer)


@dataclass(eq=False)
class NameServer:
    """Lists the brokers."""

    body: bytes
    is_up: bool = True

    def handle(self, wire: Wire, frame: Frame, answer: Callable[[Frame], None]) -> None:
        """See `Host`."""
        assert frame.code == RequestCode.GET_BROKER_CLUSTER_INFO, frame
        answer(Frame(0, frame.opaque, {}, self.body, 1))

    def disconnected(self, wire: Wire) -> None:
        """See `Host`."""
