"""Which partitions of transactions an op mark belongs to: those of the half copies with the queue offset that it lists.

Most half messages are decided within seconds, so most marks meet their half copy in the same split, and are stored with
it at once. The others wait until all splits are scanned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqtx.readers.jobs.spool import Spool
from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.verdicts.model.witnesses import op_numbers

#: Of op marks whose half copy is not in their split.
WAITING_MARKS = "marks-waiting"
MARKS_NAME = "marks"
_Partitions = npt.NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class HalfPlaces:
    """The partitions of the half copies of one split, by the numbers with which op messages list them.

    Shape: `numbers` are the half queue offsets, ascending; None if they are `first` and those that follow it, as in
           nearly all splits. `partitions` has one value for each number.
    """

    first: int
    numbers: Int64s | None
    partitions: _Partitions

    @classmethod
    def of(cls, halves: Sequence[pa.RecordBatch], partitions: Int64s) -> HalfPlaces:
        """Return the places of half copies; `partitions`: of all rows. Copies without a number are left out."""
        offsets = pa.chunked_array([op_numbers(rows) for rows in halves], pa.int64())
        return cls.sorted(np.asarray(offsets.drop_null()), partitions[np.asarray(offsets.is_valid())].astype(np.uint16))

    @classmethod
    def sorted(cls, numbers: Int64s, partitions: _Partitions) -> HalfPlaces:
        """Return the places for numbers in any order."""
        if (numbers[1:] < numbers[:-1]).any():
            order = np.argsort(numbers, kind="stable")
            numbers, partitions = numbers[order], partitions[order]
        first = int(numbers[0]) if len(numbers) else 0
        follows = len(numbers) > 0 and int(numbers[-1]) - first == len(numbers) - 1 and _rise(numbers)
        return cls(first, None if follows else numbers, partitions)

    @classmethod
    def joined(cls, parts: Sequence[HalfPlaces]) -> HalfPlaces:
        """Return the places of all parts."""
        known = [part for part in parts if len(part.partitions)]
        partitions = np.concatenate([np.empty(0, np.uint16), *(part.partitions for part in known)])
        ends = [part.first + len(part.partitions) for part in known]
        if known and all(part.numbers is None for part in known) and ends[:-1] == [part.first for part in known[1:]]:
            return cls(known[0].first, None, partitions)
        return cls.sorted(np.concatenate([np.empty(0, np.int64), *(part.all_numbers for part in known)]), partitions)

    @property
    def all_numbers(self) -> Int64s:
        """The half queue offsets, ascending."""
        if self.numbers is not None:
            return self.numbers
        return np.arange(self.first, self.first + len(self.partitions), dtype=np.int64)

    @property
    def repeated(self) -> Int64s:
        """Numbers of several half copies, ascending: only in a damaged log."""
        if self.numbers is None:
            return np.empty(0, np.int64)
        return np.unique(self.numbers[1:][self.numbers[1:] == self.numbers[:-1]])

    def owners(self, numbers: Int64s) -> tuple[Int64s, Int64s]:
        """Return for each given number the partitions of its half copies: (row of the number, partition), each once.

        Order: as given, then partition.
        """
        if self.numbers is None:  # each number has one half copy: its index is the distance from the first
            rows = np.flatnonzero((numbers >= self.first) & (numbers < self.first + len(self.partitions)))
            return rows, self.partitions[numbers[rows] - self.first].astype(np.int64)
        low = np.searchsorted(self.numbers, numbers, "left")
        counts = np.searchsorted(self.numbers, numbers, "right") - low
        rows = np.repeat(np.arange(len(numbers)), counts)
        steps = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        partitions = self.partitions[np.repeat(low, counts) + steps].astype(np.int64)
        if (counts > 1).any():
            pairs = np.unique(np.stack([rows, partitions]), axis=1)
            rows, partitions = pairs[0], pairs[1]
        return rows, partitions


def _rise(numbers: Int64s) -> bool:
    return bool((numbers[1:] > numbers[:-1]).all())


def store_marks(spool: Spool, marks: Sequence[pa.RecordBatch], places: HalfPlaces, file_stem: str) -> None:
    """Store the op marks of a split: by partition where its own half copies have their numbers, else as waiting."""
    rows = pa.Table.from_batches(marks)
    is_waiting = np.ones(rows.num_rows, np.bool_)
    if not len(places.repeated):
        owned, partitions = places.owners(_numbers(rows))
        is_waiting[owned] = False
        _add(spool, MARKS_NAME, rows, ~is_waiting, partitions, file_stem)
    if is_waiting.any():
        whole = Spool(1, spool.directory)
        _add(whole, WAITING_MARKS, rows, is_waiting, np.zeros(int(is_waiting.sum()), np.int64), file_stem)
        spool.merge(whole)


def spread_marks(spool: Spool, waiting: Sequence[tuple[Spool, str]], places: HalfPlaces) -> None:
    """Store the waiting op marks of a store in the partitions of their half copies; drop those without a half copy.

    `waiting`: the spool of each split, and the stem of its file names. `places`: of all half copies of the store.
    """
    for part, file_stem in waiting:
        for batch in part.part(WAITING_MARKS, 0):
            rows, partitions = places.owners(_numbers(batch))
            if len(rows):
                chosen = batch if len(rows) == len(batch) else batch.take(pa.array(rows))
                spool.add(MARKS_NAME, [chosen], partitions, f"{file_stem}-spread")
    if len(repeated := places.repeated):
        _repeat_marks(spool, waiting, places, repeated)


def _repeat_marks(
    spool: Spool, stored: Sequence[tuple[Spool, str]], places: HalfPlaces, repeated: Int64s
) -> None:
    """Store marks of repeated numbers, which their splits stored in one partition, in the other ones too."""
    for part, file_stem in stored:
        for number in np.unique(places.owners(repeated)[1]).tolist():
            for batch in part.part(MARKS_NAME, number):
                rows = batch.filter(pa.array(np.isin(_numbers(batch), repeated)))
                owned, partitions = places.owners(_numbers(rows))
                is_other = partitions != number
                if is_other.any():
                    chosen = rows.take(pa.array(owned[is_other]))
                    spool.add(MARKS_NAME, [chosen], partitions[is_other], f"{file_stem}-repeated-{number}")


def _numbers(marks: pa.RecordBatch | pa.Table) -> Int64s:
    return np.asarray(marks["half_queue_offset"])


def _add(spool: Spool, name: str, rows: pa.Table, chosen: Bools, partitions: Int64s, file_stem: str) -> None:
    if chosen.any():
        some = rows if chosen.all() else rows.filter(pa.array(chosen))
        spool.add(name, some.to_batches(), partitions, file_stem)
