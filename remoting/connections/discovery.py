"""The brokers that a command line names: from a name server's list, or from the configuration of a broker itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rmqtx.readers.model.errors import BadRequest
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.connections.client import Client
from rmqtx.remoting.connections.connection import Request
from rmqtx.remoting.protocol.answers import BrokerAddresses
from rmqtx.remoting.protocol.codes import RequestCode, ResponseCode
from rmqtx.remoting.protocol.connection_settings import is_address
from rmqtx.remoting.protocol.errors import NoAnswer, Refused, RemotingError, Unreachable
from rmqtx.remoting.protocol.frames import Frame, parsed_json, parsing

_SECOND_MS = 1_000


@dataclass(frozen=True, slots=True)
class LostBroker:
    """A chosen broker that cannot be reached, and why; `root` as far as it is known: NAME@HOST:PORT, or one of them."""

    root: str
    error: RemotingError


def chosen_brokers(
    client: Client, name_servers: NameServers | None, *, names: Sequence[str] = (), cluster: str | None = None,
    lost: list[LostBroker] | None = None,
) -> tuple[list[Broker], list[BrokerAddresses]]:
    """Return the named brokers, and all addresses of each broker set.

    `names`: names of brokers, or addresses, which need no name server and take precedence over the name server's list
    (for example if that has addresses inside containers). Without names: every master of the cluster, or of all
    clusters.
    `lost`: takes the brokers that cannot be reached, of which one is else an error; if all are lost, the first one is.
    Order: that of the names, else cluster and name.
    Raises: BadRequest, Unreachable, NoAnswer, Refused.
    """
    known = [] if name_servers is None else name_servers.brokers()
    if cluster is not None:
        known = _of_cluster(known, cluster, has_list=name_servers is not None)
    brokers: list[Broker] = []
    members: dict[tuple[str, str], BrokerAddresses] = {}
    asked = [(name, known) for name in dict.fromkeys(names)] or [(entry.name, [entry]) for entry in known]
    for name, where in asked:
        try:
            found, entries = _by_address(client, name, where) if is_address(name) else _by_name(client, name, where)
        except RemotingError as error:
            if lost is None:
                raise
            masters = [f"{name}@{entry.master}" for entry in where if entry.name == name and entry.master is not None]
            lost.append(LostBroker(next(iter(masters), name), error))
            continue
        brokers += [broker for broker in found if broker not in brokers]
        members |= {(entry.cluster, entry.name): entry for entry in entries}
    if cluster is not None and any(broker.cluster != cluster for broker in brokers):
        other = next(broker for broker in brokers if broker.cluster != cluster)
        raise BadRequest(f"{other.root} belongs to cluster {other.cluster}, not {cluster}")
    if not brokers and lost:
        raise lost[0].error
    if not brokers:
        raise Unreachable(
            "the name server lists no brokers", advice="check that a broker is registered there, and --cluster"
        )
    return brokers, list(members.values())


def _of_cluster(known: list[BrokerAddresses], cluster: str, *, has_list: bool) -> list[BrokerAddresses]:
    found = [entry for entry in known if entry.cluster == cluster]
    if has_list and not found:
        there = ", ".join(sorted({entry.cluster for entry in known})) or "none"
        raise BadRequest(f"the name server lists no cluster {cluster!r}", advice=f"clusters: {there}")
    return found


def _by_name(
    client: Client, name: str, known: list[BrokerAddresses]
) -> tuple[list[Broker], list[BrokerAddresses]]:
    entries = [entry for entry in known if entry.name == name]
    if not entries:
        there = ", ".join(entry.name for entry in known)
        raise BadRequest(
            f"there is no broker {name!r}",
            advice=f"the name server lists {there}" if there else "a name needs a name server: -n HOST:PORT",
        )
    brokers = []
    for entry in entries:
        if entry.master is None:
            slaves = " or ".join(f"--broker {address}" for address in entry.addresses.values())
            raise Unreachable(
                f"{name} has no master now", advice=f"to read a slave: {slaves}; a change needs a master"
            )
        _reach(client, entry.name, entry.master)
        brokers.append(Broker(client, entry.master, entry.name, entry.cluster, 0))
    return brokers, entries


def _reach(client: Client, name: str, address: str) -> None:
    """Connect now: the listed address may not be reachable from here, for example one inside a container."""
    try:
        client.connection(address)
    except Unreachable as error:
        if error.advice is not None:  # TLS has its own
            raise
        raise Unreachable(
            f"{error.message} (the address of {name} in the name server's list)",
            advice="check that it runs; if it has another address here: --broker HOST:PORT",
        ) from error


def _by_address(
    client: Client, address: str, known: list[BrokerAddresses]
) -> tuple[list[Broker], list[BrokerAddresses]]:
    for entry in known:
        for number, listed in entry.addresses.items():
            if listed == address:
                return [Broker(client, address, entry.name, entry.cluster, number)], [entry]
    cluster, name, number = _own_identity(client, address)
    listed_set = next((entry for entry in known if (entry.cluster, entry.name) == (cluster, name)), None)
    addresses = {**(listed_set.addresses if listed_set else {}), number: address}
    return [Broker(client, address, name, cluster, number)], [BrokerAddresses(cluster, name, addresses)]


def _own_identity(client: Client, address: str) -> tuple[str, str, int]:
    """Return cluster, name and id from a broker's own configuration.

    Raises: Unreachable if the address is that of a name server; NoAnswer, Refused, BadFrame.
    """
    try:
        conf = Broker(client, address, "", "").config()
    except (NoAnswer, Refused) as error:
        is_unknown = isinstance(error, NoAnswer) or error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        if is_unknown and _is_name_server(client, address):  # name servers of 4.x do not answer at all
            raise Unreachable(
                f"{address} is a name server, not a broker", advice=f"to find its brokers: -n {address}"
            ) from error
        raise
    with parsing(f"the configuration of {address}"):
        return conf["brokerClusterName"], conf["brokerName"], int(conf["brokerId"])


def _is_name_server(client: Client, address: str) -> bool:
    try:
        client.call(address, Request(RequestCode.GET_BROKER_CLUSTER_INFO), timeout_ms=_SECOND_MS)
    except RemotingError:
        return False
    return True


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
