"""Which clients a broker asks about the transactions of a producer group: producers, proxies, or none."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.tables import LIVE_TRANSACTIONS, NOBODY, PRODUCER, PROXY
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.protocol.answers import BrokerAddresses
from rmqtx.remoting.protocol.errors import NoAnswer, Refused, Unreachable


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
