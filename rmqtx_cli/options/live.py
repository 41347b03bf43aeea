"""The options that say which live brokers are meant and how they are spoken to, declared once for all commands."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from readers.model.errors import BadRequest
from rmqtx_cli.options.configuration import own_name_servers
from rmqtx_cli.words import say
from rmqtx_cli.words.durations import parse_duration_ms
from rmqtx_cli.words.text import stored_text

if TYPE_CHECKING:
    from remoting.connections.broker import Broker
    from remoting.connections.client import Client
    from remoting.connections.name_servers import NameServers
    from remoting.protocol.answers import BrokerAddresses
    from remoting.protocol.settings import Credentials, RemotingSettings

NameServersOption = Annotated[
    str | None,
    typer.Option(
        "--namesrv", "-n", metavar="HOST:PORT",
        help="Ask live brokers, found by this name server (several: with ;); NAMESRV_ADDR, or the configuration file, "
        "says it too.",
    ),
]
BrokerOption = Annotated[
    list[str] | None,
    typer.Option(
        "--broker", parser=stored_text, metavar="NAME|HOST:PORT",
        help="Only this broker, by its name or address; repeat it for several. An address needs no name server.",
    ),
]
ClusterOption = Annotated[
    str | None, typer.Option("--cluster", parser=stored_text, metavar="NAME", help="Only brokers of this cluster.")
]
NamespaceOption = Annotated[
    str | None,
    typer.Option(
        "--namespace", parser=stored_text, metavar="NAME",
        help="Topics and groups that are named are those of this namespace: NAME%...",
    ),
]
TimeoutOption = Annotated[
    int | None,
    typer.Option(
        "--timeout", parser=parse_duration_ms, metavar="DURATION", help="How long a response is waited for; 10s."
    ),
]
CredentialsOption = Annotated[
    Path | None,
    typer.Option(
        "--credentials", metavar="FILE",
        help="File with accessKey and secretKey (mqadmin's tools.yml); else RMQTX_ACCESS_KEY and RMQTX_SECRET_KEY.",
    ),
]
TlsOption = Annotated[bool, typer.Option("--tls", help="Speak TLS; any other --tls option says so too.")]
TlsCaOption = Annotated[
    Path | None, typer.Option("--tls-ca", metavar="FILE", help="Who signed the brokers' certificates (PEM).")
]
TlsCertificateOption = Annotated[
    Path | None, typer.Option("--tls-cert", metavar="FILE", help="Our certificate, for brokers that want one (PEM).")
]
TlsKeyOption = Annotated[
    Path | None, typer.Option("--tls-key", metavar="FILE", help="Its key, if it is not in the same file (PEM).")
]
TlsServerNameOption = Annotated[
    str | None,
    typer.Option("--tls-server-name", metavar="NAME", help="The name in the brokers' certificates, if not the host's."),
]
TlsInsecureOption = Annotated[
    bool, typer.Option("--tls-insecure", help="Speak TLS with whoever answers: no certificate is verified.")
]


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """What a command line says of live brokers.

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
        """Whether live brokers are named, by the command line, by NAMESRV_ADDR or by the configuration file."""
        return self.is_explicit or bool(own_name_servers())

    @property
    def name_server_addresses(self) -> list[str]:
        """The name servers' addresses.

        NAMESRV_ADDR and the configuration file are not asked where the command line gives all brokers by address.
        Raises: BadRequest.
        """
        from remoting.protocol.addresses import is_address, several

        text = self.namesrv
        if text is None and not (self.broker and all(is_address(name) for name in self.broker)):
            text = own_name_servers()
        return several(text or "")

    def full_name(self, name: str) -> str:
        """A topic or group as brokers have it: in the namespace that --namespace gives, whether it says so or not."""
        from remoting.protocol.namespaces import with_namespace

        return with_namespace(name, self.namespace)

    def instead_of(self, stores: Sequence[object], advice: str) -> bool:
        """Whether live brokers are asked and not the stores, of which exactly one must be given.

        A STORE wins over NAMESRV_ADDR: an exported variable never makes a command that reads files use the network.
        Raises: BadRequest, with the advice, where both or neither is given.
        """
        if stores and self._given():
            raise BadRequest(f"STORE reads files and {self._given()[0]} asks live brokers", advice="leave one out")
        if not stores and not self.is_asked:
            raise BadRequest("neither a store nor a live broker is given", advice=advice)
        return not stores

    def _given(self) -> list[str]:
        """The live options that the command line has, as they are written there."""
        names = (one.name for one in fields(self))
        return [f"--{name.replace('_', '-')}" for name in names if getattr(self, name) not in (None, [], False)]


@dataclass(frozen=True, slots=True)
class Live:
    """The brokers that a command line means, and what they are spoken to through.

    Shape: `brokers` are the masters that are meant (or a slave whose address is named); `members` the same with all
           addresses, slaves too, as the name server or the broker itself gives them.
    """

    client: Client
    name_servers: NameServers | None
    brokers: list[Broker] = field(default_factory=list)
    members: list[BrokerAddresses] = field(default_factory=list)

    @property
    def names(self) -> str:
        """The brokers, for a line that says where something comes from."""
        return ", ".join(broker.root for broker in self.brokers)


@contextmanager
def open_live(live: LiveOptions) -> Iterator[Live]:
    """The live brokers that are asked for; connections end with the context.

    Raises: BadRequest, Unreachable, NoAnswer, Refused.
    """
    from remoting.connections.client import Client
    from remoting.connections.discovery import chosen_brokers
    from remoting.connections.name_servers import NameServers

    addresses = live.name_server_addresses
    if not addresses and not live.broker:
        raise BadRequest("no live broker is given", advice="-n HOST:PORT names a name server, --broker a broker")
    with Client(_settings(live)) as client:
        name_servers = NameServers(client, addresses) if addresses else None
        brokers, members = chosen_brokers(client, name_servers, names=live.broker or (), cluster=live.cluster)
        yield Live(client, name_servers, brokers, members)


def _settings(live: LiveOptions) -> RemotingSettings:
    from remoting.connections.tls import KEY_PASSWORD, tls_context
    from remoting.protocol.settings import RemotingSettings

    context = None
    if live.tls or live.tls_insecure or live.tls_server_name or live.tls_ca or live.tls_cert or live.tls_key:
        context = tls_context(
            ca=live.tls_ca, certificate=live.tls_cert, key=live.tls_key, is_insecure=live.tls_insecure,
            key_password=os.environ.get(KEY_PASSWORD),
        )
    standard = RemotingSettings()
    timeout_ms = standard.timeout_ms if live.timeout is None else live.timeout
    if timeout_ms <= 0:
        raise BadRequest("--timeout 0 waits for nothing", advice="write it like 10s")
    return RemotingSettings(
        connect_timeout_ms=min(standard.connect_timeout_ms, timeout_ms), timeout_ms=timeout_ms,
        credentials=_credentials(live.credentials), tls=context, tls_server_name=live.tls_server_name,
        namespace=live.namespace,
    )


def _credentials(path: Path | None) -> Credentials | None:
    from remoting.connections.credentials import from_environment, from_file, is_readable_by_others

    if path is None:
        return from_environment(os.environ)
    if is_readable_by_others(path):
        say.error(f"warning: other users can read {path}; chmod 600 keeps the secret key to you")
    return from_file(path)
