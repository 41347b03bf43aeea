"""Sizes as people write them: 64KiB, 128MiB, 1GiB."""

from __future__ import annotations

import re

from readers.errors import BadRequest

_UNITS = {"b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")


def parse_size_bytes(text: str) -> int:
    """The bytes that a size names. A number without a unit is bytes; KB and its like are refused: 1000 or 1024?

    Raises: BadRequest.
    """
    match = _SIZE.fullmatch(text.strip().lower())
    factor = _UNITS.get(match[2] or "b") if match is not None else None
    if match is None or factor is None:
        raise BadRequest(f"{text!r} is not a size", advice="write it like 64KiB, 128MiB or 1GiB")
    size_bytes = round(float(match[1]) * factor)
    if not size_bytes:
        raise BadRequest(f"{text!r} is no bytes at all", advice="write it like 64KiB, 128MiB or 1GiB")
    return size_bytes
