"""Name servers: the lists of brokers. One that answers is enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rmqtx.remoting.connections.client import Client
from rmqtx.remoting.connections.connection import Request
from rmqtx.remoting.protocol.answers import BrokerAddresses
from rmqtx.remoting.protocol.codes import RequestCode, ResponseCode
from rmqtx.remoting.protocol.errors import Refused, RemotingError, Unreachable
from rmqtx.remoting.protocol.frames import Frame, parsed_json, parsing


@dataclass(frozen=True, slots=True)
class NameServers:
    """Some name servers with the same content."""

    client: Client
    addresses: Sequence[str]

    def brokers(self) -> list[BrokerAddresses]:
        """Return every broker of every cluster.

        Order: cluster, then name.
        Raises: Unreachable if no name server answers.
        """
        value = parsed_json(self._call(Request(RequestCode.GET_BROKER_CLUSTER_INFO)).body)
        with parsing("the name server's list of brokers"):
            entries = (value.get("brokerAddrTable") or {}).values()
            cluster_of = _clusters(value)
            return sorted((_broker(entry, cluster_of) for entry in entries), key=_order)

    def _call(self, request: Request) -> Frame:
        """Return the response of the first name server that answers.

        Raises: the error of a single name server; of several, Unreachable with the error of each.
        """
        failures: list[RemotingError] = []
        for address in self.addresses:
            try:
                return self.client.call(address, request)
            except RemotingError as error:
                failures.append(_explained(error, address))
        if len(failures) == 1:
            raise failures[0]
        advice = dict.fromkeys(failure.advice for failure in failures if failure.advice is not None)
        raise Unreachable(
            "; ".join(failure.message for failure in failures) or "no name server is given",
            advice="; ".join(advice) or None,
        )


def _explained(error: RemotingError, address: str) -> RemotingError:
    """Return the error, or a clearer one: brokers do not support the requests to name servers."""
    if isinstance(error, Refused) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return Unreachable(f"{address} is not a name server", advice=f"if it is a broker: --broker {address}")
    return error


def _clusters(value: dict[str, Any]) -> dict[str, str]:
    """Cluster by broker name: name servers of 3.1.4 list clusters in a separate table."""
    table = value.get("clusterAddrTable") or {}
    return {str(name): str(cluster) for cluster, names in table.items() for name in names}


def _broker(entry: dict[str, Any], cluster_of: Mapping[str, str]) -> BrokerAddresses:
    addresses = {int(number): str(address) for number, address in entry["brokerAddrs"].items()}
    name = str(entry["brokerName"])
    cluster = entry["cluster"] if "cluster" in entry else cluster_of[name]
    return BrokerAddresses(str(cluster), name, dict(sorted(addresses.items())))


def _order(broker: BrokerAddresses) -> tuple[str, str]:
    return broker.cluster, broker.name
