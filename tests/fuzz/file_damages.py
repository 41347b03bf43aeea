"""The damages of the damage matrix: the bytes of a file → its bytes after the damage, or None if it is deleted."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

_BLOCK_BYTES_MAX = 600

Damage = Callable[[bytes, int, random.Random], bytes | None]


def _flip(data: bytes, place: int, chance: random.Random) -> bytes:
    return data[:place] + bytes([data[place] ^ chance.randint(1, 255)]) + data[place + 1 :]


def _zero(data: bytes, place: int, chance: random.Random) -> bytes:
    length = min(chance.randint(1, _BLOCK_BYTES_MAX), len(data) - place)
    return data[:place] + bytes(length) + data[place + length :]


def _truncate(data: bytes, place: int, _chance: random.Random) -> bytes:
    return data[:place]


def _duplicate(data: bytes, place: int, chance: random.Random) -> bytes:
    """Write a block again over the bytes that follow it."""
    length = min(chance.randint(1, _BLOCK_BYTES_MAX), max(1, (len(data) - place) // 2))
    block = data[place : place + length]
    return (data[: place + length] + block + data[place + 2 * length :])[: len(data)]


def _drop(data: bytes, place: int, chance: random.Random) -> bytes | None:
    """Remove a block, so that later bytes move up; sometimes delete the file."""
    if chance.random() < 0.2:
        return None
    length = chance.randint(1, _BLOCK_BYTES_MAX)
    return (data[:place] + data[place + length :]).ljust(len(data), b"\0")


def _swap(data: bytes, place: int, chance: random.Random) -> bytes:
    """Exchange two neighbouring blocks of the same length."""
    length = min(chance.choice((4, 8, 20, chance.randint(1, _BLOCK_BYTES_MAX))), max(1, (len(data) - place) // 2))
    one, other = data[place : place + length], data[place + length : place + 2 * length]
    return data[:place] + other + one + data[place + 2 * length :]


def _grow(data: bytes, place: int, chance: random.Random) -> bytes:
    return data[:place] + chance.randbytes(chance.randint(1, _BLOCK_BYTES_MAX)) + data[place:]


DAMAGES: dict[str, Damage] = {
    "flip": _flip, "zero": _zero, "truncate": _truncate, "duplicate": _duplicate, "drop": _drop, "swap": _swap,
    "grow": _grow,
}


def place_in(used_bytes: int, where: str, chance: random.Random) -> int:
    """A position in the used part of a file: in its first, middle or last twentieth."""
    used = max(1, used_bytes)
    width = max(1, used // 20)
    begin = {"head": 0, "middle": (used - width) // 2, "tail": used - width}[where]
    return begin + chance.randrange(width)


def changed_range(before: bytes, after: bytes | None) -> tuple[int, int]:
    """Position of the first and the last changed byte; up to the end of the longer file if the length changed."""
    if after is None:
        return 0, len(before)
    shared = min(len(before), len(after))
    places = np.flatnonzero(np.frombuffer(before[:shared], np.uint8) != np.frombuffer(after[:shared], np.uint8))
    if len(before) != len(after):
        return (int(places[0]) if len(places) else shared), max(len(before), len(after))
    return (int(places[0]), int(places[-1])) if len(places) else (0, -1)


def change_text(before: bytes, after: bytes | None) -> str:
    """A sentence about a change."""
    if after is None:
        return "is deleted"
    if len(before) != len(after):
        return f"{len(before)} bytes became {len(after)}"
    first, last = changed_range(before, after)
    return f"bytes changed between {first} and {last}" if first <= last else "unchanged"
