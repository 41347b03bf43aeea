"""The options for live brokers: which brokers, and how to connect to them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtx.readers.model.errors import BadRequest
from rmqtx_cli.options.configuration import own_name_servers
from rmqtx_cli.words import say
from rmqtx_cli.words.durations import parse_duration_ms
from rmqtx_cli.words.text import stored_text

if TYPE_CHECKING:
    from rmqtx.remoting.connections.broker import Broker
    from rmqtx.remoting.connections.client import Client
    from rmqtx.remoting.connections.discovery import LostBroker, NameServers
    from rmqtx.remoting.protocol.answers import BrokerAddresses
    from rmqtx.remoting.protocol.settings import Credentials, RemotingSettings

NameServersOption = Annotated[
    str | None,
    typer.Option(
        "--namesrv", "-n", metavar="HOST:PORT",
        help="Live brokers found through this name server (several: separated by ;); default: $NAMESRV_ADDR, or "
        "the configuration file",
    ),
]
BrokerOption = Annotated[
    list[str] | None,
    typer.Option(
        "--broker", parser=stored_text, metavar="NAME|HOST:PORT",
        help="Only this broker, by name or address; repeatable. An address needs no name server",
    ),
]
ClusterOption = Annotated[
    str | None, typer.Option("--cluster", parser=stored_text, metavar="NAME", help="Only brokers of this cluster")
]
NamespaceOption = Annotated[
    str | None,
    typer.Option(
        "--namespace", parser=stored_text, metavar="NAME",
        help="Namespace of the topics and groups given: NAME%...",
    ),
]
TimeoutOption = Annotated[
    int | None,
    typer.Option(
        "--timeout", parser=parse_duration_ms, metavar="DURATION", help="How long to wait for a response; default: 10s"
    ),
]
CredentialsOption = Annotated[
    Path | None,
    typer.Option(
        "--credentials", metavar="FILE",
        help="File with accessKey and secretKey (mqadmin's tools.yml); default: $RMQTX_ACCESS_KEY and "
        "$RMQTX_SECRET_KEY",
    ),
]
TlsOption = Annotated[bool, typer.Option("--tls", help="Use TLS; implied by the other --tls options")]
TlsCaOption = Annotated[
    Path | None, typer.Option("--tls-ca", metavar="FILE", help="CA certificates to trust (PEM)")
]
TlsCertificateOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-cert", metavar="FILE",
        help="Client certificate, for brokers that require one (PEM)",
    ),
]
TlsKeyOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-key", metavar="FILE",
        help="Key of the client certificate, if in another file (PEM)",
    ),
]
TlsServerNameOption = Annotated[
    str | None,
    typer.Option(
        "--tls-server-name", metavar="NAME",
        help="Name in the brokers' certificates, if it is not the host name",
    ),
]
TlsInsecureOption = Annotated[
    bool, typer.Option("--tls-insecure", help="Use TLS without verifying certificates")
]


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """The options for live brokers.

    Units: milliseconds. Order of the fields: that of the help text.
    """

    namesrv: NameServersOption = None
    broker: BrokerOption = None
    cluster: ClusterOption = None
    namespace: NamespaceOption = None
    credentials: CredentialsOption = None
    tls: TlsOption = False
    tls_ca: TlsCaOption = None
    tls_cert: TlsCertificateOption = None
    tls_key: TlsKeyOption = None
    tls_server_name: TlsServerNameOption = None
    tls_insecure: TlsInsecureOption = False
    timeout: TimeoutOption = None

    @property
    def is_explicit(self) -> bool:
        """Whether the command line itself names a name server or a broker."""
        return bool(self.namesrv or self.broker)

    @property
    def is_asked(self) -> bool:
        """Whether the command line, NAMESRV_ADDR or the configuration file names live brokers."""
        return self.is_explicit or bool(own_name_servers())

    @property
    def name_server_addresses(self) -> list[str]:
        """Addresses of the name servers.

        NAMESRV_ADDR and the configuration file are ignored if the command line gives all brokers by address.
        Raises: BadRequest.
        """
        from rmqtx.remoting.protocol.addresses import is_address, several

        text = self.namesrv
        if text is None and not (self.broker and all(is_address(name) for name in self.broker)):
            text = own_name_servers()
        return several(text or "")

    def full_name(self, name: str) -> str:
        """Name of a topic or group with the namespace of --namespace, added where the given name has none."""
        from rmqtx.remoting.protocol.addresses import with_namespace

        return with_namespace(name, self.namespace)

    def instead_of(self, stores: Sequence[object], advice: str) -> bool:
        """Whether to read live brokers instead of stores.

        A STORE wins over NAMESRV_ADDR: an exported variable never makes a command that reads files use the network.
        Raises: BadRequest, with the advice, if both or neither are given.
        """
        if stores and self._given():
            raise BadRequest(f"STORE reads files and {self._given()[0]} reads live brokers", advice="leave one out")
        if not stores and not self.is_asked:
            raise BadRequest("no store and no live broker given", advice=advice)
        return not stores

    def _given(self) -> list[str]:
        """Names of the live options on the command line."""
        names = (one.name for one in fields(self))
        return [f"--{name.replace('_', '-')}" for name in names if getattr(self, name) not in (None, [], False)]


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


@contextmanager
def open_live(live: LiveOptions, *, without_lost: bool = False) -> Iterator[Live]:
    """Open the live brokers that the options select; the connections are closed with the context.

    `without_lost`: go on without brokers that cannot be reached, if there are others.
    Raises: BadRequest, Unreachable, NoAnswer, Refused.
    """
    from rmqtx.remoting.connections.client import Client
    from rmqtx.remoting.connections.discovery import NameServers, chosen_brokers

    addresses = live.name_server_addresses
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
    from rmqtx.remoting.connections.transport import KEY_PASSWORD, tls_context
    from rmqtx.remoting.protocol.settings import RemotingSettings

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
    from rmqtx.remoting.connections.credentials import from_environment, from_file, is_readable_by_others

    if path is None:
        return from_environment(os.environ)
    if is_readable_by_others(path):
        say.error(f"warning: other users can read {path}; to protect the secret key: chmod 600 {path}")
    return from_file(path)
