"""Keys as a terminal sends them: bytes to actions."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto


class Key(Enum):
    """What a key does. A printable character is returned as text, for the filter."""

    UP = auto()
    DOWN = auto()
    PAGE_UP = auto()
    PAGE_DOWN = auto()
    ENTER = auto()
    BACK = auto()
    ERASE = auto()


_SEQUENCES = {
    b"\x1b[A": Key.UP, b"\x1bOA": Key.UP, b"\x1b[B": Key.DOWN, b"\x1bOB": Key.DOWN, b"\x1b[5~": Key.PAGE_UP,
    b"\x1b[6~": Key.PAGE_DOWN, b"\r": Key.ENTER, b"\n": Key.ENTER, b"\x7f": Key.ERASE, b"\x08": Key.ERASE,
}  # fmt: skip


def keys(data: bytes) -> Iterator[Key | str]:
    """Return the keys in what was read from a terminal. An escape alone is BACK; unknown sequences are ignored."""
    place = 0
    while place < len(data):
        known = next((text for text in _SEQUENCES if data.startswith(text, place)), None)
        if known is not None:
            yield _SEQUENCES[known]
            place += len(known)
        elif data[place] == 0x1B:
            end = _end_of_sequence(data, place)
            if end == place + 1:
                yield Key.BACK
            place = end
        else:
            size = _utf8_size(data[place])
            text = data[place : place + size].decode("utf-8", "ignore")
            if text.isprintable() and text:
                yield text
            place += size


def _end_of_sequence(data: bytes, place: int) -> int:
    """Where an escape sequence ends: after its first letter or tilde."""
    if data[place + 1 : place + 2] not in (b"[", b"O"):
        return place + 1
    end = place + 2
    while end < len(data) and not 0x40 <= data[end] <= 0x7E:
        end += 1
    return end + 1


def _utf8_size(first: int) -> int:
    return 1 if first < 0xC0 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
