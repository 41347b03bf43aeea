"""Counts of the differences between two audits, and whether the audits have any transaction in common."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqtx.verdicts.model.state import State
from rmqtx_cli.words.text import count

if TYPE_CHECKING:
    import pyarrow as pa

#: Differences that are held until a common transaction is seen.
_WAITING_ROWS_MAX = 200_000


@dataclass(slots=True)
class Differing:
    """Counts of differences as they pass: by kind, and those with the state UNDECIDABLE on one side.

    `sizes`: transactions of each side; complete when all differences are read. `lacking`: pending transactions of the
    other side that each one does not have.
    """

    changes: Counter[str] = field(default_factory=Counter)
    undecidable_count: int = 0
    sizes: list[int] = field(default_factory=lambda: [0, 0])
    lacking: list[int] = field(default_factory=lambda: [0, 0])

    def watching(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches, counted as they pass."""
        for batch in batches:
            self.changes.update(batch["change"].to_pylist())
            states = list(zip(batch["state_before"].to_pylist(), batch["state_after"].to_pylist(), strict=True))
            self.undecidable_count += sum(State.UNDECIDABLE in pair for pair in states)
            self.lacking[0] += states.count((None, State.PENDING))
            self.lacking[1] += states.count((State.PENDING, None))
            yield batch

    def begun(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches, read ahead until a common transaction is seen, the end, or a maximum number of rows."""
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
        """Whether both sides have transactions, but none in common."""
        return all(self.sizes) and [self.changes["vanished"], self.changes["appeared"]] == self.sizes

    def line(self) -> str:
        """The number of differences, in all and of each kind."""
        kinds = ", ".join(f"{number} {change}" for change, number in sorted(self.changes.items()))
        return f"{count(self.changes.total(), 'difference')}: {kinds}"

    def lines(self) -> Iterator[str]:
        """The line above a list of differences; none if there is no difference."""
        if self.changes:
            yield self.line()
