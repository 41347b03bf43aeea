"""Run Python functions as Spark tasks, some calls each, and return their results.

Rows that Spark joins or counts are columns. All other results are Arrow bytes in one binary column: the JVM then moves
a few large values and does not decode rows.
"""

from __future__ import annotations

import functools
import gc
import os
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import numpy as np
import pyarrow as pa

import rmqtx
from rmqtx.readers.log import kernels
from rmqtx.readers.log.splits import SPLIT_BYTES
from rmqtx.readers.model.columns import Int64s
from rmqtx.spark_tasks.session.errors import marked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: A call costs as much as reading this number of bytes: it opens files, and returns rows of its own.
CALL_BYTES = 1 << 20
#: Enough that cores end together, few enough that starting tasks (50 ms each) costs little.
_TASKS_PER_CORE = 4
#: Where a session does not show its cores.
_UNKNOWN_CORES = 4

#: Compression here costs less than copies of more bytes in the JVM, and the disks and networks between executors.
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd" if pa.Codec.is_available("zstd") else None)
_COMPRESSED_BYTES_MIN = 32 << 10
#: Values that a worker keeps: those of the stages of one audit.
_SHARED_KEPT_MAX = 3

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")
_CACHE_HOME = "XDG_CACHE_HOME"
_PARTITIONS = "spark.sql.shuffle.partitions"
_ADAPTIVE = "spark.sql.adaptive.enabled"
#: Log bytes whose transactions one task judges: a task costs as much as judging those of 2 MiB.
PARTITION_BYTES = 96 << 20
#: Log bytes that one task reads, and whose transactions one task judges, for very large logs: a few hundred MB of
#: memory for each task. Smaller tasks would exchange more small pieces than data.
PARTITION_BYTES_MAX = 512 << 20
SPLIT_BYTES_MAX = 1 << 30
#: Rows of a split for one partition, as a target, and bytes of log of a transaction's records, on average.
_ROWS_TOGETHER_MIN = 32
_TRANSACTION_BYTES = 1_400


@dataclass(frozen=True, slots=True)
class Packs:
    """Numbers packed into tasks: task n has the numbers from `firsts[n]` up to `firsts[n + 1]`, which is excluded."""

    firsts: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.firsts) - 1


