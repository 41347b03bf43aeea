"""The number of findings of one kind that are reported one by one; the last one counts the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

#: Without a limit, a file of garbage would yield a finding for every second slot.
FINDINGS_MAX = 100

_Item = TypeVar("_Item")


def one_by_one(items: Sequence[_Item], what: str) -> Iterator[tuple[_Item, str]]:
    """Return the first FINDINGS_MAX items, each with a suffix for its sentence; the last suffix counts the rest.

    `what`: the plural noun that the last suffix counts.
    """
    for number, item in enumerate(items[:FINDINGS_MAX]):
        left = len(items) - FINDINGS_MAX if number == FINDINGS_MAX - 1 else 0
        yield item, f", and {left} more {what}" if left > 0 else ""
