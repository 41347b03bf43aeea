"""An audit on a cluster of two executors, one of which is killed while it scans: run as a program, says what came out.

    python -m tests.spark.lost_executor STORE_NAME

A session of its own in a process of its own: the tests' session has no executors that could be lost.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession

from rmqtx.readers.log.splits import WorkDivision
from rmqtx.spark_tasks.jobs.audit import audit
from rmqtx.spark_tasks.session.session import session
from tests.forge.stores import opened, settings_of
from tests.spark.test_audit import answers

SPLIT_BYTES = 4 << 10
TASKS_DONE_MIN = 2
_EXECUTOR = b"CoarseGrainedExecutorBackend"


def executors_of(application: str) -> list[int]:
    """The processes of an application's executors."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            words = (directory / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended
        if _EXECUTOR in words and application.encode() in words:
            found.append(int(directory.name))
    return sorted(found)


def kill_one(spark: SparkSession, killed: list[int]) -> None:
    """Kill an executor when some tasks of a large stage are done and others are not."""
    context = spark.sparkContext
    tracker = context.statusTracker()
    while not killed:
        time.sleep(0.01)
        stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
        if any(s is not None and TASKS_DONE_MIN <= s.numCompletedTasks < s.numTasks for s in stages):
            process = executors_of(str(context.applicationId))[0]
            os.kill(process, signal.SIGKILL)
            killed.append(process)


def main(name: str) -> None:
    """Print one JSON object: what the audit said, and how many executors were killed in it."""
    conf = {"spark.sql.shuffle.partitions": "3"}
    with tempfile.TemporaryDirectory() as directory, session(
        "local-cluster[2,1,1024]", conf=conf, temporary_directory=directory
    ) as spark:
        killed: list[int] = []
        watcher = threading.Thread(target=kill_one, args=(spark, killed), daemon=True)
        watcher.start()
        found = answers(audit(spark, [opened(name)], settings_of(name), work=WorkDivision(SPLIT_BYTES)))
        print(json.dumps({"killed": len(killed), **found}))


if __name__ == "__main__":
    main(sys.argv[1])
