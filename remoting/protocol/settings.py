"""Settings of connections to brokers: timeouts, encoding, credentials, TLS, namespace. No text contains a secret."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

from rmqtx.remoting.protocol.codes import OUR_VERSION
from rmqtx.remoting.protocol.frames import Encoding


@dataclass(frozen=True, slots=True)
class Credentials:
    """Access key and secret key, for brokers with access control."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class RemotingSettings:
    """The settings of all connections of a command.

    Units: milliseconds. `namespace` is added to topics and groups in requests, and removed from what is shown.
    """

    connect_timeout_ms: int = 3_000
    timeout_ms: int = 10_000
    encoding: Encoding = Encoding.JSON
    version: int = OUR_VERSION
    credentials: Credentials | None = None
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    tls_server_name: str | None = None
    namespace: str | None = None
