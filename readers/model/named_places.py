"""Places that name transactions: a number in the half or op queue, a byte of the commit log; as typed or as logged."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import PurePosixPath

#: The kinds of places. `final` is the commit-log offset of a COMMIT record, `at` that of any record's byte.
HALF, OP, AT, FINAL = "half", "op", "at", "final"
_TYPED = re.compile(r"(?:(?P<where>.+)/)?(?P<kind>half|op|at|final):(?P<number>\d{1,19})")
#: How brokers write places in their logs, and rmqtx in columns and sentences. A line that has both is of one record.
_LOGGED_BYTE = re.compile(r"\bcommit[-_]?log[_ ]?offset['\"]?\s*[=: ]\s*(\d{1,19})\b", re.IGNORECASE)
_LOGGED_OP = re.compile(r"\bop queue offset (\d{1,19})\b")
_LOGGED_NUMBER = re.compile(
    r"\b(?:(?:half_?)?queue_?)?offset['\"]?\s*[=:]\s*(\d{1,19})\b|\bhalf (?:queue )?offset (\d{1,19})\b", re.IGNORECASE
)
_BROKER = re.compile(r"\bbrokerName=([^,\]\s]+)")
_LARGEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class NamedPlace:
    """A place in a store.

    Shape: `where`: the store or broker that the text names, if any; `is_line`: the text is a line of a log.
           `also_number`: the half queue offset that the line has beside a commit-log offset.
    """

    kind: str
    number: int
    where: str | None = None
    also_number: int | None = None
    is_line: bool = False

    @property
    def is_of_log(self) -> bool:
        """Whether the number is a commit-log offset."""
        return self.kind in (AT, FINAL)

    @property
    def words(self) -> str:
        """The place in words."""
        if self.kind == HALF:
            return f"half queue offset {self.number}"
        if self.kind == OP:
            return f"op queue offset {self.number}"
        return f"commit-log offset {self.number}"

    def is_in(self, root: str, broker_name: str | None = None) -> bool:
        """Whether a store or a broker is one that the place may be in."""
        if self.where is None:
            return True
        if self.is_line and broker_name is None:
            return True  # a store without its configuration has no name
        where = self.where.rstrip("/")
        return where in (root.rstrip("/"), PurePosixPath(root).name, root.partition("@")[2], broker_name)


def named_place(text: str) -> NamedPlace | None:
    """Return the place that a text names; None for a text of another form."""
    typed = _TYPED.fullmatch(text.strip())
    if typed is not None:
        return _valid(NamedPlace(typed["kind"], int(typed["number"]), typed["where"]))
    byte = _LOGGED_BYTE.search(text)
    number = _LOGGED_NUMBER.search(text)
    broker = _BROKER.search(text)
    where = broker[1] if broker else None
    half = None if number is None else int(number[1] or number[2])
    if byte is not None:
        return _valid(NamedPlace(AT, int(byte[1]), where, half, is_line=True))
    op = _LOGGED_OP.search(text)
    if op is not None:
        return _valid(NamedPlace(OP, int(op[1]), where, is_line=True))
    return None if half is None else _valid(NamedPlace(HALF, half, where, is_line=True))


def _valid(place: NamedPlace) -> NamedPlace | None:
    return place if place.number <= _LARGEST else None


def keys_of_cell(text: str) -> Collection[str]:
    """Return the business keys in a copied cell of a table; nothing for a text with one key or a place."""
    words = text.split()
    return words if len(words) > 1 and named_place(text) is None else ()
