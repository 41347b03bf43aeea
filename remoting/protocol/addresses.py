"""Addresses in the forms that people and brokers write."""

from __future__ import annotations

import re

from rmqtx.readers.model.errors import BadRequest


def host_and_port(address: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`; an IPv6 host may be in brackets.

    Raises: BadRequest.
    """
    host, _, port = address.strip().rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not host or not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 1 << 16:
        raise BadRequest(f"{address!r} is not an address", advice="give HOST:PORT, for example 10.0.0.1:9876")
    return host, int(port)


def several(text: str) -> list[str]:
    """Return the addresses in a text, separated by semicolons, commas or spaces.

    Raises: BadRequest.
    """
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
