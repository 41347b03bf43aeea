"""Op marks are stored with the half copies that they name, wherever these are."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqtx.readers.jobs.spool import Spool
from rmqtx.readers.model.tables import MARKS
from rmqtx.verdicts.audit.mark_partitions import WAITING_MARKS, HalfPlaces, spread_marks, store_marks

PARTITIONS = 3
#: The half copies of a split, as (queue offset, partition), and the queue offsets that its op marks name.
Halves = list[tuple[int, int]]
RISING = st.integers(0, 20).flatmap(
    lambda first: st.lists(st.integers(0, PARTITIONS - 1), max_size=6).map(
        lambda numbers: [(first + step, number) for step, number in enumerate(numbers)]
    )
)
ANY = st.lists(st.tuples(st.integers(0, 12), st.integers(0, PARTITIONS - 1)), max_size=6)
SPLITS = st.lists(st.tuples(st.one_of(RISING, ANY), st.lists(st.integers(0, 30), max_size=8)), min_size=1, max_size=4)


def places_of(halves: Halves) -> HalfPlaces:
    numbers, partitions = (np.array([one[place] for one in halves], np.int64) for place in (0, 1))
    return HalfPlaces.sorted(numbers, partitions.astype(np.uint16))


def marks_of(numbers: list[int], place: int) -> pa.RecordBatch:
    rows = [
        {"store": "s", "queue_id": 0, "queue_offset": place, "commit_log_offset": place * 100 + step,
         "store_time_ms": 7, "half_queue_offset": number, "repetition": 0}
        for step, number in enumerate(numbers)
    ]
    return pa.RecordBatch.from_pylist(rows, MARKS)


def stored(splits: list[tuple[Halves, list[int]]], directory: Path | None) -> Counter[tuple[int, int, int]]:
    """Partition, place and number of every mark that was stored."""
    spool = Spool(PARTITIONS if directory else 1, directory)
    parts = []
    for place, (halves, numbers) in enumerate(splits):
        own = Spool(spool.partitions_count, directory)
        if numbers:
            store_marks(own, [marks_of(numbers, place)], places_of(halves), f"{place}")
        spool.merge(own)
        parts.append((own, f"{place}"))
    spread_marks(spool, parts, HalfPlaces.joined([places_of(halves) for halves, _ in splits]))
    return Counter(
        (partition, row["commit_log_offset"], row["half_queue_offset"])
        for partition in range(spool.partitions_count)
        for batch in spool.part("marks", partition)
        for row in batch.to_pylist()
    )


@given(SPLITS)
@settings(deadline=None, max_examples=150)
def test_a_mark_is_once_in_each_partition_with_a_half_copy_that_it_names(
    splits: list[tuple[Halves, list[int]]]
) -> None:
    halves = {half for some, _ in splits for half in some}
    wanted = Counter(
        (partition, place * 100 + step, number)
        for place, (_, numbers) in enumerate(splits)
        for step, number in enumerate(numbers)
        for partition in {partition for named, partition in halves if named == number}
    )
    with TemporaryDirectory() as name:
        assert stored(splits, Path(name)) == wanted
    one = [([(number, 0) for number, _ in some], marks) for some, marks in splits]
    assert stored(one, None) == Counter({(0, place, number) for _, place, number in wanted})


@pytest.mark.parametrize(("halves", "is_waiting"), [([(7, 0), (8, 1)], False), ([(7, 0), (7, 1)], True)])
def test_only_marks_without_one_half_copy_in_their_split_wait(
    halves: Halves, is_waiting: bool, tmp_path: Path
) -> None:
    spool = Spool(PARTITIONS, tmp_path)
    store_marks(spool, [marks_of([7], 0)], places_of(halves), "0")
    assert bool(spool.part(WAITING_MARKS, 0)) == is_waiting


def test_consecutive_splits_need_no_numbers() -> None:
    parts = [places_of([(5, 0), (6, 2)]), places_of([]), places_of([(7, 1)])]
    whole = HalfPlaces.joined(parts)
    assert whole.numbers is None
    assert whole.all_numbers.tolist() == [5, 6, 7]
    assert HalfPlaces.joined([*parts, places_of([(9, 1)])]).all_numbers.tolist() == [5, 6, 7, 9]
