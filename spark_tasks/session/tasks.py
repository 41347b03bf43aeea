"""Run Python functions as Spark tasks, one call each, and return their results.

Rows that Spark joins or counts are columns. All other results are Arrow bytes in one binary column: the JVM then moves
a few large values and does not decode rows.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow as pa

from spark_tasks.session.errors import marked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


def in_tasks(
    spark: SparkSession, function: Callable[[int], Iterator[pa.RecordBatch]], count: int, schema: str
) -> DataFrame:
    """Return the results of the function for 0 to count - 1, each in a separate task.

    Order: partition n has the result for n.
    """
    return spark.range(0, count, 1, numPartitions=max(count, 1)).mapInArrow(_EachNumber(function), schema)


class _EachNumber:
    """Applies the function to the numbers of a partition."""

    def __init__(self, function: Callable[[int], Iterator[pa.RecordBatch]]) -> None:
        self._function = function
        self.__name__ = "each_number"  # Spark shows it

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with marked():
            for batch in batches:
                for number in batch["id"].to_pylist():
                    yield from self._function(number)


def results(
    spark: SparkSession, function: Callable[[_Task], _Result], tasks: Sequence[_Task]
) -> list[_Result]:
    """Return the function's result for each task, computed in Spark tasks; for small results.

    Order: of the tasks.
    """
    if not tasks:
        return []
    rows = in_tasks(spark, _Pickled(function, tasks), len(tasks), "number long, result binary").collect()
    return [pickle.loads(row["result"]) for row in sorted(rows, key=lambda row: int(row["number"]))]


class _Pickled(Generic[_Task, _Result]):
    def __init__(self, function: Callable[[_Task], _Result], tasks: Sequence[_Task]) -> None:
        self._function = function
        self._tasks = tasks

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        result = pickle.dumps(self._function(self._tasks[number]))
        yield pa.RecordBatch.from_pydict({"number": [number], "result": [result]})


def to_bytes(batches: list[pa.RecordBatch]) -> bytes:
    """Return batches of one schema as Arrow bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def from_bytes(data: Any) -> list[pa.RecordBatch]:
    """Return the batches of Arrow bytes."""
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return list(reader)
