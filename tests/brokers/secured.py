"""Brokers with access control (ACL of 4.9, authentication of 5.3+), and brokers with TLS and keys made here."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rmqtx.readers.store.store import WAITING_TOPICS
from rmqtx.remoting.connections.client import Client
from rmqtx.remoting.connections.connection import Request, Value
from rmqtx.remoting.connections.discovery import NameServers
from rmqtx.remoting.protocol.connection_settings import Credentials, RemotingSettings
from rmqtx.remoting.protocol.errors import RemotingError
from tests.brokers.rig import CHECK_GROUP, DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC, REQUEST_TOPIC, Rig

ADMIN = Credentials("rmqadmin", "admin-secret-4711")
#: May publish to and read TOPIC, and nothing else.
USER = Credentials("rmquser", "user-secret-4711")
#: May do what rmqtx needs according to docs/remoting.md, and nothing else.
OPERATOR = Credentials("rmqoperator", "operator-secret-4711")
WRONG_SECRET = Credentials("rmqadmin", "wrong-secret-4711")
STRANGER = Credentials("stranger", "stranger-secret-4711")
TOPIC, GROUP = "secured-orders", "secured-shop"
CREATE_USER, CREATE_ACL = 3001, 3006

#: What an operator's account must be allowed, beside the topics of the transactions themselves.
READ_TOPICS = (HALF_TOPIC, OP_TOPIC, DISCARD_TOPIC, *WAITING_TOPICS)
READ_GROUPS = ("TOOLS_CONSUMER", CHECK_GROUP)

_PLAIN_ACL = f"""accounts:
- accessKey: {ADMIN.access_key}
  secretKey: {ADMIN.secret_key}
  whiteRemoteAddress:
  admin: true
- accessKey: {USER.access_key}
  secretKey: {USER.secret_key}
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - {TOPIC}=PUB|SUB
  groupPerms:
  - {GROUP}=PUB|SUB
- accessKey: {OPERATOR.access_key}
  secretKey: {OPERATOR.secret_key}
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
{"".join(f"  - {topic}=SUB{chr(10)}" for topic in (*READ_TOPICS, TOPIC))}  groupPerms:
  - {READ_GROUPS[0]}=SUB
