"""Name servers: which brokers there are. Any one that answers will do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remoting.answers import BrokerAddresses
from remoting.client import Client
from remoting.codes import RequestCode
from remoting.connection import Request
from remoting.errors import BadFrame, RemotingError, Unreachable
from remoting.frames import Frame, parsed_json


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
        return sorted((_broker(entry) for entry in (value.get("brokerAddrTable") or {}).values()), key=_order)

    def route(self, topic: str) -> list[BrokerAddresses]:
        """The brokers that have a topic.

        Raises: Refused (17 where no broker has it), Unreachable.
        """
        request = Request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": True})
        value = parsed_json(self._call(request).body)
        return sorted((_broker(entry) for entry in value.get("brokerDatas") or []), key=_order)

    def _call(self, request: Request) -> Frame:
        failures: list[RemotingError] = []
        for address in self.addresses:
            try:
                return self.client.call(address, request)
            except RemotingError as error:
                failures.append(error)
        if len(failures) == 1:
            raise failures[0]
        raise Unreachable("; ".join(failure.message for failure in failures) or "no name server is given")


def _broker(entry: dict[str, object]) -> BrokerAddresses:
    addresses = entry.get("brokerAddrs")
    if not isinstance(addresses, dict):
        raise BadFrame("a broker without addresses in the name server's answer", actual=entry)
    return BrokerAddresses(
        str(entry.get("cluster")), str(entry.get("brokerName")),
        {int(number): str(address) for number, address in sorted(addresses.items())},
    )


def _order(broker: BrokerAddresses) -> tuple[str, str]:
    return broker.cluster, broker.name
