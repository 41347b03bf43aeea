"""How brokers are spoken to: patience, encoding, credentials, TLS, namespace. Secrets never show in any text."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

from remoting.protocol.codes import OUR_VERSION
from remoting.protocol.frames import Encoding


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who asks, for brokers with access control."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class RemotingSettings:
    """What every connection of a command shares.

    Units: milliseconds. `namespace` is put before topics and groups of requests, and taken off what is shown.
    """

    connect_timeout_ms: int = 3_000
    timeout_ms: int = 10_000
    encoding: Encoding = Encoding.JSON
    version: int = OUR_VERSION
    credentials: Credentials | None = None
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    tls_server_name: str | None = None
    namespace: str | None = None
