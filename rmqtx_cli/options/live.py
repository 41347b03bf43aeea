"""The options for live brokers: which brokers, and how to connect to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import typer

from rmqtx.readers.model.errors import BadRequest
from rmqtx_cli.options.configuration import own_name_servers
from rmqtx_cli.words.text import stored_text
from rmqtx_cli.words.times import parse_duration_ms


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """The options for live brokers. Units: milliseconds. Order of the fields: that of the help text."""

    namesrv: Annotated[
        str | None,
        typer.Option(
            "--namesrv", "-n", metavar="HOST:PORT",
            help="Live brokers found through this name server (several: separated by ;); default: $NAMESRV_ADDR, or "
            "the configuration file",
        ),
    ] = None
    broker: Annotated[
        list[str] | None,
        typer.Option(
            "--broker", parser=stored_text, metavar="NAME|HOST:PORT",
            help="Only this broker, by name or address; repeatable. An address needs no name server",
        ),
    ] = None
    cluster: Annotated[
        str | None, typer.Option("--cluster", parser=stored_text, metavar="NAME", help="Only brokers of this cluster")
    ] = None
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace", parser=stored_text, metavar="NAME",
            help="Namespace of the topics and groups given: NAME%...",
        ),
    ] = None
    credentials: Annotated[
        Path | None,
        typer.Option(
            "--credentials", metavar="FILE",
            help="File with accessKey and secretKey (mqadmin's tools.yml); default: $RMQTX_ACCESS_KEY and "
            "$RMQTX_SECRET_KEY",
        ),
    ] = None
    tls: Annotated[bool, typer.Option("--tls", help="Use TLS; implied by the other --tls options")] = False
    tls_ca: Annotated[
        Path | None, typer.Option("--tls-ca", metavar="FILE", help="CA certificates to trust (PEM)")
    ] = None
    tls_cert: Annotated[
        Path | None,
        typer.Option(
            "--tls-cert", metavar="FILE",
            help="Client certificate, for brokers that require one (PEM)",
        ),
    ] = None
    tls_key: Annotated[
        Path | None,
        typer.Option(
            "--tls-key", metavar="FILE",
            help="Key of the client certificate, if in another file (PEM)",
        ),
    ] = None
    tls_server_name: Annotated[
        str | None,
        typer.Option(
            "--tls-server-name", metavar="NAME",
            help="Name in the brokers' certificates, if it is not the host name",
        ),
    ] = None
    tls_insecure: Annotated[
        bool, typer.Option("--tls-insecure", help="Use TLS without verifying certificates")
    ] = False
    timeout: Annotated[
        int | None,
        typer.Option(
            "--timeout", parser=parse_duration_ms, metavar="DURATION",
            help="How long to wait for a response; default: 10s"
        ),
    ] = None

    @property
    def is_explicit(self) -> bool:
        """Whether the command line itself names a name server or a broker."""
        return bool(self.namesrv or self.broker)

    @property
    def is_asked(self) -> bool:
        """Whether the command line, NAMESRV_ADDR or the configuration file names live brokers."""
        return self.is_explicit or bool(own_name_servers())

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
