"""From what a command line names to brokers: a name server's list, or a broker that says itself who it is."""

from __future__ import annotations

from collections.abc import Sequence

from readers.model.errors import BadRequest
from remoting.connections.broker import Broker
from remoting.connections.client import Client
from remoting.connections.connection import Request
from remoting.connections.name_servers import NameServers
from remoting.protocol.addresses import is_address
from remoting.protocol.answers import BrokerAddresses
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.errors import NoAnswer, Refused, RemotingError, Unreachable
from remoting.protocol.frames import understood

_SECOND_MS = 1_000


def chosen_brokers(
    client: Client, name_servers: NameServers | None, *, names: Sequence[str] = (), cluster: str | None = None
) -> tuple[list[Broker], list[BrokerAddresses]]:
    """The brokers that are meant, and all addresses of each one's set.

    `names`: brokers' names, or addresses, which need no name server and hold where the name server gives others (those
    of a container's inside, say). Without names: every master of the cluster, or of all clusters.
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
        found, entries = _by_address(client, name, where) if is_address(name) else _by_name(client, name, where)
        brokers += [broker for broker in found if broker not in brokers]
        members |= {(entry.cluster, entry.name): entry for entry in entries}
    if cluster is not None and any(broker.cluster != cluster for broker in brokers):
        other = next(broker for broker in brokers if broker.cluster != cluster)
        raise BadRequest(f"{other.root} is of the cluster {other.cluster}, not {cluster}")
    if not brokers:
        raise Unreachable("the name server knows no broker", advice="is a broker registered there, or --cluster wrong?")
    return brokers, list(members.values())


def _of_cluster(known: list[BrokerAddresses], cluster: str, *, has_list: bool) -> list[BrokerAddresses]:
    found = [entry for entry in known if entry.cluster == cluster]
    if has_list and not found:
        there = ", ".join(sorted({entry.cluster for entry in known})) or "none"
        raise BadRequest(f"the name server knows no cluster {cluster!r}", advice=f"it knows {there}")
    return found


def _by_name(
    client: Client, name: str, known: list[BrokerAddresses]
) -> tuple[list[Broker], list[BrokerAddresses]]:
    entries = [entry for entry in known if entry.name == name]
    if not entries:
        there = ", ".join(entry.name for entry in known)
        raise BadRequest(
            f"no broker {name!r} is known",
            advice=f"the name server knows {there}" if there else "a name needs a name server: -n HOST:PORT",
        )
    brokers = []
    for entry in entries:
        if entry.master is None:
            slaves = " or ".join(f"--broker {address}" for address in entry.addresses.values())
            raise Unreachable(f"{name} has no master now", advice=f"{slaves} reads a slave; what acts needs a master")
        _reach(client, entry.name, entry.master)
        brokers.append(Broker(client, entry.master, entry.name, entry.cluster, 0))
    return brokers, entries


def _reach(client: Client, name: str, address: str) -> None:
    """Connect now: an address of a container's inside, say, is no use here."""
    try:
        client.connection(address)
    except Unreachable as error:
        if error.advice is not None:  # TLS has its own
            raise
        raise Unreachable(
            f"{error.message} (so the name server says where {name} is)",
            advice="is it down? If it is known here by another address: --broker HOST:PORT",
        ) from error


def _by_address(
    client: Client, address: str, known: list[BrokerAddresses]
) -> tuple[list[Broker], list[BrokerAddresses]]:
    for entry in known:
        for number, listed in entry.addresses.items():
            if listed == address:
                return [Broker(client, address, entry.name, entry.cluster, number)], [entry]
    cluster, name, number = _says_itself(client, address)
    listed_set = next((entry for entry in known if (entry.cluster, entry.name) == (cluster, name)), None)
    addresses = {**(listed_set.addresses if listed_set else {}), number: address}
    return [Broker(client, address, name, cluster, number)], [BrokerAddresses(cluster, name, addresses)]


def _says_itself(client: Client, address: str) -> tuple[str, str, int]:
    """Cluster, name and id that a broker's own configuration has.

    Raises: Unreachable where a name server answers instead; NoAnswer, Refused, BadFrame.
    """
    try:
        conf = Broker(client, address, "", "").config()
    except (NoAnswer, Refused) as error:
        is_unknown = isinstance(error, NoAnswer) or error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        if is_unknown and _is_name_server(client, address):  # those of 4.x do not even answer
            raise Unreachable(
                f"{address} is a name server, not a broker", advice=f"-n {address} finds its brokers"
            ) from error
        raise
    with understood(f"the configuration of {address}"):
        return conf["brokerClusterName"], conf["brokerName"], int(conf["brokerId"])


def _is_name_server(client: Client, address: str) -> bool:
    try:
        client.call(address, Request(RequestCode.GET_BROKER_CLUSTER_INFO), timeout_ms=_SECOND_MS)
    except RemotingError:
        return False
    return True
