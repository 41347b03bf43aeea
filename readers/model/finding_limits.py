"""Many findings of one kind: so many are told one by one, and the last of these stands for the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

#: A file of garbage would make a finding of every second slot.
FINDINGS_MAX = 100

_Item = TypeVar("_Item")


def one_by_one(items: Sequence[_Item], what: str) -> Iterator[tuple[_Item, str]]:
    """The first of many, each with words that end what is said of it: those of the last one count the rest.

    `what`: of what there are more.
    """
    for number, item in enumerate(items[:FINDINGS_MAX]):
        left = len(items) - FINDINGS_MAX if number == FINDINGS_MAX - 1 else 0
        yield item, f", and {left} more {what}" if left > 0 else ""
