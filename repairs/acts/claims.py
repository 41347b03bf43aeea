"""A claim on a producer group keeps two operators from acting on it at once: a decision is visible only after a while.

Brokers have no compare-and-set, but they keep in memory which producer groups have a connection, and remove the entry
when the connection closes. So rmqtx registers as a group whose name is derived from the real one, then lists the
registered clients: if two processes start at once, at least one sees the other. Nothing remains on the broker, and the
real group never gets a member. The members of the real group are its own processes, whose decisions may contradict
rmqtx.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.connections.client import Client, checked
from rmqtx.remoting.connections.connection import Connection, Request
from rmqtx.remoting.producer.producer import OUR_CLIENTS, heartbeat_body
from rmqtx.remoting.protocol.answers import BrokerAddresses, ClientConnection
from rmqtx.remoting.protocol.codes import RequestCode, ResponseCode
from rmqtx.remoting.protocol.errors import Refused, RemotingError

PREFIX = "RMQTX_ACTS_ON@"
_HEARTBEAT_SECONDS = 30.0
_PATIENCE_SECONDS = 3.0
_LOOK_SECONDS = 2.0


@dataclass(slots=True)
class Claims:
    """The state of some claims.

    Shape: `rivals` by producer group: the clients that hold a claim on it; `why_unknown`: why this is unknown.
    """

    client_id: str
    groups: tuple[str, ...] = ()
    rivals: dict[str, tuple[str, ...]] = field(default_factory=dict)
    connection: Connection | None = None
    problem: str | None = None

    @property
    def why_unknown(self) -> str | None:
        """Why it is unknown whether the claim holds: no broker answered, or the broker may have dropped the claim."""
        if self.problem is None and self.connection is not None and self.connection.is_closed:
            return "the connection that held the claim was lost"
        return self.problem


@contextlib.contextmanager
def claimed(broker: Broker, groups: Iterable[str], client_id: str) -> Iterator[Claims]:
    """Hold claims on producer groups at a broker while the block lasts; `client_id` is the id of this process.

    If another process holds one of them, the claim is tried again for some seconds at random moments, so that one of
    two processes that start at once gets it; then the attempt ends, and `rivals` names the holders. A process that
    comes later sees the claim and stops, so rivals are looked for only at the start.
    """
    names = sorted(set(groups))
    claims = Claims(client_id, tuple(names))
    end = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            claims.connection = _registered(broker, names, claims.client_id)
            claims.rivals = _rivals(broker, names, claims.client_id)
        except RemotingError as error:
            claims.problem = error.message
        if not claims.rivals:
            break
        _close(claims.connection)  # the holder must not see this attempt: it would count as a rival
        if time.monotonic() > end:
            claims.connection = None
            break
        time.sleep(random.uniform(0.1, 0.9))
    stop = threading.Event()
    beat = threading.Thread(target=_keep, args=(claims.connection, names, claims.client_id, stop), daemon=True)
    beat.start()
    try:
        yield claims
    finally:
        stop.set()
        beat.join(5)
        _close(claims.connection)


def _registered(broker: Broker, names: list[str], client: str) -> Connection:
    """Return a connection that is registered as a member of the claimed groups; closing it ends the claims."""
    connection = Connection(broker.address, broker.client.settings)
    try:
        request = _heartbeat(client, names)
        checked(connection.call(request), request, broker.address, (ResponseCode.SUCCESS,))
    except RemotingError:
        connection.close()
        raise
    return connection


def _rivals(broker: Broker, names: list[str], client: str) -> dict[str, tuple[str, ...]]:
    """The other clients that hold a claim, or stand in for the group itself, by group."""
    found = {}
    for name in names:
        holders = broker.producer_connections(f"{PREFIX}{name}")
        stand_ins = [one for one in broker.producer_connections(name) if one.client_id.startswith(OUR_CLIENTS)]
        others = {one.client_id for one in (*holders, *stand_ins)} - {client}
        if others:
            found[name] = tuple(sorted(others))
    return found


def _heartbeat(client_id: str, names: list[str]) -> Request:
    groups = [f"{PREFIX}{name}" for name in names]
    return Request(RequestCode.HEART_BEAT, {}, heartbeat_body(client_id, groups))


def _keep(connection: Connection | None, names: list[str], client: str, stop: threading.Event) -> None:
    """Send heartbeats while the claim is held: a broker drops a silent client after two minutes."""
    while connection is not None and not stop.wait(_HEARTBEAT_SECONDS):
        with contextlib.suppress(RemotingError):  # a lost claim is noticed at the next request to the broker
            connection.call(_heartbeat(client, names))


def _close(connection: Connection | None) -> None:
    if connection is not None:
        connection.close()


def claim_on(group: str) -> str:
    """Return the name of the group that rmqtx processes join while they act on a producer group, to see each other."""
    return f"{PREFIX}{group}"


@dataclass(frozen=True, slots=True)
class Others:
    """The other members of a group.

    Shape: `members` are the application's own processes, `rivals` other rmqtx processes, each as client id and address;
           `unknown`: why a broker gave no answer; then neither is known.
    """

    members: tuple[str, ...] = ()
    rivals: tuple[str, ...] = ()
    unknown: str | None = None

    @property
    def has_none(self) -> bool:
        """Whether the group is known to have no other members; a producer that has not sent yet is not listed."""
        return not (self.members or self.rivals or self.unknown)


class GroupWatch:
    """Lists the clients of a group on all brokers of some broker sets, and for how long there has been no other client.

    A holder of the claim on the group is a rival, too. `client_id`: this process's own membership, which is excluded.
    """

    def __init__(
        self, client: Client, members: Sequence[BrokerAddresses], group: str, client_id: str | None = None
    ) -> None:
        self.client_id = client_id
        self._groups = (group, claim_on(group))
        self._brokers = [
            Broker(client, address, entry.name, entry.cluster, number)
            for entry in members
            for number, address in entry.addresses.items()
        ]
        self._alone_since = time.monotonic()
        self._due = 0.0
        self.seen = Others(unknown="no broker was asked yet")

    @property
    def alone_ms(self) -> int:
        """How long there has been no other member."""
        return round((time.monotonic() - self._alone_since) * 1000)

    def look(self, *, if_due: bool = False) -> Others:
        """The members now; `if_due`: the last answer is used if it is not older than two seconds."""
        if if_due and time.monotonic() < self._due:
            return self.seen
        self.seen = self._look()
        self._due = time.monotonic() + _LOOK_SECONDS
        if not self.seen.has_none:
            self._alone_since = time.monotonic()
        return self.seen

    def _look(self) -> Others:
        found: dict[str, ClientConnection] = {}
        for broker in self._brokers:
            try:
                connections = [one for group in self._groups for one in broker.producer_connections(group)]
            except RemotingError as error:
                if broker.broker_id and not isinstance(error, Refused):
                    continue  # producers have connections to masters; a slave that is down has none
                return Others(unknown=error.message)
            found |= {f"{one.client_id} at {one.address}": one for one in connections}
        others = {text: one for text, one in found.items() if one.client_id != self.client_id}
        rivals = tuple(sorted(text for text, one in others.items() if one.client_id.startswith(OUR_CLIENTS)))
        return Others(tuple(sorted(set(others) - set(rivals))), rivals)
