"""What belongs together: which half copies an op number can name, and what a chain of ties connects."""

from __future__ import annotations

import pytest

from rmqtx.readers.log.transaction_records import scan_halves
from rmqtx.readers.store.store import HALF_TOPIC
from rmqtx.verdicts.audit.local_audit import tied_partitions
from rmqtx.verdicts.model.witnesses import op_numbers, tied_groups
from tests.forge.stores import opened


@pytest.mark.parametrize("name", ["rocksdb-both-5.5.0", "upgraded-3.1.4-3.2.6"])
def test_an_op_number_is_the_queue_offset_of_a_copy_in_the_half_topic(name: str) -> None:
    halves = scan_halves(opened(name)).table()
    wanted = [row["queue_offset"] if row["topic"] == HALF_TOPIC else None for row in halves.to_pylist()]
    assert op_numbers(halves).to_pylist() == wanted
    assert None in wanted


def test_what_a_chain_of_ties_connects_is_one_group() -> None:
    groups = tied_groups([("a", "b"), ("c", "d"), ("e", "e"), ("b", "c")])
    assert groups == {**dict.fromkeys("abcd", frozenset("abcd")), "e": frozenset("e")}


def test_partitions_that_a_tie_connects_are_judged_together() -> None:
    whole = tied_partitions([("a", "b"), ("b", "c"), ("x", "x")], 64)
    assert sorted(number for numbers in whole for number in numbers) == list(range(64))
    assert [numbers[0] for numbers in whole] == sorted(numbers[0] for numbers in whole)
    assert sum(len(numbers) > 1 for numbers in whole) == 1
