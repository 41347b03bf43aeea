"""TLS as a command asks for it: whom to trust, and as whom to come."""

from __future__ import annotations

import ssl
from pathlib import Path

from readers.model.errors import BadRequest, UnreadableFile

KEY_PASSWORD = "RMQTX_TLS_KEY_PASSWORD"


def tls_context(
    *,
    ca: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
    key_password: str | None = None,
    is_insecure: bool = False,
) -> ssl.SSLContext:
    """A context for connections to brokers.

    `ca`: who signed the brokers' certificates (the system's authorities by default). `certificate` and `key`: ours, for
    brokers that want one; the key may lie in the certificate's file. `is_insecure`: trust whoever answers.
    Raises: BadRequest, UnreadableFile.
    """
    if is_insecure and ca is not None:
        raise BadRequest("--tls-ca says whom to trust, and --tls-insecure to trust anybody", advice="leave one out")
    if key is not None and certificate is None:
        raise BadRequest("--tls-key is given without its certificate", advice="give --tls-cert FILE too")
    context = _trusting(ca)
    if is_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        _come_with(context, certificate, key, key_password)
    return context


def _trusting(ca: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except ssl.SSLError as error:
        raise UnreadableFile("not a certificate in PEM form", file=ca) from error
    except OSError as error:
        raise UnreadableFile(f"cannot read the certificate: {error.strerror or error}", file=ca) from error


def _come_with(context: ssl.SSLContext, certificate: Path, key: Path | None, key_password: str | None) -> None:
    where = certificate if key is None else key
    try:
        # A password that is not given must not be asked for at a terminal: cron has none.
        context.load_cert_chain(certificate, key, password=key_password or "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise UnreadableFile(f"the key is not that of the certificate {certificate}", file=where) from error
        raise UnreadableFile(
            "not a certificate and its key in PEM form, or the key's password is wrong", file=where,
            advice=f"{KEY_PASSWORD} gives the password of an encrypted key",
        ) from error
    except OSError as error:
        lacking = next((path for path in (certificate, key) if path is not None and not path.is_file()), where)
        raise UnreadableFile(f"cannot read it: {error.strerror or error}", file=lacking) from error
