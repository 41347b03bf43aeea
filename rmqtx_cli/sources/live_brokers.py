"""Live brokers that a command line selects, connected."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rmqtx.readers.model.errors import BadRequest
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.connections.client import Client
from rmqtx.remoting.connections.credentials import from_environment, from_file, is_readable_by_others
from rmqtx.remoting.connections.discovery import LostBroker, NameServers, chosen_brokers
from rmqtx.remoting.connections.transport import KEY_PASSWORD, tls_context
from rmqtx.remoting.protocol.answers import BrokerAddresses
from rmqtx.remoting.protocol.connection_settings import (
    Credentials,
    RemotingSettings,
    is_address,
    several,
    with_namespace,
)
from rmqtx_cli.options.configuration import own_name_servers
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.words import say


@dataclass(frozen=True, slots=True)
class Live:
    """The brokers that a command line selects, and the client connected to them.

    Shape: `brokers` are the selected masters (or a slave given by its address); `members` the same brokers with all
           addresses, slaves included, as the name server or the broker itself reports them. `lost`: chosen brokers
           that cannot be reached.
    """

    client: Client
    name_servers: NameServers | None
    brokers: list[Broker] = field(default_factory=list)
    members: list[BrokerAddresses] = field(default_factory=list)
    lost: list[LostBroker] = field(default_factory=list)

    @property
    def names(self) -> str:
        """Names of the brokers, for messages."""
        return ", ".join(broker.root for broker in self.brokers)


def name_server_addresses(live: LiveOptions) -> list[str]:
    """Addresses of the name servers.

    NAMESRV_ADDR and the configuration file are ignored if the command line gives all brokers by address.
    Raises: BadRequest.
    """
    text = live.namesrv
    if text is None and not (live.broker and all(is_address(name) for name in live.broker)):
        text = own_name_servers()
    return several(text or "")


def full_name(live: LiveOptions, name: str) -> str:
    """Name of a topic or group with the namespace of --namespace, added where the given name has none."""
    return with_namespace(name, live.namespace)


@contextmanager
def open_live(live: LiveOptions, *, without_lost: bool = False) -> Iterator[Live]:
    """Open the live brokers that the options select; the connections are closed with the context.

    `without_lost`: go on without brokers that cannot be reached, if there are others.
    Raises: BadRequest, Unreachable, NoAnswer, Refused.
    """
    addresses = name_server_addresses(live)
    if not addresses and not live.broker:
        raise BadRequest("no live broker given", advice="add -n HOST:PORT (a name server) or --broker HOST:PORT")
    with Client(_settings(live)) as client:
        name_servers = NameServers(client, addresses) if addresses else None
        lost: list[LostBroker] = []
        brokers, members = chosen_brokers(
            client, name_servers, names=live.broker or (), cluster=live.cluster, lost=lost if without_lost else None
        )
        yield Live(client, name_servers, brokers, members, lost)


def _settings(live: LiveOptions) -> RemotingSettings:
    context = None
    if live.tls or live.tls_insecure or live.tls_server_name or live.tls_ca or live.tls_cert or live.tls_key:
        context = tls_context(
            ca=live.tls_ca, certificate=live.tls_cert, key=live.tls_key, is_insecure=live.tls_insecure,
            key_password=os.environ.get(KEY_PASSWORD),
        )
    standard = RemotingSettings()
    timeout_ms = standard.timeout_ms if live.timeout is None else live.timeout
    if timeout_ms <= 0:
        raise BadRequest("--timeout must be more than 0", advice="for example --timeout 10s")
    return RemotingSettings(
        connect_timeout_ms=min(standard.connect_timeout_ms, timeout_ms), timeout_ms=timeout_ms,
        credentials=_credentials(live.credentials), tls=context, tls_server_name=live.tls_server_name,
        namespace=live.namespace,
    )


def _credentials(path: Path | None) -> Credentials | None:
    if path is None:
        return from_environment(os.environ)
    if is_readable_by_others(path):
        say.error(f"warning: other users can read {path}; to protect the secret key: chmod 600 {path}")
    return from_file(path)