def packed(spark: SparkSession, sizes_bytes: Int64s) -> Packs:
    """Pack numbers into tasks of about the same number of bytes: four for each core, more if a task had too many bytes.

    Shape: `sizes_bytes`: what the function reads for each number.
    Order: numbers of a task are neighbours, so results keep the order of numbers.
    """
    weights = np.maximum(sizes_bytes, CALL_BYTES)
    total_bytes = int(weights.sum())
    tasks_count = max(_TASKS_PER_CORE * cores_count(spark), -(-total_bytes // SPLIT_BYTES))
    limit = max(total_bytes // tasks_count, 1)
    _, firsts = np.unique((np.cumsum(weights) - weights) // limit, return_index=True)
    return Packs((*firsts.tolist(), len(weights)))


def cores_count(spark: SparkSession) -> int:
    """Return the number of tasks that a session runs at the same time."""
    from pyspark.errors import PySparkAttributeError

    try:
        return max(1, spark.sparkContext.defaultParallelism)
    except PySparkAttributeError:  # Spark Connect, whose server does not show it
        return int(str(spark.conf.get("spark.default.parallelism", str(_UNKNOWN_CORES))))


def in_tasks(
    spark: SparkSession, function: Callable[[int], Iterator[pa.RecordBatch]], packs: Packs, schema: str
) -> DataFrame:
    """Return the results of the function for all numbers of the packs, each pack in a separate task.

    Order: of the numbers.
    """
    count = max(len(packs), 1)
    return spark.range(0, len(packs), 1, numPartitions=count).mapInArrow(_EachNumber(function, packs), schema)


@dataclass(frozen=True, slots=True)
class Shared(Generic[_Task]):
    """A value that all tasks of a job need, like facts of all stores; a worker restores it once, not in each task."""

    data: bytes

    @classmethod
    def of(cls, value: _Task) -> Self:
        """Return a value as it is sent to tasks."""
        return cls(pickle.dumps(value))

    @property
    def value(self) -> _Task:
        """The value; it must not be changed."""
        restored: _Task = _restored(self.data)
        return restored


@functools.lru_cache(maxsize=_SHARED_KEPT_MAX)
def _restored(data: bytes) -> Any:
    return pickle.loads(data)


class _EachNumber:
    """Applies the function to the numbers of a task."""

    def __init__(self, function: Callable[[int], Iterator[pa.RecordBatch]], packs: Packs) -> None:
        self._function, self._firsts = function, packs.firsts
        self.__name__ = "each_number"  # Spark shows it

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with working():
            for batch in batches:
                for pack in batch["id"].to_pylist():
                    for number in range(self._firsts[pack], self._firsts[pack + 1]):
                        yield from self._function(number)


def results(
    spark: SparkSession, function: Callable[[_Task], _Result], tasks: Sequence[_Task]
) -> list[_Result]:
    """Return the function's result for each task, computed in Spark tasks; for small results. Order: of the tasks."""
    if not tasks:
        return []
    packs = packed(spark, np.zeros(len(tasks), np.int64))
    rows = in_tasks(spark, _Pickled(function, tasks), packs, "number long, result binary").collect()
    return [pickle.loads(row["result"]) for row in sorted(rows, key=lambda row: int(row["number"]))]


class _Pickled(Generic[_Task, _Result]):
    """Applies a function to one of some values, of which a task restores only its own."""

    def __init__(self, function: Callable[[_Task], _Result], tasks: Sequence[_Task]) -> None:
        self._function = function
        self._tasks = [pickle.dumps(task) for task in tasks]

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        result = pickle.dumps(self._function(pickle.loads(self._tasks[number])))
        yield pa.RecordBatch.from_pydict({"number": [number], "result": [result]})


@contextmanager
def working() -> Iterator[None]:
    """The block of a task: errors keep their position (see `marked`), and garbage collection stays short.

    Spark's workers collect all garbage after each task, which takes 15 ms for the objects of the modules that rmqtx
    imports, and so three quarters of a small task. They are set aside when a task has imported modules.
    """
    global _modules_count
    with marked():
        yield
    if len(sys.modules) > _modules_count:
        gc.collect()
        gc.freeze()
        _modules_count = len(sys.modules)


#: The number of modules that were imported when objects were last set aside.
_modules_count = 0


def to_bytes(batches: list[pa.RecordBatch]) -> bytes:
    """Return batches of one schema as Arrow bytes, compressed if they are large."""
    sink = pa.BufferOutputStream()
    is_large = sum(batch.nbytes for batch in batches) >= _COMPRESSED_BYTES_MIN
    with pa.ipc.new_stream(sink, batches[0].schema, options=_COMPRESSED if is_large else None) as writer:
        for batch in batches:
            writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def from_bytes(data: Any) -> list[pa.RecordBatch]:
    """Return the batches of Arrow bytes."""
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return list(reader)


def use_accelerator(wanted: bool) -> bool:
    """Choose for this worker; return whether the accelerator is in use."""
    with _cache_beside_packages():
        return kernels.use_accelerator(wanted)


@contextmanager
def _cache_beside_packages() -> Iterator[None]:
    """Let numba keep what it compiles beside an archive that rmqtx is imported from.

    For modules in archives numba uses a folder in the user's home, which an executor's user may not have, and where
    the folders of all applications would stay.
    """
    archive = next((one for one in Path(rmqtx.__file__).parents if one.suffix == ".zip"), None)
    if archive is None:
        yield
        return
    before = os.environ.get(_CACHE_HOME)
    os.environ[_CACHE_HOME] = str(archive.absolute().with_suffix(".cache"))
    try:
        yield
    finally:
        if before is None:
            del os.environ[_CACHE_HOME]
        else:
            os.environ[_CACHE_HOME] = before


@contextmanager
def shuffles_of(spark: SparkSession, tasks_count: int) -> Iterator[None]:
    """Give joins and groups of the block at least `tasks_count` tasks, where Spark would not choose this number.

    Adaptive execution merges small tasks, and never makes more of them than the setting. Without adaptive execution
    the block has exactly `tasks_count`. The setting of the session is restored at the end.
    """
    given = str(spark.conf.get(_PARTITIONS))
    is_adaptive = str(spark.conf.get(_ADAPTIVE)).lower() == "true"
    spark.conf.set(_PARTITIONS, str(max(int(given), tasks_count) if is_adaptive else tasks_count))
    try:
        yield
    finally:
        spark.conf.set(_PARTITIONS, given)


def sizes_for(total_bytes: int) -> tuple[int, int]:
    """Return the log bytes that one task reads, and the log bytes whose transactions one task judges.

    Units: bytes. Every reading task has rows for every judging task: with the usual sizes, 10 TB would give thousands
    of millions of pieces of one or two rows each.
    """
    partition_bytes, split_bytes = PARTITION_BYTES, SPLIT_BYTES

    def rows_together() -> int:
        return split_bytes // _TRANSACTION_BYTES * partition_bytes // max(total_bytes, 1)

    while partition_bytes < PARTITION_BYTES_MAX and rows_together() < _ROWS_TOGETHER_MIN:
        partition_bytes = min(2 * partition_bytes, PARTITION_BYTES_MAX)
    while split_bytes < SPLIT_BYTES_MAX and rows_together() < _ROWS_TOGETHER_MIN:
        split_bytes *= 2
    return split_bytes, partition_bytes