"""
_PROVIDERS = "org.apache.rocketmq.auth"
_ACL_2 = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{_PROVIDERS}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{_PROVIDERS}.authentication.provider.LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": f'{{"username":"{ADMIN.access_key}","password":"{ADMIN.secret_key}"}}',
    "innerClientAuthenticationCredentials": f'{{"accessKey":"{ADMIN.access_key}","secretKey":"{ADMIN.secret_key}"}}',
    "authorizationEnabled": "true",
    "authorizationProvider": f"{_PROVIDERS}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{_PROVIDERS}.authorization.provider.LocalAuthorizationMetadataProvider",
}


@contextmanager
def guarded_broker(version: str, out: Path) -> Iterator[Rig]:
    """A broker with access control, with the topic TOPIC and the accounts ADMIN and USER."""
    is_new = not version.startswith("4.")
    patience = {"transactionTimeOut": "600000", "waitTimeMillsInTransactionQueue": "3000"}  # what is sent stays open
    with Rig(version, out, patience | (_ACL_2 if is_new else {"aclEnable": "true"})) as rig:
        if not is_new:
            (rig.home / "conf" / "plain_acl.yml").write_text(_PLAIN_ACL)
            (rig.home / "conf" / "acl").mkdir()
        rig.start_names()
        rig.start_broker()
        with Client(RemotingSettings(credentials=ADMIN)) as client:
            wait_registered(client, rig)
            create_topic(client, rig.address, TOPIC)
            if is_new:
                _create_users(client, rig.address)
        yield rig


def _create_users(client: Client, address: str) -> None:
    rights: dict[str, list[str]] = {f"Topic:{topic}": ["Sub", "Get"] for topic in (*READ_TOPICS, TOPIC)}
    rights |= {f"Group:{group}": ["Sub", "Get"] for group in READ_GROUPS} | {"Cluster:*": ["Get"]}
    _create_user(client, address, OPERATOR, rights)
    _create_user(client, address, USER, {f"Topic:{TOPIC}": ["Pub", "Sub"], f"Group:{GROUP}": ["Sub"]})


def _create_user(client: Client, address: str, who: Credentials, rights: Mapping[str, list[str]]) -> None:
    name = who.access_key
    user = {"username": name, "password": who.secret_key, "userType": "Normal", "userStatus": "enable"}
    client.call(address, Request(CREATE_USER, {"username": name}, json.dumps(user).encode()))
    entries = [
        {"resource": resource, "actions": actions, "sourceIps": [], "decision": "Allow"}
        for resource, actions in rights.items()
    ]
    policies = {"subject": f"User:{name}", "policies": [{"policyType": "Custom", "entries": entries}]}
    client.call(address, Request(CREATE_ACL, {"subject": f"User:{name}"}, json.dumps(policies).encode()))


def create_topic(client: Client, address: str, topic: str, queues: int = 4) -> None:
    """Create a topic with the client of rmqtx."""
    fields: dict[str, Value] = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False,
    }
    client.call(address, Request(REQUEST_TOPIC, fields))


def wait_registered(client: Client, rig: Rig) -> None:
    """Wait until the name server has the broker's address."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            if any(broker.master == rig.address for broker in NameServers(client, [rig.name_server]).brokers()):
                return
        except RemotingError:
            pass
        time.sleep(0.2)
    raise TimeoutError("the broker did not register")


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files of a certificate authority and of what it signed, all PEM.

    Shape: `server` is for 127.0.0.1 and localhost; `other` is for another name; `stranger` is an authority that signed
           nothing. Keys are PKCS#8, which RocketMQ needs.
    """

    authority: Path
    server: Path
    server_key: Path
    other: Path
    other_key: Path
    client: Path
    client_key: Path
    stranger: Path


def make_certificates(directory: Path) -> Certificates:
    """A certificate authority, and what it signed, made with openssl."""
    authority, authority_key = _authority(directory, "authority")
    stranger, _ = _authority(directory, "stranger")
    server = _signed(directory, "server", "DNS:localhost,IP:127.0.0.1", authority, authority_key)
    other = _signed(directory, "other", "DNS:broker.example", authority, authority_key)
    client = _signed(directory, "client", "DNS:rmqtx", authority, authority_key)
    return Certificates(authority, *server, *other, *client, stranger)


def _openssl(*words: object) -> None:
    subprocess.run(["openssl", *(str(word) for word in words)], check=True, capture_output=True)


def _authority(directory: Path, name: str) -> tuple[Path, Path]:
    certificate, key = directory / f"{name}.pem", directory / f"{name}.key"
    _openssl(
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", 30, "-subj", f"/CN=rmqtx tests {name}",
        "-keyout", key, "-out", certificate, "-addext", "keyUsage=critical,keyCertSign,cRLSign",
    )
    return certificate, key


def _signed(directory: Path, name: str, names: str, authority: Path, authority_key: Path) -> tuple[Path, Path]:
    certificate, key, asked = (directory / f"{name}.{suffix}" for suffix in ("pem", "key", "csr"))
    extensions = directory / f"{name}.ext"
    extensions.write_text(f"subjectAltName={names}\nextendedKeyUsage=serverAuth,clientAuth\n")
    _openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out", asked)
    _openssl(
        "x509", "-req", "-in", asked, "-CA", authority, "-CAkey", authority_key, "-CAcreateserial", "-days", 30,
        "-extfile", extensions, "-out", certificate,
    )
    return certificate, key


@contextmanager
def tls_broker(
    version: str, out: Path, certificates: Certificates, *, mode: str = "enforcing", wants_client: bool = False,
    is_other: bool = False,
) -> Iterator[Rig]:
    """A broker with TLS and `server`'s certificate (`is_other`: one for another name); its name server accepts both.

    `mode`: tls.server.mode: enforcing accepts only TLS, disabled accepts none.
    """
    certificate = certificates.other if is_other else certificates.server
    key = certificates.other_key if is_other else certificates.server_key
    lines = ["tls.test.mode.enable=false", f"tls.server.keyPath={key}", f"tls.server.certPath={certificate}"]
    # A broker of 5.x that enforces TLS also speaks it to its name server.
    lines += [f"tls.client.keyPath={certificates.client_key}", f"tls.client.certPath={certificates.client}"]
    lines += ["tls.client.authServer=true", f"tls.client.trustCertPath={certificates.authority}"]
    lines.append(f"tls.server.need.client.auth={'require' if wants_client else 'none'}")
    if wants_client:
        lines += ["tls.server.authClient=true", f"tls.server.trustCertPath={certificates.authority}"]
    out.mkdir(parents=True, exist_ok=True)
    properties = out / "tls.properties"
    properties.write_text("\n".join(lines) + "\n")
    with Rig(version, out) as rig:
        rig.options += ["-Dtls.server.mode=permissive", f"-Dtls.config.file={properties}"]
        rig.start_names()  # accepts TLS and plain connections
        rig.options.append(f"-Dtls.server.mode={mode}")  # the last option is in effect
        rig.start_broker()
        with Client() as client:
            wait_registered(client, rig)
        yield rig
