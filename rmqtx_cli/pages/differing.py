"""What is said of two audits beside their differences: how many of each kind; and where nothing is common to both."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqtx_cli.words.text import count

if TYPE_CHECKING:
    import pyarrow as pa

#: Differences that wait until it is known whether the sides have anything in common.
_WAITING_ROWS_MAX = 200_000


@dataclass(slots=True)
class Differing:
    """Differences by kind as they pass, and how many are of a transaction that is UNDECIDABLE on a side.

    `sizes`: the transactions of each side; complete once all differences are read.
    """

    changes: Counter[str] = field(default_factory=Counter)
    undecidable_count: int = 0
    sizes: list[int] = field(default_factory=lambda: [0, 0])

    def watching(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches, counted as they pass."""
        for batch in batches:
            self.changes.update(batch["change"].to_pylist())
            states = zip(batch["state_before"].to_pylist(), batch["state_after"].to_pylist(), strict=True)
            self.undecidable_count += sum("UNDECIDABLE" in pair for pair in states)
            yield batch

    def begun(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches, read as far as is needed to know whether the sides have a transaction in common.

        Of very many differences all are read only as they are taken.
        """
        passing = self.watching(batches)
        waiting, rows_count = [], 0
        for batch in passing:
            waiting.append(batch)
            rows_count += batch.num_rows
            if self.changes["changed"] or rows_count > _WAITING_ROWS_MAX:
                break
        return itertools.chain(waiting, passing)

    @property
    def is_unrelated(self) -> bool:
        """Whether both sides have transactions, and none of them is on both."""
        return all(self.sizes) and [self.changes["vanished"], self.changes["appeared"]] == self.sizes

    def line(self) -> str:
        """What there is to say."""
        told = ", ".join(f"{number} {change}" for change, number in sorted(self.changes.items()))
        return f"{count(self.changes.total(), 'difference')}: {told}"

    def lines(self) -> Iterator[str]:
        """What there is to say above a list of them."""
        if self.changes:
            yield self.line()
