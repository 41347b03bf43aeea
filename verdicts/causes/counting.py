"""Counts of the transactions that have a cause: how many, since when, with examples."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypedDict

import numpy as np
import pyarrow as pa

from rmqtx.readers.model.columns import Int64s
from rmqtx.verdicts.causes.evidence import Evidence

EXAMPLES_MAX = 3


class Example(TypedDict):
    """A transaction that a cause explains; the offset of its first half copy is null if it has none."""

    transaction_id: str
    half_commit_log_offset: int | None


@dataclass(slots=True)
class Count:
    """What one cause has in one store with one strength.

    Shape: `open_points`: what would decide whether they have the cause. `rivals`: causes that also fit some of them.
    """

    transactions: int = 0
    half_copies: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    examples: list[Example] = field(default_factory=list)
    open_points: dict[str, None] = field(default_factory=dict)
    rivals: set[str] = field(default_factory=set)

    def add(
        self, found: Evidence, chosen: Int64s, open_points: Iterable[str] = (), rivals: Iterable[str] = ()
    ) -> None:
        """Count the transactions with some numbers."""
        times = found.half_store_time_ms[chosen]
        known = times[times >= 0]
        self.merge(Count(
            len(chosen), int(found.copies_count[chosen].sum()), int(known.min()) if known.size else None,
            int(known.max()) if known.size else None, _examples(found, chosen),
            dict.fromkeys(point for point in open_points if point), set(rivals),
        ))  # fmt: skip

    def merge(self, other: Count) -> None:
        """Add another count."""
        self.transactions += other.transactions
        self.half_copies += other.half_copies
        self.first_ms = min((one for one in (self.first_ms, other.first_ms) if one is not None), default=None)
        self.last_ms = max((one for one in (self.last_ms, other.last_ms) if one is not None), default=None)
        self.examples = sorted([*self.examples, *other.examples], key=_place)[:EXAMPLES_MAX]
        self.open_points |= other.open_points
        self.rivals |= other.rivals


def _examples(found: Evidence, chosen: Int64s) -> list[Example]:
    """Return the chosen transactions with the lowest offsets of their first half copies."""
    offsets = found.first_copy_offset
    lowest = chosen[np.argsort(offsets[chosen], kind="stable")[:EXAMPLES_MAX]]
    names = found.rows["transaction_id"].take(pa.array(lowest)).to_pylist()
    return [
        {"transaction_id": name, "half_commit_log_offset": int(offset) if count else None}
        for name, offset, count in zip(names, offsets[lowest], found.copies_count[lowest], strict=True)
    ]


def _place(example: Example) -> tuple[bool, int, str]:
    """Order examples by place; those without a half copy come last."""
    offset = example["half_commit_log_offset"]
    return offset is None, offset or 0, example["transaction_id"]
