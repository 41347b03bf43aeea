"""The web configuration file: TLS and users, in the form that node_exporter and other exporters have."""

from __future__ import annotations

import base64
import binascii
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmqtx.readers.model.errors import BadRequest, UnreadableFile

_TLS_KEYS = ("cert_file", "key_file", "client_ca_file", "client_auth_type", "min_version")
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"NoClientCert": ssl.CERT_NONE, "RequireAndVerifyClientCert": ssl.CERT_REQUIRED}
#: A hash of no password: an unknown user takes as long as a wrong password.
_NOBODY = b"$2b$10$C6UzMDM.H6dfI/f/IKcEeO6Wm0p1jQyZb0pP0wQp8C0rJ3z5yqV8K"


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
