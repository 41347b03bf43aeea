"""Ends compared with the half copies that they name: those of one split, or some of a whole log."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.log.transaction_records import NO_PLACE
from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.model.identities import UInt64s, identities, identity_hashes

#: Columns that an end copies from its half beside the identity.
_REPEATED = ("born_time_ms", "producer_group")


class IdentifiedRows:
    """Half copies, or ends, of one log, with the hashes of their identities.

    Shape: one value per row, all batches together.
    Order: commit-log offset.
    """

    def __init__(self, batches: list[pa.RecordBatch], hashes: UInt64s) -> None:
        self._batches = batches
        self._hashes = hashes

    def integers(self, name: str) -> Int64s:
        """A column as native integers; `NO_PLACE` for null."""
        parts = [np.asarray(rows[name].fill_null(NO_PLACE).cast(pa.int64())) for rows in self._batches]
        return np.concatenate([np.empty(0, np.int64), *parts])

    @cached_property
    def _offsets(self) -> Int64s:
        return self.integers("commit_log_offset")

    def _each(self, value_of: Callable[[pa.RecordBatch], pa.Array]) -> Bools:
        return np.concatenate([np.empty(0, np.bool_), *(np.asarray(value_of(rows)) for rows in self._batches)])

    def unmatched(self, named_by: str, halves: IdentifiedRows) -> tuple[Int64s, Int64s, UInt64s]:
        """Return the ends that name no half copy here, or one with other values; see `SplitFacts`.

        `named_by`: the column with the named offsets.
        """
        named = self.integers(named_by)
        is_by_place = self._each(
            lambda rows: pc.fill_null(pc.equal(rows["fingerprint"], rows["lone_prepared_id"]), False)
        )
        # 0 is a reference only if an end has no other: a final that waited for its delay names nothing.
        names = (named != 0) | is_by_place
        is_settled, is_contradicted = self._settled_by(named, halves)
        rows = np.flatnonzero(names & ~is_settled)
        hashes = np.where(is_by_place | is_contradicted, np.uint64(0), self._hashes)
        return self._offsets[rows], named[rows], hashes[rows]

    def settled(self, named_by: str, halves: IdentifiedRows) -> Int64s:
        """Return the places of ends that name a half copy with the same values."""
        is_settled, _ = self._settled_by(self.integers(named_by), halves)
        return self._offsets[is_settled]

    def _settled_by(self, named: Int64s, halves: IdentifiedRows) -> tuple[Bools, Bools]:
        """Whether each end names a half copy with the same values, and whether one with other values."""
        settled, contradicted = np.zeros(len(named), np.bool_), np.zeros(len(named), np.bool_)
        places = halves._offsets
        if not len(places) or not len(named):
            return settled, contradicted
        row = np.minimum(np.searchsorted(places, named), len(places) - 1)
        found = np.flatnonzero(places[row] == named)
        same = halves._hashes[row[found]] == self._hashes[found]
        for name in _REPEATED:
            same &= self._agrees(name, found, halves, row[found])
        settled[found], contradicted[found] = same, ~same
        return settled, contradicted

    def _agrees(self, name: str, rows: Int64s, halves: IdentifiedRows, half_rows: Int64s) -> Bools:
        """Whether ends and halves have the same value, or one of them has none."""
        ends = [batch[name] for batch in self._batches]
        values = pa.chunked_array([*ends, *(batch[name] for batch in halves._batches)]).combine_chunks()
        known = np.asarray(values.is_valid())
        # Texts are compared by their dictionary numbers: gathering texts by place costs more than comparing them.
        # Numbers are compared as they are: most are different, and a dictionary of them is large.
        numbers = values.dictionary_encode().indices if pa.types.is_string(values.type) else values
        numbers = np.asarray(numbers.fill_null(0))
        both = len(self._offsets) + half_rows
        agrees: Bools = (numbers[rows] == numbers[both]) | ~known[rows] | ~known[both]
        return agrees


def identified_rows(batches: list[pa.RecordBatch]) -> IdentifiedRows:
    """Return half copies or ends with the hashes of their identities."""
    hashes = [identity_hashes(identities(rows)) for rows in batches]
    return IdentifiedRows(batches, np.concatenate([np.empty(0, np.uint64), *hashes]))
