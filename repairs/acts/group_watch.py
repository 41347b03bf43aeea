"""Who else belongs to a producer group: its own processes, whose decisions would cross ours, and other rmqtx."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from remoting.connections.broker import Broker
from remoting.connections.client import Client
from remoting.producer.producer import OUR_CLIENTS
from remoting.protocol.answers import BrokerAddresses, ClientConnection
from remoting.protocol.errors import Refused, RemotingError
from repairs.acts.claims import PREFIX as CLAIM_PREFIX

_LOOK_SECONDS = 2.0


def claim_on(group: str) -> str:
    """The group whose members act on a group; whoever belongs to it is seen by every rmqtx."""
    return f"{CLAIM_PREFIX}{group}"


@dataclass(frozen=True, slots=True)
class Others:
    """The other members of a group.

    Shape: `members` are the application's own processes, `rivals` other processes of ours, each as client id and
           address; `unknown` says why a broker could not be asked, and then nothing is known.
    """

    members: tuple[str, ...] = ()
    rivals: tuple[str, ...] = ()
    unknown: str | None = None

    @property
    def is_nobody(self) -> bool:
        """Whether it is known that nobody else is there; one that has not sent yet is not listed, though."""
        return not (self.members or self.rivals or self.unknown)


class GroupWatch:
    """Looks who is connected to any broker of some sets, and remembers since when nobody else is.

    Who holds the claim on the group is a rival, too. `client_id`: our own membership, which does not count.
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
        self.seen = Others(unknown="nobody was asked yet")

    @property
    def alone_ms(self) -> int:
        """How long nobody else was there."""
        return round((time.monotonic() - self._alone_since) * 1000)

    def look(self, *, if_due: bool = False) -> Others:
        """Who is there now; `if_due`: the last look will do if it is not older than two seconds."""
        if if_due and time.monotonic() < self._due:
            return self.seen
        self.seen = self._look()
        self._due = time.monotonic() + _LOOK_SECONDS
        if not self.seen.is_nobody:
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
