"""The producers that are connected to live brokers, and the pending transactions that wait for their groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.releases import LISTS_ALL_PRODUCERS, dotted
from rmqtx.readers.model.tables import LIVE_TRANSACTIONS, NOBODY, PRODUCER, PROXY, column
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.protocol.answers import BrokerAddresses, ClientConnection
from rmqtx.remoting.protocol.errors import NoAnswer, Refused, Unreachable

PRODUCERS = pa.schema(
    [
        column("store", pa.string(), "the broker's name and address"),
        column("producer_group", pa.string(), "producer group; behind a proxy the topic of gRPC clients"),
        column(
            "client_id", pa.string(), "the client; null where none is connected for a group with pending transactions"
        ),
        column("address", pa.string(), "address from which it is connected; behind a proxy that of the proxy"),
        column("language", pa.string(), "language of the client, as it reports it"),
        column("client_version", pa.string(), "release of the client, as it reports it"),
        column(
            "last_heartbeat_time_ms", pa.int64(), "broker clock at its last heartbeat; null from brokers before 4.9.4"
        ),
        column(
            "is_proxy", pa.bool_(), "whether it is a proxy, which is registered in place of the clients behind it"
        ),
        column("pending_count", pa.int64(), "pending transactions of the broker that wait for the group"),
    ]
)
#: The group in which each process of a client is registered beside its own groups, consumers too.
_INNER_GROUP = "CLIENT_INNER_PRODUCER"


@dataclass(frozen=True, slots=True)
class ConnectedProducers:
    """The producers of one broker, by group. `is_whole`: all groups; else only those that were asked for."""

    broker: Broker
    groups: dict[str, list[ClientConnection]]
    is_whole: bool

    def note(self) -> str | None:
        """Return what is not listed; None if nothing."""
        if self.is_whole:
            return None
        return (
            f"{self.broker.root}: brokers before {dotted(LISTS_ALL_PRODUCERS.since)} list the producers of one group "
            "at a time: only groups with pending transactions, and --group, are listed"
        )


def connected_producers(broker: Broker, groups: Iterable[str]) -> ConnectedProducers:
    """Return the connected producers of a broker: of all groups, or of the given ones from brokers before 4.9.4.

    A producer that has not sent since its start is not listed by most brokers.
    Raises: Refused, Unreachable, NoAnswer, BadFrame.
    """
    if LISTS_ALL_PRODUCERS.holds(broker.version()):
        listed = {name: found for name, found in broker.all_producers().items() if name != _INNER_GROUP}
        return ConnectedProducers(broker, listed, is_whole=True)
    return ConnectedProducers(
        broker, {group: broker.producer_connections(group) for group in groups}, is_whole=False
    )


def producers_table(
    brokers: Sequence[ConnectedProducers], pending: Counter[tuple[str, str]], group: str | None = None
) -> pa.Table:
    """Return the producers as rows of PRODUCERS.

    `pending`: the number of pending transactions by broker (`store`) and group. `group`: only this one.
    Order: broker, group, client; groups without a client are among them if transactions wait for them.
    """
    rows = [row for one in brokers for row in _rows(one, pending, group)]
    return pa.Table.from_pylist(rows, PRODUCERS)


def _rows(
    one: ConnectedProducers, pending: Counter[tuple[str, str]], group: str | None
) -> Iterator[dict[str, object]]:
    root = one.broker.root
    waiting = {name for store, name in pending if store == root}
    names = sorted(one.groups.keys() | waiting) if group is None else [group]
    for name in names:
        clients = sorted(one.groups.get(name, []), key=lambda client: (client.client_id, client.address))
        count = pending[root, name]
        row: dict[str, object] = {"store": root, "producer_group": name, "pending_count": count}
        if not clients and (count or group is not None):
            yield row
        for client in clients:
            yield row | {
                "client_id": client.client_id, "address": client.address, "language": client.language,
                "client_version": client.release, "last_heartbeat_time_ms": client.last_heartbeat_time_ms,
                "is_proxy": client.is_proxy,
            }


def with_producers(rows: pa.Table, brokers: Sequence[Broker], members: Sequence[BrokerAddresses]) -> pa.Table:
    """Add `producer_alive` and `asked_through` to transactions of some brokers.

    `members`: all addresses of the brokers' sets.
    """
    groups = [group for group in pc.unique(rows["producer_group"]).to_pylist() if group is not None]
    everywhere = [*brokers, *_others(brokers, members)]
    through = {group: _asked_through(group, everywhere) for group in groups}
    asked = [through.get(group) for group in rows["producer_group"].to_pylist()]
    alive = [_IS_ALIVE.get(word) for word in asked]
    for name, values in (("producer_alive", alive), ("asked_through", asked)):
        field = LIVE_TRANSACTIONS.field(name)
        rows = rows.append_column(field, pa.chunked_array([pa.array(values, field.type)]))
    return rows


#: Whether the application is connected. Behind a proxy that is unknown: a proxy is registered in place of its clients.
_IS_ALIVE: dict[str | None, bool] = {PRODUCER: True, NOBODY: False}


def _others(brokers: Sequence[Broker], members: Sequence[BrokerAddresses]) -> list[Broker]:
    """The other brokers of the same sets, mainly slaves."""
    asked = {broker.address for broker in brokers}
    return [
        Broker(broker.client, address, member.name, member.cluster, number)
        for member in members
        for broker in [next((one for one in brokers if one.name == member.name), None)]
        if broker is not None
        for number, address in member.addresses.items()
        if address not in asked
    ]


def _asked_through(group: str, brokers: Sequence[Broker]) -> str | None:
    """Return `producer` if any broker lists one, else `proxy` if any lists a proxy, else `nobody`; None if unknown."""
    is_known, has_proxy = True, False
    for broker in brokers:
        try:
            found = broker.producer_connections(group)
        except (Refused, Unreachable, NoAnswer):
            is_known = False
            continue
        if any(not one.is_proxy for one in found):
            return PRODUCER
        has_proxy |= bool(found)
    if has_proxy:
        return PROXY if is_known else None
    return NOBODY if is_known else None
