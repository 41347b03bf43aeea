"""The other members of a producer group: its own processes, whose decisions may contradict rmqtx, and other rmqtx."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.connections.client import Client
from rmqtx.remoting.producer.producer import OUR_CLIENTS
from rmqtx.remoting.protocol.answers import BrokerAddresses, ClientConnection
from rmqtx.remoting.protocol.errors import Refused, RemotingError
from rmqtx.repairs.acts.claims import PREFIX as CLAIM_PREFIX

_LOOK_SECONDS = 2.0


def claim_on(group: str) -> str:
    """Return the name of the group that rmqtx processes join while they act on a producer group, to see each other."""
    return f"{CLAIM_PREFIX}{group}"


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
        """Whether it is known that there is no other member; a producer that has not sent yet is not listed, though."""
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
