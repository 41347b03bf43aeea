"""One step of a table of verdicts: which rows it closes, which it replaces, and which it adds. The rule is only here.

The changes come from the checkpoint, with the state that each transaction had before. If the table does not have the
rows of the step before (it is new, it was restored, the checkpoint is new), the changes are all present verdicts, and
the states before are read from the table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from verdicts.export.partitions import days_of
from verdicts.follow.change_log import CHANGES, KEY, ChangeLog
from verdicts.growing.verdict_rows import GONE, STATE_CHANGED, key_texts, rows_of, with_column

#: Rows that a step ends: `closed_by` is why, or null if a row with the same state replaces it.
ENDED = pa.schema([
    *(CHANGES.field(name) for name in KEY),
    pa.field("before_state", pa.string(), nullable=False),
    pa.field("before_day", pa.date32()),
    pa.field("closed_by", pa.string()),
])  # fmt: skip
#: The columns of the current rows that a step compares with.
CURRENT = pa.schema([
    *(CHANGES.field(name) for name in KEY),
    pa.field("state", pa.string()),
    pa.field("day", pa.date32()),
    pa.field("valid_from", pa.timestamp("ms", "UTC")),
])  # fmt: skip


@dataclass(frozen=True, slots=True)
class TableStep:
    """A step that is ready; a table has it, or does not have it.

    Shape: `current`: the current rows of the table (CURRENT) if the changes are all present verdicts, else None.
    """

    log: ChangeLog
    at_ms: int
    stores: tuple[str, ...]
    current: pa.Table | None = None

    @property
    def token(self) -> int:
        """The number that a table keeps for each store of its last step."""
        return step_token(self.log.id, self.at_ms)

    def ended(self) -> pa.Table:
        """Return the current rows of the table that are closed or replaced.

        Shape: ENDED.
        """
        found = [self._ended(changes) for changes in self._changes()]
        if self.current is not None:
            found.append(self._not_found(self.current))
        return pa.concat_tables(found) if found else ENDED.empty_table()

    def rows(self) -> Iterator[pa.Table]:
        """Return the current rows that are added.

        Shape: VERDICTS, and `is_replacement`: whether the row continues one with the same state.
        """
        for changes in self._changes():
            left = changes.filter(pc.invert(changes["is_gone"]))
            if left.num_rows:
                replaces = pc.fill_null(pc.equal(left["state"], left["before_state"]), False)
                yield rows_of(left, self.at_ms).append_column("is_replacement", replaces)

    def _ended(self, changes: pa.Table) -> pa.Table:
        ends = changes.filter(pc.is_valid(changes["before_state"]))
        is_changed = pc.fill_null(pc.not_equal(ends["state"], ends["before_state"]), False)
        closed_by = pc.if_else(
            ends["is_gone"], GONE, pc.if_else(is_changed, STATE_CHANGED, pa.scalar(None, pa.string()))
        )
        days = days_of(ends["before_time_ms"]) if self.current is None else ends["before_day"]
        return pa.table(
            [*(ends[name] for name in KEY), ends["before_state"], days, closed_by], schema=ENDED
        )

    def _changes(self) -> Iterator[pa.Table]:
        if self.current is None:
            yield from self.log.net()
            return
        keys = key_texts(self.current)
        for changes in self.log.net():
            changes = changes.filter(pc.invert(changes["is_gone"]))
            places = pc.index_in(key_texts(changes), value_set=keys)
            changes = with_column(changes, "before_state", self.current["state"].take(places))
            yield changes.append_column("before_day", self.current["day"].take(places))

    def _not_found(self, current: pa.Table) -> pa.Table:
        """Return the current rows of the table that the present verdicts do not have."""
        keys = key_texts(current)
        is_found = np.zeros(current.num_rows, np.bool_)
        for changes in self._changes():
            places = pc.drop_null(pc.index_in(key_texts(changes), value_set=keys))
            is_found[places.to_numpy()] = True
        left = current.filter(pa.array(~is_found))
        return pa.table(
            [*(left[name] for name in KEY), left["state"], left["day"], pa.array([GONE] * left.num_rows, pa.string())],
            schema=ENDED,
        )


def step_token(checkpoint: str, at_ms: int) -> int:
    """Return the token of a checkpoint's step: 63 bits, because Delta Lake keeps a number."""
    return int.from_bytes(hashlib.blake2b(f"{checkpoint} {at_ms}".encode(), digest_size=8).digest()) >> 1
