"""A member of a producer group at several brokers, with heartbeats, and a new connection after a loss."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence

from rmqtx.remoting.producer.producer import Check, Member, our_client_id
from rmqtx.remoting.protocol.connection_settings import RemotingSettings
from rmqtx.remoting.protocol.errors import RemotingError

#: Official clients send a heartbeat every 30 s; a broker drops a client after 120 s of silence.
HEARTBEAT_MS = 10_000
_LOOK_SECONDS = 0.5
_RETRY_SECONDS = 2.0


class Membership:
    """A member of some producer groups while the block runs; it sends for the first group.

    `on_check`: called from several threads with checks from brokers; it must not block. `on_change`: called with an
    address and why the connection to it was lost, or None when it is connected again.
    Raises: Unreachable, NoAnswer, Refused if a broker cannot be joined at the start; later losses are repaired.
    """

    def __init__(
        self,
        settings: RemotingSettings,
        addresses: Sequence[str],
        groups: Sequence[str],
        on_check: Callable[[Check], None],
        on_change: Callable[[str, str | None], None] = lambda _address, _why: None,
        heartbeat_ms: int = HEARTBEAT_MS,
    ) -> None:
        self.client_id = our_client_id()
        self.groups = tuple(groups)
        self._settings = settings
        self._addresses = list(dict.fromkeys(addresses))
        self._on_check = on_check
        self._on_change = on_change
        self._heartbeat_seconds = heartbeat_ms / 1000
        self._members: dict[str, Member] = {}
        self._due: dict[str, float] = {}
        self._lost: dict[str, str] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"membership of {groups[0]}", daemon=True)

    def __enter__(self) -> Membership:
        try:
            for address in self._addresses:
                self._join(address)
        except BaseException:
            self._leave()
            raise
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(self._settings.timeout_ms / 1000 + 5)
        self._leave()

    @property
    def lost(self) -> dict[str, str]:
        """The brokers without a connection now, and why."""
        return dict(self._lost)

    def member(self, address: str) -> Member:
        """The member at one broker."""
        return self._members[address]

    def _join(self, address: str) -> None:
        member = Member(self._settings, address, self.groups, self.client_id, self._on_check)
        try:
            member.heartbeat()
        except BaseException:
            member.close()
            raise
        self._members[address] = member
        self._due[address] = time.monotonic() + self._heartbeat_seconds

    def _keep(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            for address in self._addresses:
                if self._stop.is_set():
                    return
                self._renew(address)

    def _renew(self, address: str) -> None:
        """Send a heartbeat to one broker if it is time, over a new connection if the old one was lost."""
        now, member = time.monotonic(), self._members[address]
        if now < self._due[address] and (address in self._lost or not member.is_closed):
            return
        try:
            if member.is_closed:
                self._join(address)
            else:
                member.heartbeat()
                self._due[address] = now + self._heartbeat_seconds
        except RemotingError as error:
            member.close()
            self._due[address] = now + _RETRY_SECONDS
            if address not in self._lost:
                self._lost[address] = error.message
                self._on_change(address, error.message)
            return
        if self._lost.pop(address, None) is not None:
            self._on_change(address, None)

    def _leave(self) -> None:
        for member in self._members.values():
            with contextlib.suppress(RemotingError):  # without a connection the broker drops the member anyway
                member.leave()
            member.close()
