"""Settings of connections to brokers: addresses, timeouts, encoding, credentials, TLS, namespace.

No text contains a secret.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field

from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.store.store import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TRACE_TOPIC
from rmqtx.remoting.protocol.codes import OUR_VERSION
from rmqtx.remoting.protocol.frames import Encoding

SEPARATOR = "%"
#: Consumers' own topics, before the namespace: %RETRY%NAMESPACE%GROUP.
_MARKS = ("%RETRY%", "%DLQ%")
#: Never in a namespace.
_SYSTEM_TOPICS = frozenset({
    SCHEDULE_TOPIC, "BenchmarkTest", HALF_TOPIC, TRACE_TOPIC, OP_TOPIC, DISCARD_TOPIC, "SELF_TEST_TOPIC",
    "OFFSET_MOVED_EVENT", "TBW102",
})
_SYSTEM_GROUPS = ("CID_RMQ_SYS_", "TOOLS_CONSUMER")


def host_and_port(address: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`; an IPv6 host may be in brackets. Raises: BadRequest."""
    host, _, port = address.strip().rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not host or not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 1 << 16:
        raise BadRequest(f"{address!r} is not an address", advice="give HOST:PORT, for example 10.0.0.1:9876")
    return host, int(port)


def several(text: str) -> list[str]:
    """Return the addresses in a text, separated by semicolons, commas or spaces. Raises: BadRequest."""
    found = [part for part in re.split(r"[;,\s]+", text) if part]
    for address in found:
        host_and_port(address)
    return list(dict.fromkeys(found))


def is_address(text: str) -> bool:
    """Whether a text has the form of an address, and not of a broker's name."""
    try:
        host_and_port(text)
    except BadRequest:
        return False
    return True


# Names in a namespace: clients put `NAMESPACE%` before topics and groups, after %RETRY% or %DLQ%.
#
# Brokers do not interpret it: for them, and in every table of rmqtx, the whole text is the name. Source:
# common/protocol/NamespaceUtil.java (remoting/protocol in 5.x).


def with_namespace(name: str, namespace: str | None) -> str:
    """Return the name as brokers have it; a name with the namespace, or one that never has any, is unchanged."""
    if not namespace or not name or _is_system(name):
        return name
    mark, rest = _split(name)
    return name if rest.startswith(f"{namespace}{SEPARATOR}") else f"{mark}{namespace}{SEPARATOR}{rest}"


def _split(name: str) -> tuple[str, str]:
    mark = next((mark for mark in _MARKS if name.startswith(mark)), "")
    return mark, name[len(mark) :]


def _is_system(name: str) -> bool:
    return name in _SYSTEM_TOPICS or name.startswith(("rmq_sys_", *_SYSTEM_GROUPS))


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
