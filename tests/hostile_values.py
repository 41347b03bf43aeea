"""What a file that comes from elsewhere may hold where something else belongs: by value, put into any place of JSON."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from rmqtx.readers.model.errors import RmqtxError


class _Missing:
    """Stands for a field that is not there."""


MISSING = _Missing()


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


HOSTILE_VALUES: dict[str, Any] = {
    "missing": MISSING, "null": None, "text": "text", "number": 7, "list": [1], "object": {"a": 1}, "true": True,
    "huge": 10**30, "endless": 10**400, "64 bits": 2**63 - 1, "negative": -1, "empty": "", "nothing in it": {},
    "no entries": [], "NaN": float("nan"), "Infinity": float("inf"), "fraction": 0.5, "surrogate": "\ud800",
    "escaped byte": "\udcff", "NUL": "a\0b", "terminal": "\x1b[31m\r\n", "deep": _nested(400), "up": "../../../x",
    "absolute": "/etc/passwd", "long": "x" * 300_000,
}

Place = tuple[str | int, ...]


def places_in(value: Any, place: Place = ()) -> Iterator[Place]:
    """Every place of a value of JSON: itself, each field, each first entry of a list."""
    yield place
    if isinstance(value, dict):
        for name in value:
            yield from places_in(value[name], (*place, name))
    elif isinstance(value, list) and value:
        yield from places_in(value[0], (*place, 0))


def with_value(value: Any, place: Place, other: Any) -> Any:
    """The same value with another one in a place, or with nothing there."""
    if not place:
        return None if other is MISSING else other
    result = copy.deepcopy(value)
    parent = result
    for step in place[:-1]:
        parent = parent[step]
    if other is MISSING:
        del parent[place[-1]]
    else:
        parent[place[-1]] = other
    return result


def said_of(act: Callable[[], object]) -> str | None:
    """What an act says in an error of ours; None where there was none. Any other error goes on."""
    try:
        act()
    except RmqtxError as error:
        return str(error)
    return None


def assert_plain(text: str | None) -> None:
    """An error is one short line without control characters."""
    assert text is None or (len(text) < 1000 and text.isprintable()), text
