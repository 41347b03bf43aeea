"""Numbers packed into tasks by their bytes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from rmqtx.readers.log.commit_log import WrittenEnd, written_end
from rmqtx.readers.log.splits import SPLIT_BYTES, UNSEARCHED, SplitPlan, plan_splits
from rmqtx.readers.model.tables import TRANSACTIONS
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.spark_tasks.jobs.verdicts import Judge, as_rows, without_unread
from rmqtx.spark_tasks.jobs.witnesses import ROWS, ScanForWitnesses
from rmqtx.spark_tasks.session.tasks import CALL_BYTES, Packs, Shared, in_tasks, packed, results
from rmqtx.verdicts.causes.judging import Judging
from rmqtx.verdicts.evidence.store_facts import facts_of
from tests.verdicts.causes.test_traces import torn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAMED = pa.schema([("number", pa.int64()), ("task", pa.int64())])


def packs_of(sizes_bytes: list[int], cores: int = 2) -> list[int]:
    """How many numbers each task has."""
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=cores))
    packs = packed(spark, np.array(sizes_bytes, np.int64))
    assert packs.firsts[0] == 0
    assert packs.firsts[-1] == len(sizes_bytes)
    return np.diff(packs.firsts).tolist()


def test_small_ones_share_tasks() -> None:
    assert packs_of([0] * 300) == [38, 37, 38, 37, 38, 37, 38, 37]
    assert packs_of([0] * 3) == [1, 1, 1]
    assert packs_of([]) == []


def test_splits_of_a_large_log_stay_alone() -> None:
    assert packs_of([SPLIT_BYTES] * 56) == [1] * 56
    assert packs_of([SPLIT_BYTES] * 3) == [1, 1, 1]


def test_a_large_store_among_small_ones_makes_no_large_task() -> None:
    sizes = [200_000] * 50 + [SPLIT_BYTES] * 56 + [200_000] * 50
    packs = packs_of(sizes)
    ends = np.cumsum(packs)
    weights = np.maximum(sizes, CALL_BYTES)
    of_tasks = [int(weights[end - count:end].sum()) for count, end in zip(packs, ends, strict=True)]
    assert max(of_tasks) <= 2 * np.median(of_tasks)


def test_many_small_splits_are_few_tasks() -> None:
    assert len(packs_of([64 << 10] * 16_384)) == 16_384 * CALL_BYTES // SPLIT_BYTES


def test_sizes_of_splits_are_those_of_a_plan(tmp_path: Any) -> None:
    from tests.forge.stores import opened

    stores = tuple(opened(name) for name in ("common-5.3.3", "killed-5.3.3", "prepared-4.2.0"))
    for split_bytes in (10_000, 16_384, 64 << 10, SPLIT_BYTES):
        for ends, bounds in itertools.product(
            (tuple(map(written_end, stores)), (WrittenEnd(0, UNSEARCHED),) * 3),
            ((None, None), (5_000, 100_000), (1 << 40, None)),
        ):
            plan = SplitPlan(stores, ends, split_bytes, *bounds)
            assert plan.sizes_bytes.tolist() == [split.to_position - split.from_position for split in plan]


@pytest.mark.parametrize("count", [0, 1, 50])
def test_results_are_in_order(spark: SparkSession, count: int) -> None:
    assert results(spark, lambda number: number * 2, list(range(count))) == [2 * number for number in range(count)]


def test_a_task_calls_the_function_for_each_of_its_numbers(spark: SparkSession) -> None:
    def named(number: int) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield pa.RecordBatch.from_pydict({"number": [number], "task": [context.partitionId()]}, _NAMED)

    rows = in_tasks(spark, named, Packs((0, 3, 4, 9)), "number long, task long").collect()
    assert [(row["number"], row["task"]) for row in rows] == [
        (0, 0), (1, 0), (2, 0), (3, 1), *((number, 2) for number in range(4, 9)),
    ]


def test_what_a_task_cannot_read_of_traces_comes_with_its_verdicts(tmp_path: Path) -> None:
    """Once in each task, although the worker keeps the facts of the stores for all of them."""
    store, place = torn(tmp_path / "torn")
    judging = Judging.of(facts_of([store], broker_settings), TRANSACTIONS.names)
    scan = ScanForWitnesses(Shared.of(plan_splits([store])), 1, (None,), is_accelerated=False)
    rows = [batch for batch in scan(0) if batch["kind"][0].as_py() == ROWS]
    judge = Judge(Shared.of(judging), as_rows)
    for _ in range(2):
        verdicts, unread = without_unread(pa.Table.from_batches(judge(rows)))
        assert (verdicts.num_rows, verdicts.schema.names) == (1, TRANSACTIONS.names)
        assert [(one.code, one.commit_log_offset) for one in unread] == [("trace-unreadable", place)]
