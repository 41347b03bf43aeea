"""Decode stores in one plain process and in Spark's tasks, in one session, and print each pass as a line of JSON.

    python -m benchmarks.spark_rate STORE [STORE...] --cores 2 --passes 3

The work is that of `decode_rate`: every header column, the topic and six properties of every record as Arrow. In Spark
it is done twice: in tasks that return only sums to the JVM, and through the data source with all columns.
Processor time is that of the whole process tree.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.decode_rate import HEADER, SIX_PROPERTIES, decode
from benchmarks.measure import TICKS_PER_SECOND, descendants
from rmqtx.readers.log.commit_log import record_columns
from rmqtx.readers.log.kernels import is_accelerator_installed, use_accelerator
from rmqtx.readers.log.splits import SPLIT_BYTES, SplitPlan, plan_splits
from rmqtx.readers.store.store import open_store
from rmqtx.spark_tasks.session.session import session
from rmqtx.spark_tasks.session.tasks import in_tasks, packed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = [*HEADER, *SIX_PROPERTIES]


@dataclass(frozen=True)
class Sums:
    """The task that returns only sums."""

    plan: SplitPlan
    is_accelerated: bool

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        """One row: records and bytes of a split."""
        use_accelerator(self.is_accelerated)
        split = self.plan[number]
        records = log_bytes = 0
        for block in split.scan():
            columns = record_columns(block, split.store.root, COLUMNS)
            records += len(block)
            log_bytes += pc.sum(columns[0]).as_py()
        yield pa.RecordBatch.from_pydict({"records": [records], "bytes": [log_bytes]})


def sums(spark: SparkSession, store: Path, *, is_accelerated: bool) -> dict[str, int]:
    """Records and bytes, added up by Spark."""
    plan = plan_splits([open_store(store)])
    frame = in_tasks(spark, Sums(plan, is_accelerated), packed(spark, plan.sizes_bytes), "records long, bytes long")
    row = frame.groupBy().sum("records", "bytes").collect()[0]
    return {"records": row[0], "bytes": row[1]}


def columns(spark: SparkSession, store: Path) -> dict[str, int]:
    """Return records and bytes, with every row and column passed to the JVM."""
    reader = spark.read.format("rmqtx").option("table", "records").option("columns", ",".join(COLUMNS))
    frame = reader.option("split_size", str(SPLIT_BYTES)).load(str(store))
    row = frame.selectExpr("count(*)", "sum(length_bytes)").collect()[0]
    return {"records": row[0], "bytes": row[1]}


def main(words: Sequence[str] | None = None) -> int:
    """The command line: one line of JSON a pass."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_rate")
    parser.add_argument("stores", type=Path, nargs="+")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--without-plain", action="store_true", help="leave the plain process out")
    arguments = parser.parse_args(words)
    # With one core the JVM and its Python worker must share it, too: local[1] alone would use a second one.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.cores])
    fast = is_accelerator_installed()
    use_accelerator(fast)
    began = time.perf_counter()
    with session(f"local[{arguments.cores}]") as spark:
        sums(spark, arguments.stores[0], is_accelerated=fast)  # from here on workers and compiled code exist
        say("session and first job", arguments.stores[0], 0, time.perf_counter() - began, tree_cpu_seconds(), 0, {})
        for store in arguments.stores:
            for number in range(arguments.passes):
                if not arguments.without_plain:
                    measure("plain", store, number, partial(decode, store))
                measure("sums", store, number, partial(sums, spark, store, is_accelerated=fast))
                measure("columns", store, number, partial(columns, spark, store))
    return 0


def measure(step: str, store: Path, number: int, work: Callable[[], Mapping[str, float]]) -> None:
    """One pass, timed, with the highest memory of any Python process meanwhile."""
    ended = threading.Event()
    peaks = [0]

    def watch() -> None:
        while not ended.wait(0.05):
            peaks[0] = max([peaks[0], *worker_anonymous_bytes()])

    watcher = threading.Thread(target=watch, daemon=True)
    wall, cpu = time.perf_counter(), tree_cpu_seconds()
    watcher.start()
    result = work()
    wall, cpu = time.perf_counter() - wall, tree_cpu_seconds() - cpu
    ended.set()
    watcher.join()
    say(step, store, number, wall, cpu, peaks[0], result)


def say(step: str, store: Path, number: int, wall: float, cpu: float, peak: int, result: Mapping[str, float]) -> None:
    """One line."""
    told = {"records": result.get("records"), "bytes": result.get("bytes")}
    line = {"step": step, "store": store.name, "pass": number, "wall_s": wall, "cpu_s": cpu, "worker_bytes": peak}
    print(json.dumps({**line, **told}), flush=True)


def tree_cpu_seconds() -> float:
    """Processor time of the tree, of ended children too."""
    ticks = 0
    for process in descendants(os.getpid()):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        own = process == os.getpid()
        ticks += sum(int(field) for field in fields[11 : 13 if own else 15])
    return ticks / TICKS_PER_SECOND


def worker_anonymous_bytes() -> list[int]:
    """Anonymous memory of each Python process below this one."""
    found: list[int] = []
    for process in descendants(os.getpid())[1:]:
        try:
            if not Path(f"/proc/{process}/comm").read_text().startswith("python"):
                continue
            lines = Path(f"/proc/{process}/status").read_text().splitlines()
        except OSError:
            continue
        found.extend(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))
    return found


if __name__ == "__main__":
    sys.exit(main())
