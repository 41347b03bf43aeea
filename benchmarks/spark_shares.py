"""Audit stores in one Spark session, some times, and print what each pass cost, and the share of each task, as JSON.

    python -m benchmarks.spark_shares --passes 2 STORE [STORE...]

All stores are one audit. Processor time is that of the whole process tree, without the start of the session. Shares are
log bytes for the tasks that read, and bytes of the shuffle for those that join and judge, from Spark's event log.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.spark_rate import tree_cpu_seconds
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import Store, open_store
from rmqtx.spark_tasks.jobs.audit import audit
from rmqtx.spark_tasks.session.session import session
from rmqtx.spark_tasks.session.tasks import packed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(words: Sequence[str] | None = None) -> int:
    """The command line: one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_shares")
    parser.add_argument("stores", type=Path, nargs="+")
    parser.add_argument("--passes", type=int, default=2)
    arguments = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as log, _session(log) as spark:
        spark.range(1).mapInArrow(_same, "id long").collect()  # from here on a worker exists
        start_cpu_s = tree_cpu_seconds()
        passes = [_audited(spark, arguments.stores) for _ in range(arguments.passes)]
        stores = [open_store(path) for path in arguments.stores]
        reading = _log_shares(spark, stores)
        stages = _stages(next(Path(log).iterdir()))
    print(json.dumps({"start_cpu_s": start_cpu_s, "passes": passes, "reading": reading, "stages": stages}))
    return 0


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


@contextmanager
def _session(log: str) -> Iterator[SparkSession]:
    conf = {
        "spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{log}",
        "spark.eventLog.rolling.enabled": "false", "spark.eventLog.compress": "false",
        "spark.eventLog.buffer.kb": "1",
    }
    with session("local[2]", conf=conf) as spark:
        yield spark


def _audited(spark: SparkSession, places: Sequence[Path]) -> dict[str, Any]:
    begun_s, cpu_s, first_s = time.perf_counter(), tree_cpu_seconds(), 0.0
    states: Counter[str] = Counter()
    for batch in audit(spark, [open_store(place) for place in places], broker_settings).batches:
        first_s = first_s or time.perf_counter() - begun_s
        states.update(batch["state"].to_pylist())
    return {
        "first_row_s": first_s, "wall_s": time.perf_counter() - begun_s, "cpu_s": tree_cpu_seconds() - cpu_s,
        "states": states,
    }


def _log_shares(spark: SparkSession, stores: list[Store]) -> dict[str, float]:
    sizes_bytes = plan_splits(stores).sizes_bytes
    packs = packed(spark, sizes_bytes)
    return _shares([int(np.sum(sizes_bytes[first:end])) for first, end in pairwise(packs.firsts)])


def _stages(log: Path) -> list[dict[str, Any]]:
    """Return the stages of all passes with their number of tasks, and the shares of those that read a shuffle."""
    described: dict[int, str] = {}
    tasks_count: Counter[int] = Counter()
    read_bytes: dict[int, list[int]] = defaultdict(list)
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerJobStart":
            text = event["Properties"].get("spark.job.description", "")
            described.update({stage["Stage ID"]: text for stage in event["Stage Infos"]})
        elif event["Event"] == "SparkListenerTaskEnd" and event["Task End Reason"]["Reason"] == "Success":
            read = event["Task Metrics"]["Shuffle Read Metrics"]
            size_bytes = read["Remote Bytes Read"] + read["Local Bytes Read"]
            tasks_count[event["Stage ID"]] += 1
            if size_bytes:  # a stage can also have tasks that pass on what was scanned
                read_bytes[event["Stage ID"]].append(size_bytes)
    return [
        {"job": described[stage], **_shares(read_bytes[stage] or [0]), "tasks": count}
        for stage, count in sorted(tasks_count.items()) if described[stage].startswith("rmqtx")
    ]


def _shares(sizes: list[int]) -> dict[str, float]:
    return {"tasks": len(sizes), "median_bytes": statistics.median(sizes), "max_bytes": max(sizes)}


if __name__ == "__main__":
    sys.exit(main())
