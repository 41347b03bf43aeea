"""Name servers: which brokers there are. Any one that answers will do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remoting.connections.client import Client
from remoting.connections.connection import Request
from remoting.protocol.answers import BrokerAddresses
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.errors import Refused, RemotingError, Unreachable
from remoting.protocol.frames import Frame, parsed_json, understood


@dataclass(frozen=True, slots=True)
class NameServers:
    """Some name servers, which know the same."""

    client: Client
    addresses: Sequence[str]

    def brokers(self) -> list[BrokerAddresses]:
        """Every broker of every cluster.

        Order: cluster, then name.
        Raises: Unreachable if no name server answers.
        """
        value = parsed_json(self._call(Request(RequestCode.GET_BROKER_CLUSTER_INFO)).body)
        with understood("the name server's list of brokers"):
            entries = (value.get("brokerAddrTable") or {}).values()
            cluster_of = _clusters(value)
            return sorted((_broker(entry, cluster_of) for entry in entries), key=_order)

    def _call(self, request: Request) -> Frame:
        """The answer of the first that answers.

        Raises: Refused where one says no for itself; else Unreachable, with what each one's trouble is.
        """
        failures: list[RemotingError] = []
        for address in self.addresses:
            try:
                return self.client.call(address, request)
            except RemotingError as error:
                failures.append(_told(error, address))
        if len(failures) == 1:
            raise failures[0]
        advice = dict.fromkeys(failure.advice for failure in failures if failure.advice is not None)
        raise Unreachable(
            "; ".join(failure.message for failure in failures) or "no name server is given",
            advice="; ".join(advice) or None,
        )


def _told(error: RemotingError, address: str) -> RemotingError:
    """The error, or what it really means: brokers do not know what name servers are asked."""
    if isinstance(error, Refused) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return Unreachable(f"{address} is no name server, but perhaps a broker", advice=f"--broker {address} says so")
    return error


def _clusters(value: dict[str, Any]) -> dict[str, str]:
    """Cluster by broker name: name servers of 3.1.4 do not say it with the broker, but in a table of its own."""
    table = value.get("clusterAddrTable") or {}
    return {str(name): str(cluster) for cluster, names in table.items() for name in names}


def _broker(entry: dict[str, Any], cluster_of: Mapping[str, str]) -> BrokerAddresses:
    addresses = {int(number): str(address) for number, address in entry["brokerAddrs"].items()}
    name = str(entry["brokerName"])
    cluster = entry["cluster"] if "cluster" in entry else cluster_of[name]
    return BrokerAddresses(str(cluster), name, dict(sorted(addresses.items())))


def _order(broker: BrokerAddresses) -> tuple[str, str]:
    return broker.cluster, broker.name
