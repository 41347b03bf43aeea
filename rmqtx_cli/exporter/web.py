"""The web server of the exporter: /metrics, /healthz, and a page that leads to them; and its configuration file.

The file has TLS and users, in the form that node_exporter and other exporters have.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from rmqtx.readers.model.errors import BadRequest, UnreadableFile
from rmqtx_cli.exporter.schedule import Schedule, State
from rmqtx_cli.monitoring.metrics import EXPORTED, Metric, Samples
from rmqtx_cli.words.text import fully_escaped

_TLS_KEYS = ("cert_file", "key_file", "client_ca_file", "client_auth_type", "min_version")
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"NoClientCert": ssl.CERT_NONE, "RequireAndVerifyClientCert": ssl.CERT_REQUIRED}
#: A hash of no password: an unknown user takes as long as a wrong password.
_NOBODY = b"$2b$10$C6UzMDM.H6dfI/f/IKcEeO6Wm0p1jQyZb0pP0wQp8C0rJ3z5yqV8K"
#: Results of readings; each has a counter from the start on, so that the first failure is an increase.
RESULTS = ("ok", "failed", "timed_out")


@dataclass(frozen=True, slots=True)
class WebConfig:
    """What the web server demands of clients. Shape: `users`: bcrypt hashes by name; none: everybody may read."""

    tls: ssl.SSLContext | None = None
    users: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def demands_clients(self) -> bool:
        """Whether only some clients can read: those with a password or a certificate."""
        return bool(self.users) or (self.tls is not None and self.tls.verify_mode is ssl.CERT_REQUIRED)

    def allows(self, authorization: str | None) -> bool:
        """Return whether the value of a request's Authorization header is that of a user."""
        if not self.users:
            return True
        import bcrypt

        try:
            scheme, _, text = (authorization or "").partition(" ")
            name, _, password = base64.b64decode(text, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return False
        try:
            is_right = bcrypt.checkpw(password.encode()[:72], self.users.get(name, _NOBODY))
        except ValueError:
            return False  # the hash in the file is not valid, or the password contains a null byte
        return is_right and scheme.lower() == "basic" and name in self.users


def web_config(file: Path) -> WebConfig:
    """Return the configuration in a YAML file; names of files in it are relative to its directory.

    Raises: BadRequest, UnreadableFile.
    """
    import yaml

    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    except OSError as error:
        raise UnreadableFile(f"cannot read it: {error.strerror}", file=str(file)) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadRequest(f"{file} is not YAML: {str(error).splitlines()[0]}") from error
    _require_keys(file, "", found, ("tls_server_config", "basic_auth_users"))
    users = found.get("basic_auth_users") or {}
    if not isinstance(users, dict) or not all(str(text).startswith("$2") for text in users.values()):
        raise BadRequest(f"{file}: basic_auth_users needs a bcrypt hash for each name", advice="htpasswd -nBC 10 NAME")
    if users:
        _require_bcrypt()
    tls = found.get("tls_server_config")
    hashes = {str(name): str(text).encode() for name, text in users.items()}
    return WebConfig(None if tls is None else _tls_context(file, tls), hashes)


def _require_keys(file: Path, section: str, found: Any, known: tuple[str, ...]) -> None:
    if not isinstance(found, dict):
        raise BadRequest(f"{file}: {section or 'the file'} is not a mapping")
    for name in found:
        if name not in known:
            where = f"{section}." if section else ""
            raise BadRequest(f"{file}: unknown field {where}{name}; known: {', '.join(known)}")


def _require_bcrypt() -> None:
    try:
        import bcrypt  # noqa: F401
    except ImportError:
        raise BadRequest(
            "basic_auth_users needs the package bcrypt", advice="pip install 'rmqtx[exporter]'"
        ) from None


def _tls_context(file: Path, found: Any) -> ssl.SSLContext:
    _require_keys(file, "tls_server_config", found, _TLS_KEYS)
    for name in ("cert_file", "key_file"):
        if not found.get(name):
            raise BadRequest(f"{file}: tls_server_config has no {name}")
    version, auth = found.get("min_version", "TLS12"), found.get("client_auth_type", "NoClientCert")
    for name, value, known in (("min_version", version, _VERSIONS), ("client_auth_type", auth, _CLIENT_AUTH)):
        if value not in known:
            raise BadRequest(f"{file}: tls_server_config.{name} is {value}, expected {' or '.join(known)}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[version]
    try:
        context.load_cert_chain(file.parent / found["cert_file"], file.parent / found["key_file"])
        if ca := found.get("client_ca_file"):
            context.load_verify_locations(file.parent / ca)
    except OSError as error:  # an ssl.SSLError too
        raise BadRequest(f"{file}: cannot use the certificate, key or CA: {error}") from error
    if _CLIENT_AUTH[auth] is ssl.CERT_REQUIRED and not found.get("client_ca_file"):
        raise BadRequest(f"{file}: client_auth_type {auth} needs client_ca_file")
    context.verify_mode = _CLIENT_AUTH[auth]
    return context


class StateCollector(Collector):
    """Collects what the last reading gave; never reads a store."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def collect(self) -> Iterator[Family]:
        """Return the metric families, in the order of their declaration."""
        state, now = self._schedule.state, time.time()
        samples = {**state.samples, **state.counters, **_own_samples(state, now)}
        for metric in EXPORTED:
            if metric.name in samples:
                yield _family(metric, samples)


def _own_samples(state: State, now: float) -> Samples:
    found: Samples = {
        "rmqtx_build_info": [({"version": version("rmqtx")}, 1)],
        "rmqtx_up": [({}, int(state.is_ok and now <= state.due_time))],
        "rmqtx_readings_total": [({"result": result}, state.results[result]) for result in RESULTS],
        "rmqtx_reading_running_seconds": [({}, 0.0 if state.running_since is None else now - state.running_since)],
    }
    if state.duration_seconds is not None:
        found["rmqtx_reading_duration_seconds"] = [({}, state.duration_seconds)]
    if state.ok_time is not None:
        found["rmqtx_reading_timestamp_seconds"] = [({}, state.ok_time)]
        found["rmqtx_reading_age_seconds"] = [({}, now - state.ok_time)]
    return found


def _family(metric: Metric, samples: Samples) -> Family:
    family = Family(metric.name.removesuffix("_total"), metric.meaning, str(metric.kind), metric.unit)
    for labels, value in samples[metric.name]:
        named = {name: fully_escaped(labels[name]) for name in metric.labels if labels.get(name)}
        family.add_sample(metric.name, named, value)
    return family


#: A client that sends or reads nothing for this time is disconnected.
_CLIENT_SECONDS = 10.0
_PAGE = b"""<!doctype html><html lang="en"><title>rmqtx exporter</title><h1>rmqtx exporter</h1>
<p><a href="/metrics">metrics</a>, <a href="/healthz">health</a></p></html>
"""
_PLAIN = "text/plain; charset=utf-8"


def parsed_address(text: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT, [IPV6]:PORT or :PORT, which is every address. Raises: BadRequest."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise BadRequest(f"--listen {text}: expected HOST:PORT, like 127.0.0.1:9560")
    return host.removeprefix("[").removesuffix("]"), int(port)


class Server(ThreadingHTTPServer):
    """Serves the state of a schedule."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], schedule: Schedule, config: WebConfig) -> None:
        self.schedule = schedule
        self.config = config
        self.registry = CollectorRegistry()
        self.registry.register(StateCollector(schedule))
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    @property
    def url(self) -> str:
        """Where it serves."""
        host, port = str(self.server_address[0]), self.server_address[1]
        return f"http{'' if self.config.tls is None else 's'}://{f'[{host}]' if ':' in host else host}:{port}/"

    @property
    def is_local(self) -> bool:
        """Whether only this host reaches the address."""
        return ipaddress.ip_address(str(self.server_address[0])).is_loopback

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Answer in the thread of the connection, so that a client that is slow with TLS delays no other."""
        request.settimeout(_CLIENT_SECONDS)
        if self.config.tls is None:
            super().finish_request(request, client_address)
            return
        with self.config.tls.wrap_socket(request, server_side=True) as encrypted:
            super().finish_request(encrypted, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that ends its connection or fails at TLS: the exporter continues."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = _CLIENT_SECONDS

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def version_string(self) -> str:
        return "rmqtx"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # as its base has it
        """Write no line for each scrape."""

    def _answer(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/healthz":  # without a password: probes of Kubernetes have none
            is_overdue = self.server.schedule.is_overdue
            self._send(503 if is_overdue else 200, _PLAIN, b"readings are overdue\n" if is_overdue else b"ok\n")
        elif not self.server.config.allows(self.headers.get("Authorization")):
            self._send(401, _PLAIN, b"unauthorized\n", [("WWW-Authenticate", 'Basic realm="rmqtx"')])
        elif path == "/metrics":
            encode, content_type = choose_encoder(self.headers.get("Accept", ""))
            self._send(200, content_type, encode(self.server.registry))
        elif path == "/":
            self._send(200, "text/html; charset=utf-8", _PAGE)
        else:
            self._send(404, _PLAIN, b"not found; see /metrics\n")

    def _send(self, status: int, content_type: str, body: bytes, headers: list[tuple[str, str]] | None = None) -> None:
        self.send_response(status)
        for name, value in [("Content-Type", content_type), ("Content-Length", str(len(body))), *(headers or [])]:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
