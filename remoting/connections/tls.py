"""TLS settings of a command: certificates to trust, and the client certificate."""

from __future__ import annotations

import ssl
from pathlib import Path

from rmqtx.readers.model.errors import BadRequest, UnreadableFile

KEY_PASSWORD = "RMQTX_TLS_KEY_PASSWORD"


def tls_context(
    *,
    ca: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
    key_password: str | None = None,
    is_insecure: bool = False,
) -> ssl.SSLContext:
    """Return a context for connections to brokers.

    `ca`: file with the CA certificates to trust (default: those of the system). `certificate` and `key`: the client
    certificate, for brokers that require one; the key may be in the certificate's file. `is_insecure`: do not verify
    certificates.
    Raises: BadRequest, UnreadableFile.
    """
    if is_insecure and ca is not None:
        raise BadRequest("--tls-ca and --tls-insecure exclude each other", advice="leave one out")
    if key is not None and certificate is None:
        raise BadRequest("--tls-key is given without its certificate", advice="add --tls-cert FILE")
    context = _trusting(ca)
    if is_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        _load_certificate(context, certificate, key, key_password)
    return context


def _trusting(ca: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except ssl.SSLError as error:
        raise UnreadableFile("not a certificate in PEM form", file=ca) from error
    except OSError as error:
        raise UnreadableFile(f"cannot read the certificate: {error.strerror or error}", file=ca) from error


def _load_certificate(context: ssl.SSLContext, certificate: Path, key: Path | None, key_password: str | None) -> None:
    where = certificate if key is None else key
    try:
        # OpenSSL must not prompt for a missing password: cron has no terminal.
        context.load_cert_chain(certificate, key, password=key_password or "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise UnreadableFile(f"the key does not belong to the certificate {certificate}", file=where) from error
        raise UnreadableFile(
            "not a certificate and its key in PEM form, or the key's password is wrong", file=where,
            advice=f"set the password of an encrypted key in {KEY_PASSWORD}",
        ) from error
    except OSError as error:
        lacking = next((path for path in (certificate, key) if path is not None and not path.is_file()), where)
        raise UnreadableFile(f"cannot read the file: {error.strerror or error}", file=lacking) from error
